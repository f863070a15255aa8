"""What spans of activities say: which task they are about and, where that is wanted, its content."""

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Annotated, cast

from opentelemetry.trace import Span
from pydantic import BeforeValidator, Field, JsonValue

from everloop.runtime.settings import Settings
from everloop.workflows.contract.calls import ToolReply
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage
from everloop.workflows.contract.tasks import TaskRef


def of_task(task: TaskRef, agent_name: str = "") -> dict[str, str]:
    """Return the attributes that say which task, and which agent, a span is about."""
    attributes = task.span_attributes
    if agent_name:
        attributes["gen_ai.agent.name"] = agent_name
    if task.agent_version:
        attributes["gen_ai.agent.version"] = task.agent_version
    return attributes


# What people and models say, on spans, where that is wanted (OpenTelemetry GenAI conventions, opt-in).
#
# A secret that people supplied is in none of it: it reaches tools alone, and is blacked out of what they say.

_MODES = {"span_only": True, "span_and_event": True, "event_only": False, "no_content": False}
"""Other words that some libraries take for this variable; we make spans, and no events."""

_FINISH_REASONS = {"tool_calls": "tool_call"}

_Message = Mapping[str, object]


def _mode(given: object) -> object:
    return _MODES.get(given.lower(), given) if isinstance(given, str) else given


class ContentSettings(Settings):
    """Whether spans have prompts, replies, arguments and results of tools on them.

    `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`: true or false (default).
    """

    is_captured: Annotated[bool, BeforeValidator(_mode)] = Field(
        default=False, validation_alias="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    )


def record_prompt(span: Span, messages: Sequence[Mapping[str, object]]) -> None:
    """Put what the model reads on its span; of files, only that there are some."""
    if not span.is_recording():
        return
    system = list(takewhile(lambda message: message["role"] == "system", messages))
    instructions = [part for message in system for part in _text_parts(message.get("content"))]
    if instructions:
        span.set_attribute("gen_ai.system_instructions", _json(instructions))
    span.set_attribute("gen_ai.input.messages", _json([_message(one) for one in messages[len(system) :]]))


def record_completion(span: Span, reply: AssistantMessage) -> None:
    """Put what the model wrote on its span."""
    parts: list[JsonValue] = []
    if reply.reasoning:
        parts.append({"type": "reasoning", "content": reply.reasoning})
    if reply.text:
        parts.append(_text(reply.text))
    parts += [_call(call.id, call.name, call.arguments) for call in reply.tool_calls]
    reason = _FINISH_REASONS.get(reply.finish_reason, reply.finish_reason)
    message = {"role": "assistant", "parts": parts, "finish_reason": reason}
    span.set_attribute("gen_ai.output.messages", _json([message]))


def record_arguments(span: Span, call: ToolCall) -> None:
    """Put the arguments that the model wrote on the span of a tool."""
    span.set_attribute("gen_ai.tool.call.arguments", _json(_parsed(call.arguments)))


def record_tool_result(span: Span, reply: ToolReply) -> None:
    """Put what the model reads of a call on its span; a question is for people, and no result."""
    if isinstance(reply, ToolMessage):
        span.set_attribute("gen_ai.tool.call.result", _json(reply.content))


def _message(message: _Message) -> dict[str, JsonValue]:
    role = str(message["role"])
    if role == "tool":
        id_, content = str(message.get("tool_call_id")), cast("JsonValue", message.get("content"))
        return {"role": role, "parts": [{"type": "tool_call_response", "id": id_, "response": content}]}
    return {"role": role, "parts": [*_text_parts(message.get("content")), *_calls(message)]}


def _text_parts(content: object) -> list[JsonValue]:
    if isinstance(content, str):
        return [_text(content)] if content else []
    parts = cast("Sequence[_Message]", content or ())
    return [
        _text(str(part["text"])) if part["type"] == "text" else {"type": str(part["type"])} for part in parts
    ]


def _calls(message: _Message) -> list[JsonValue]:
    calls = cast("Sequence[_Message]", message.get("tool_calls") or ())
    asked = [(str(call["id"]), cast("_Message", call["function"])) for call in calls]
    return [_call(id_, str(function["name"]), str(function["arguments"])) for id_, function in asked]


def _call(id_: str, name: str, arguments: str) -> dict[str, JsonValue]:
    return {"type": "tool_call", "id": id_, "name": name, "arguments": _parsed(arguments)}


def _text(content: str) -> dict[str, JsonValue]:
    return {"type": "text", "content": content}


def _parsed(arguments: str) -> JsonValue:
    """Return arguments as the JSON that they should be, else as they are."""
    try:
        return cast("JsonValue", json.loads(arguments or "{}"))
    except (ValueError, RecursionError):
        return arguments


def _json(value: JsonValue | Sequence[JsonValue] | Sequence[Mapping[str, JsonValue]]) -> str:
    return json.dumps(value, ensure_ascii=False)

"""From an agent and a transcript to a Chat Completions request."""

import json
from collections.abc import Iterable
from typing import NotRequired, TypedDict

from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionMessageParam,
)

from agents.agent import Agent
from agents.tool import Tool
from workflows.contract.messages import (
    AssistantMessage,
    Part,
    TextPart,
    ToolCall,
    TranscriptMessage,
    UserMessage,
)


class ChatRequest(TypedDict):
    """The parts of a request that depend on the task."""

    model: str
    messages: list[ChatCompletionMessageParam]
    tools: NotRequired[list[ChatCompletionFunctionToolParam]]


def build_request(model: str, agent: Agent, transcript: Iterable[TranscriptMessage]) -> ChatRequest:
    """Return the request; an agent without prompt or tools leaves them out."""
    messages: list[ChatCompletionMessageParam] = []
    if agent.system_prompt:
        messages.append({"role": "system", "content": agent.system_prompt})
    messages.extend(_message(message) for message in transcript)
    request = ChatRequest(model=model, messages=messages)
    if agent.tools:
        request["tools"] = [_tool(tool) for tool in agent.tools.values()]
    return request


def _message(message: TranscriptMessage) -> ChatCompletionMessageParam:
    if isinstance(message, UserMessage):
        return {"role": "user", "content": "\n\n".join(_text(part) for part in message.parts)}
    if isinstance(message, AssistantMessage):
        return _assistant_message(message)
    return {"role": "tool", "tool_call_id": message.call_id, "content": message.content}


def _text(part: Part) -> str:
    return part.text if isinstance(part, TextPart) else json.dumps(part.data, ensure_ascii=False)


def _assistant_message(message: AssistantMessage) -> ChatCompletionAssistantMessageParam:
    """Return the reply without its reasoning, which providers do not take back."""
    if not message.tool_calls:
        return {"role": "assistant", "content": message.text}
    calls = [_tool_call(call) for call in message.tool_calls]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _tool_call(call: ToolCall) -> ChatCompletionMessageFunctionToolCallParam:
    arguments = readable_arguments(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def readable_arguments(written: str) -> str:
    """Return the arguments as a JSON object, even if the model did not write one.

    Several providers refuse a transcript whose arguments they cannot parse, and the task with it.
    """
    if not written.strip():
        return "{}"
    try:
        value: object = json.loads(written)
    except ValueError:
        value = None
    return written if isinstance(value, dict) else json.dumps({"malformed": written}, ensure_ascii=False)


def _tool(tool: Tool) -> ChatCompletionFunctionToolParam:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": {**tool.parameters},
        },
    }

"""Judges a reply: it is accepted, the model is called again, or the task ends with it.

A `refused` reply goes back to the model with the problem. The reason stays on it, so that a reply that ends
in the same way right after it is not sent back again. All of it is pure, and follows the hooks of plugins.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import from_json
from temporalio.exceptions import ApplicationError

from everloop.agents.tool_signature import as_tool_name
from everloop.models.interface import ModelRequest, OutputSchema
from everloop.runtime.user_code import error_kind, translate_base_exceptions
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)
from everloop.workflows.contract.parts import is_sendable

EMPTY = "the model gave an empty answer"
FILTERED = "the provider's content filter stopped the reply"
MALFORMED = "the model wrote a tool call that could not be read"
_UNREADABLE = "it held a tool call that could not be read; nothing of it was run; write the call again"


def judge(
    reply: AssistantMessage,
    transcript: Sequence[TranscriptMessage],
    settings: ModelSettings,
    output: type[BaseModel] | None = None,
    *,
    last: str = "",
) -> AssistantMessage:
    """Return the final form of the reply. One that a plugin has refused, or ends the task with, is unchanged.

    `last` is the limit that makes this the last call, if it is the last. Then no tools are run, and a reply
    that is not an answer is refused, regardless of the settings: the task ends at that limit.

    Raises:
        ApplicationError: `OutputInvalid`: the output model itself failed.
    """
    if reply.refused or reply.rejects or (reply.closing and not (reply.text or reply.tool_calls)):
        return reply
    if not last:
        return _judged(reply, transcript, settings, output)
    if settings.on_length == "tell":  # the model has no further attempt
        settings = replace(settings, on_length="accept")
    judged = _judged(_without_calls(reply), transcript, settings, output)
    if judged.refused:
        return judged
    if judged.fails or judged.rejects or not judged.text.strip():
        return _refuse(judged, judged.reason, judged.closing or EMPTY)
    return _closed(judged, judged.reason, f"{last}; the answer is what there was by then")


def _judged(  # noqa: PLR0911 -- one for each way in which a reply ends
    reply: AssistantMessage,
    transcript: Sequence[TranscriptMessage],
    settings: ModelSettings,
    output: type[BaseModel] | None,
) -> AssistantMessage:
    earlier = _refusal_reason(transcript)
    match reply.finish_reason:
        case "content_filter":
            return _of_filtered(_without_calls(reply), settings, earlier)
        case "refusal":
            return _of_declined(_without_calls(reply), settings, is_data=output is not None)
        case "malformed":
            return _refuse_once(_without_calls(reply), failures.REPLY_CUT, _UNREADABLE, MALFORMED, earlier)
        case "length" if reply.tool_calls:
            return _of_cut_calls(reply, earlier)
        case "length" if not reply.text.strip():
            return _of_thoughts(reply, settings)
        case "length" if not output:
            return _of_cut_text(reply, settings, earlier)
        case _ if not (output or reply.tool_calls or reply.text.strip()):
            return _of_empty(reply, transcript, settings, earlier)
        case _:
            return as_output(reply, output) if output else reply


def _of_filtered(reply: AssistantMessage, settings: ModelSettings, earlier: str) -> AssistantMessage:
    match settings.on_content_filter:
        case "accept":
            return _closed(reply, failures.CONTENT_FILTERED, FILTERED)
        case "tell":
            problem = "the provider's content filter stopped it; say it in another way"
            return _refuse_once(reply, failures.CONTENT_FILTERED, problem, FILTERED, earlier)
        case _:
            return _fail(reply, failures.CONTENT_FILTERED, FILTERED)


def _of_declined(reply: AssistantMessage, settings: ModelSettings, *, is_data: bool) -> AssistantMessage:
    """A refusal is not data, so it is not accepted as data."""
    said = reply.text.strip()
    why = f"the model declined: {said}" if said else "the model declined, and gave no reason"
    if settings.on_refusal == "fail" or (settings.on_refusal == "accept" and is_data):
        return _fail(reply, failures.MODEL_DECLINED, why)
    if settings.on_refusal == "accept":
        return _closed(reply, failures.MODEL_DECLINED, "the model declined to answer")
    rejected = reply.model_copy(update={"text": "", "rejects": True})
    return _closed(rejected, failures.MODEL_DECLINED, why)


def _of_cut_calls(reply: AssistantMessage, earlier: str) -> AssistantMessage:
    """Complete calls are run; a call that was cut off never is."""
    complete = tuple(call for call in reply.tool_calls if _is_complete(call))
    if complete:
        return reply.model_copy(update={"tool_calls": complete})
    name = reply.tool_calls[-1].name
    hint = f"it was cut off within the call of {name}; nothing of it was run; write less at once"
    problem = f"the reply was cut off within the call of {name}{_limit(reply)}; raise max_tokens"
    return _refuse_once(_without_calls(reply), failures.REPLY_CUT, hint, problem, earlier)


def _of_thoughts(reply: AssistantMessage, settings: ModelSettings) -> AssistantMessage:
    tokens = f"all {reply.usage.output_tokens} tokens" if reply.usage.output_tokens else "all its tokens"
    problem = f"the model used {tokens} for thinking; raise max_tokens"
    if settings.on_length == "accept":
        return _closed(reply, failures.REPLY_CUT, problem)
    return _fail(reply, failures.REPLY_CUT, problem)


def _of_cut_text(reply: AssistantMessage, settings: ModelSettings, earlier: str) -> AssistantMessage:
    problem = f"the answer was cut off{_limit(reply)}"
    if settings.on_length == "fail":
        return _fail(reply, failures.REPLY_CUT, f"{problem}; raise max_tokens, or ask for less at once")
    if settings.on_length == "tell" and earlier != failures.REPLY_CUT:
        return _refuse(reply, failures.REPLY_CUT, f"it was cut off{_limit(reply)}; write less")
    return _closed(reply, failures.REPLY_CUT, problem)


def _of_empty(
    reply: AssistantMessage,
    transcript: Sequence[TranscriptMessage],
    settings: ModelSettings,
    earlier: str,
) -> AssistantMessage:
    """A task that has written an artifact has answered: the model may have nothing to add."""
    if settings.on_empty == "accept" or (settings.on_empty != "fail" and _has_written(transcript)):
        return _closed(reply, failures.EMPTY_REPLY, EMPTY)
    if settings.on_empty == "fail":
        return _fail(reply, failures.EMPTY_REPLY, EMPTY)
    return _refuse_once(reply, failures.EMPTY_REPLY, "it was empty: answer, or call a tool", EMPTY, earlier)


def _refuse_once(
    reply: AssistantMessage, reason: str, hint: str, problem: str, earlier: str
) -> AssistantMessage:
    """Send the problem to the model; after a refusal for the same reason just before, the task fails."""
    if earlier == reason:
        return _fail(reply, reason, f"{problem} (twice: the model was told so)")
    return _refuse(reply, reason, hint)


def _refuse(reply: AssistantMessage, reason: str, hint: str) -> AssistantMessage:
    ends = {"closing": "", "fails": False, "rejects": False}
    return reply.model_copy(update={**ends, "refused": hint, "reason": reason})


def _fail(reply: AssistantMessage, reason: str, problem: str) -> AssistantMessage:
    return _closed(reply, reason, problem).model_copy(update={"fails": True})


def _closed(reply: AssistantMessage, reason: str, problem: str) -> AssistantMessage:
    """Return the reply with the text of the last status, after the text of plugins."""
    closing = "; ".join(filter(None, (reply.closing, problem)))
    return reply.model_copy(update={"closing": closing, "reason": reason})


def _without_calls(reply: AssistantMessage) -> AssistantMessage:
    return reply.model_copy(update={"tool_calls": ()})


def _limit(reply: AssistantMessage) -> str:
    tokens = reply.usage.output_tokens
    return " at the model's limit" + (f", after {tokens} tokens" if tokens else "")


def _is_complete(call: ToolCall) -> bool:
    try:
        return isinstance(from_json(call.arguments), dict)
    except ValueError:
        return False


def _refusal_reason(transcript: Sequence[TranscriptMessage]) -> str:
    """Return the reason why the last reply was refused, empty if it was accepted."""
    for message in reversed(transcript):
        if isinstance(message, AssistantMessage):
            return message.reason if message.refused else ""
        if isinstance(message, ToolMessage):
            break
    return ""


def _has_written(transcript: Sequence[TranscriptMessage]) -> bool:
    """True if an artifact was written since the last message of the user."""
    for message in reversed(transcript):
        if isinstance(message, UserMessage) and message.message_id:  # a note to the model has no id
            break
        if isinstance(message, ToolMessage) and message.artifacts and message.outcome == "ok":
            return True
    return False


# Continues a reply that was cut off within its text.

_GO_ON = "[Go on exactly where your reply stopped.]"


def continuation(request: ModelRequest, so_far: AssistantMessage) -> ModelRequest | None:
    """Return the request for the rest of a reply, or None if it is complete or must not be continued.

    Data are not continued: not all models can continue half a value, so they are requested again, and
    shorter.
    """
    is_cut = so_far.finish_reason == "length" and so_far.text.strip() and not so_far.tool_calls
    if not is_cut or request.output or request.settings.on_length not in (None, "continue"):
        return None
    # Without the opaque fields of the first half: they belong to a complete reply.
    half: Mapping[str, JsonValue] = {"role": "assistant", "content": so_far.text}
    return replace(request, messages=(*request.messages, half, {"role": "user", "content": _GO_ON}))


def joined(first: AssistantMessage, rest: AssistantMessage) -> AssistantMessage:
    """Return a continued reply as one, without opaque fields: they belong to two replies."""
    calls = tuple(call.model_copy(update={"opaque": ""}) for call in rest.tool_calls)
    return rest.model_copy(
        update={
            "text": first.text + rest.text,
            "reasoning": "\n\n".join(filter(None, (first.reasoning, rest.reasoning))),
            "tool_calls": calls,
            "usage": first.usage + rest.usage,
            "opaque": "",
            "reasoning_field": "",
        }
    )


# Answers that are data: their schema for the model, and their validation.

MAX_PROBLEMS = 20
"""Limit of the validation errors that the model gets."""

MAX_PROBLEM_CHARACTERS = 300

MAX_SCHEMA_CHARACTERS = 20_000
"""A longer schema is not repeated: it is in the request already."""

_UNSENDABLE = "it holds a number that no double is, such as 9007199254740993, or is nested too deeply"
_CUT_OFF = "it was cut off, because replies may only be so long; write less"


def output_schema(output: type[BaseModel]) -> OutputSchema:
    """Return the schema of the answer for the provider."""
    return OutputSchema(as_tool_name(output.__name__), output.model_json_schema())


def as_output(reply: AssistantMessage, output: type[BaseModel]) -> AssistantMessage:
    """Return the reply with its text as canonical JSON, or refused with instructions for the model.

    A reply that calls tools is not an answer yet. One that is refused already, or ends the task without an
    answer (`closing`, `rejects`), is unchanged.

    Raises:
        ApplicationError: `OutputInvalid`: the output model itself failed.
    """
    ends_otherwise = reply.rejects or (reply.closing and not reply.text)
    if reply.tool_calls or reply.refused or ends_otherwise:
        return reply
    try:
        with translate_base_exceptions():
            answer = output.model_validate_json(_unfenced(reply.text))
            text = answer.model_dump_json(by_alias=True, warnings=False)
    except ValidationError as error:
        problems = [_CUT_OFF] if reply.finish_reason == "length" else _problems(error)
        return _refuse_output(reply, output, problems)
    except Exception as error:  # noqa: BLE001 -- its validators are the user's code
        raise _failure_of(output, error) from None
    try:
        with translate_base_exceptions():
            output.model_validate_json(text)
    except Exception as error:  # noqa: BLE001 -- as above; clients would get it
        raise _unread(output, error) from None
    if not is_sendable(from_json(text)):
        return _refuse_output(reply, output, [_UNSENDABLE])
    return reply.model_copy(update={"text": text})


def _failure_of(output: type[BaseModel], error: Exception) -> ApplicationError:
    """Return the failure of an output model, without the error's text, which may repeat the answer."""
    problem = (
        f"the output model {output.__name__!r} raised {error_kind(error)} on an answer: its validators "
        "have to raise ValueError for one that does not fit, so that the model can repair it"
    )
    return ApplicationError(problem, type=failures.OUTPUT_INVALID, non_retryable=True)


def _unread(output: type[BaseModel], error: Exception) -> ApplicationError:
    """Return the failure of an output model that does not accept its own data."""
    place = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else ""
    problem = (
        f"the output model {output.__name__!r} does not read the data that it writes ({error_kind(error)}"
        f"{place and f' at {place}'}), so clients could not: let its serializers write what its fields take"
    )
    return ApplicationError(problem, type=failures.OUTPUT_INVALID, non_retryable=True)


def _unfenced(text: str) -> str:
    """Return a text without the Markdown fence around it."""
    text = text.strip()
    if not (text.startswith("```") and text.endswith("```")):
        return text
    inner = text[3:-3].strip()
    return inner[4:] if inner[:4].lower() == "json" else inner


def _problems(error: ValidationError) -> list[str]:
    """Return the validation errors by field, without the invalid values."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:MAX_PROBLEMS]]
    first = [line.removeprefix(": ")[:MAX_PROBLEM_CHARACTERS] for line in lines]
    more = len(found) - len(first)
    return [*first, f"and {more} more"] if more else first


def _refuse_output(reply: AssistantMessage, output: type[BaseModel], problems: list[str]) -> AssistantMessage:
    schema = json.dumps(output.model_json_schema(), ensure_ascii=False)
    schema_text = f":\n{schema}" if len(schema) <= MAX_SCHEMA_CHARACTERS else " that the request came with."
    listed = "\n".join(f"- {problem}" for problem in problems)
    refused = (
        f"Your answer does not fit:\n{listed}\n"
        f"Answer again, with nothing but JSON that fits the schema {output.__name__!r}{schema_text}"
    )
    return reply.model_copy(update={"refused": refused, "is_invalid": True})

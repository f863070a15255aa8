"""Answers that are data: what the model is told of their shape, and whether a reply has it."""

import json
import re

from openai.types.shared_params import ResponseFormatJSONSchema
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import from_json
from temporalio.exceptions import ApplicationError

from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import AssistantMessage, DataPart, TextPart
from everloop.workflows.contract.parts import is_sendable

MAX_PROBLEMS = 20
"""How many of the things that do not fit the model is told at once."""

MAX_PROBLEM_CHARACTERS = 300

MAX_SCHEMA_CHARACTERS = 20_000
"""A longer schema is not told again: the model has it with the request."""

_UNSENDABLE = "it holds a number that is too large, or is nested too deeply"
_CUT_OFF = "it was cut off, because replies may only be so long; write less"


def response_format(output: type[BaseModel]) -> ResponseFormatJSONSchema:
    """Return what tells the provider of the shape of the answer.

    Not `strict`: OpenAI would take only a part of JSON schema, and refuse the rest.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "_", output.__name__)[:64]
    schema: dict[str, object] = {**output.model_json_schema()}
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": False}}


def as_output(reply: AssistantMessage, output: type[BaseModel]) -> AssistantMessage:
    """Return the reply with its text as canonical JSON, or refused with what the model is to do about it.

    A reply that calls tools is no answer yet. One that is refused already, or ends the task in another way
    than with an answer (`closing`, `rejects`), is left as it is.

    Raises:
        ApplicationError: `OutputInvalid`: the output model itself failed.
    """
    ends_otherwise = reply.rejects or (reply.closing and not reply.text)
    if reply.tool_calls or reply.refused or ends_otherwise:
        return reply
    try:
        answer = output.model_validate_json(_unfenced(reply.text))
        text = answer.model_dump_json(by_alias=True, warnings=False)
    except ValidationError as error:
        problems = [_CUT_OFF] if reply.finish_reason == "length" else _problems(error)
        return _refuse(reply, output, problems)
    except Exception as error:  # noqa: BLE001 -- its validators are the user's code
        raise _failure_of(output, error) from None
    if not is_sendable(from_json(text)):
        return _refuse(reply, output, [_UNSENDABLE])
    return reply.model_copy(update={"text": text})


def answer_part(text: str, *, is_data: bool) -> TextPart | DataPart:
    """Return an answer as clients get it."""
    if not is_data:
        return TextPart(text=text)
    try:
        data: JsonValue = from_json(text)
    except ValueError:  # it was stored when the agent had no output model yet
        return TextPart(text=text)
    return DataPart(data=data)


def _failure_of(output: type[BaseModel], error: Exception) -> ApplicationError:
    """Return the failure of an output model; what the error says may repeat the answer."""
    problem = (
        f"the output model {output.__name__!r} raised {type(error).__name__} on an answer: its validators "
        "have to raise ValueError for one that does not fit, so that the model can repair it"
    )
    return ApplicationError(problem, type=failures.OUTPUT_INVALID, non_retryable=True)


def _unfenced(text: str) -> str:
    """Return a text without the fence of Markdown around it."""
    text = text.strip()
    if not (text.startswith("```") and text.endswith("```")):
        return text
    inner = text[3:-3].strip()
    return inner[4:] if inner[:4].lower() == "json" else inner


def _problems(error: ValidationError) -> list[str]:
    """Return what does not fit, by field; what stands there is not repeated."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:MAX_PROBLEMS]]
    shown = [line.removeprefix(": ")[:MAX_PROBLEM_CHARACTERS] for line in lines]
    more = len(found) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def _refuse(reply: AssistantMessage, output: type[BaseModel], problems: list[str]) -> AssistantMessage:
    schema = json.dumps(output.model_json_schema(), ensure_ascii=False)
    told = f":\n{schema}" if len(schema) <= MAX_SCHEMA_CHARACTERS else " that the request came with."
    listed = "\n".join(f"- {problem}" for problem in problems)
    refused = (
        f"Your answer does not fit:\n{listed}\n"
        f"Answer again, with nothing but JSON that fits the schema {output.__name__!r}{told}"
    )
    return reply.model_copy(update={"refused": refused, "misfits": True})

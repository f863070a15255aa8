"""Finished tasks as test cases: the messages, the replies of the models, the outcome.

A case is a JSON file. An agent whose models replay those replies is asked again, and the results are
compared. `evaluation` is for tools that judge many cases; it is stored and ignored.
"""

import asyncio
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json, to_jsonable_python

from everloop.agents.agent import Output
from everloop.client import Client, Part, Result
from everloop.client.extension.history_calls import PastEvent
from everloop.local.demo_model.completion import Call, Reply
from everloop.testing.errors import CaseError
from everloop.testing.model import Script
from everloop.testing.recording import differences
from everloop.testing.running_app import App

FORMAT: Literal["everloop-case/1"] = "everloop-case/1"

Parts = list[dict[str, JsonValue]]
"""Parts of a message, as A2A's JSON."""

_JSON = TypeAdapter[JsonValue](JsonValue)


class CaseCall(BaseModel):
    """A tool call of the model. `arguments`: the text it wrote, or that text parsed."""

    name: str
    arguments: JsonValue = {}
    outcome: str = ""
    result: str = ""


class CaseReply(BaseModel):
    """A reply of a model."""

    text: str = ""
    calls: list[CaseCall] = []
    finish_reason: str = ""


class Expected(BaseModel):
    """The outcome of the task."""

    state: str
    reason: str = ""
    text: str = ""
    data: JsonValue = None
    calls: list[CaseCall] = []


class Case(BaseModel):
    """A task that can be replayed. `messages`: the first started it, the others are answers."""

    everloop: Literal["everloop-case/1"]
    agent: str
    task: str = ""
    messages: list[Parts]
    replies: list[CaseReply]
    expected: Expected
    evaluation: dict[str, JsonValue] = {}

    @classmethod
    def load(cls, file: str | Path) -> "Case":
        """Read a file that `export` wrote.

        Raises:
            CaseError: the file is not a case.
        """
        try:
            return cls.model_validate_json(Path(file).read_bytes())
        except OSError as error:
            raise CaseError(f"{file} cannot be read: {error.strerror}") from None
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in problem["loc"])
            raise CaseError(f"{file} is no case: {place}: {problem['msg']}") from None

    def script(self) -> Script:
        """Return a model that replays the replies; calls of removed tools fail as unknown tools do."""
        replies = [
            Reply(reply.text, tuple(map(_call, reply.calls)), finish_reason=reply.finish_reason)
            for reply in self.replies
        ]
        return Script(*replies, check_tools=False)

    async def ask(self, app: App[Output]) -> Result[Output]:
        """Send the messages, each answer when the agent asks, and return the result.

        Secrets are not in the file: the tool that asks for one receives a text that says so.

        Raises:
            CaseError: the task ended before all messages were sent.
        """
        first, *answers = self.messages
        result = await app.ask(*_parts(first), agent=self.agent)
        for count, answer in enumerate(answers, start=1):
            if result.is_done:
                raise CaseError(
                    f"task {result.id} is {result.state} after {count} of {len(self.messages)} messages"
                )
            said = _parts(answer)
            if [question.kind for question in result.questions[:1]] == ["auth"]:
                result = await app.answer(result, said[0].text or "")
            else:
                result = await app.ask(*said, agent=self.agent, task=result)
        return result

    def check(self, result: Result[Any]) -> None:
        """Compare a result with the case: state, answer, data, and tool calls with arguments and outcomes.

        Raises:
            CaseError: they differ (it is an AssertionError too); the message says where.
        """
        told = Expected(
            state=result.state,
            reason=result.reason,
            text=result.text,
            data=to_jsonable_python(result.data),
            calls=[
                CaseCall(name=call.name, arguments=call.arguments, outcome=call.outcome)
                for call in result.tool_calls
            ],
        )
        without_results = [call.model_copy(update={"result": ""}) for call in self.expected.calls]
        data = _as_model(self.expected.data, type(cast("object", result.data)))
        expected = self.expected.model_copy(update={"calls": without_results, "data": data})
        found = list(differences(expected.model_dump(), told.model_dump(), words=("expected", "got")))
        if found:
            raise CaseError(f"the task came to something else: {'; '.join(found)}")


def _as_model(data: JsonValue, model: type[object]) -> JsonValue:
    """Fill in the defaults of the model, as the recorded data has them."""
    if issubclass(model, BaseModel):
        with suppress(ValidationError):
            return to_jsonable_python(model.model_validate_json(to_json(data)))
    return data


async def export(client: Client, task_id: str, file: str | Path) -> Case:
    """Write a finished task of a gateway, with its sub-agents' tasks, as a test case; return it.

    Replies of summarizers and narrators are left out.

    Raises:
        CaseError: the task has not ended, or the file cannot be written.
        ClientError: the task does not exist, or the server is not an Everloop.
    """
    result = await client.task(task_id)
    if not result.is_done:
        raise CaseError(f"task {task_id} is {result.state}: only a task that has ended can be a case")
    events = [event async for event in client.events(task_id)]
    replies = [*_replies(events)]
    for child in await client.children(task_id):
        replies += _replies([event async for event in client.events(child.result.id)])
    case = Case(
        everloop=FORMAT,
        agent=next(
            (str(event.data.get("agentId", "")) for event in events if event.type == "taskCreated"), ""
        ),
        task=task_id,
        messages=[await _inline(client, event) for event in events if event.type == "message"],
        replies=[reply for _, reply in sorted(replies, key=lambda each: each[0])],
        expected=Expected(
            state=result.state,
            reason=result.reason,
            text=result.text,
            data=result.data,
            calls=_calls(events),
        ),
    )
    await asyncio.to_thread(_write, case, Path(file))
    return case


def _replies(events: list[PastEvent]) -> list[tuple[datetime, CaseReply]]:
    """Return the replies of a model and their times, without failed attempts."""
    return [
        (
            event.at,
            CaseReply(
                text=str(event.data.get("text") or ""),
                calls=[
                    CaseCall(name=str(call.get("name")), arguments=_read(call.get("arguments")))
                    for call in _objects(event.data.get("toolCalls"))
                ],
                finish_reason=str(event.data.get("finishReason") or ""),
            ),
        )
        for event in events
        if event.type == "modelReply" and "error" not in event.data
    ]


def _calls(events: list[PastEvent]) -> list[CaseCall]:
    """Return the calls in order; a call that asked and was answered appears again."""
    made = {event.data["callId"]: event.data for event in events if event.type == "toolCall"}
    ended = {event.data["callId"]: event.data for event in events if event.type == "toolResult"}
    return [
        CaseCall(
            name=str(call["name"]),
            arguments=_read(call.get("arguments")),
            outcome=str(ended.get(call_id, {}).get("outcome", "")),
            result=str(ended.get(call_id, {}).get("result", "")),
        )
        for call_id, call in made.items()
    ]


async def _inline(client: Client, event: PastEvent) -> Parts:
    """Return the parts of a message, with the contents of stored files."""
    message = ParseDict(event.data["message"], pb.Message(), ignore_unknown_fields=True)  # pyright: ignore[reportArgumentType] -- it is an object
    parts: Parts = []
    for proto in message.parts:
        part = Part.of(proto)
        if part.url is not None:
            raw = await client.read(part)
            part = Part(raw=raw, media_type=part.media_type, filename=part.filename)
        parts.append(MessageToDict(part.to_proto()))
    return parts


def _parts(parts: Parts) -> list[Part]:
    try:
        return [Part.of(ParseDict(part, pb.Part())) for part in parts]
    except ParseError as error:
        raise CaseError(f"a message of the case has a part that A2A does not know: {error}") from None


def _objects(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _call(call: CaseCall) -> Call:
    is_object = isinstance(call.arguments, dict)
    return Call(call.name, call.arguments if is_object else str(call.arguments))  # pyright: ignore[reportArgumentType] -- an object, or a text


def _read(arguments: JsonValue) -> JsonValue:
    """Return the JSON object in a text, or the text."""
    try:
        value = _JSON.validate_json(arguments) if isinstance(arguments, str) else arguments
    except ValidationError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _write(case: Case, file: Path) -> None:
    text = case.model_dump_json(indent=1, exclude_defaults=True)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise CaseError(f"{file} cannot be written: {error.strerror}") from None

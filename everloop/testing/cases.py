"""Finished tasks as test cases: what was said to the agent, what its models replied, how it ended.

A case is a file of JSON. It is played by an agent whose models are a script of those replies, and what
that comes to is compared. `evaluation` is left to those who judge many cases: it is kept, and not looked at.
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
from everloop.client.extension.past import PastEvent
from everloop.local.demo_model.completion import Call, Reply
from everloop.testing.app import App
from everloop.testing.errors import CaseError
from everloop.testing.model import Script
from everloop.testing.recording import differences

FORMAT: Literal["everloop-case/1"] = "everloop-case/1"

Parts = list[dict[str, JsonValue]]
"""Of a message, as A2A has them in JSON."""

_JSON = TypeAdapter[JsonValue](JsonValue)


class CaseCall(BaseModel):
    """A tool call that the model made. `arguments` are the text that it wrote, or the JSON that this is."""

    name: str
    arguments: JsonValue = {}
    outcome: str = ""
    result: str = ""


class CaseReply(BaseModel):
    """What a model replied."""

    text: str = ""
    calls: list[CaseCall] = []
    finish_reason: str = ""


class Expected(BaseModel):
    """What the task came to."""

    state: str
    reason: str = ""
    text: str = ""
    data: JsonValue = None
    calls: list[CaseCall] = []


class Case(BaseModel):
    """A task that can be played again. `messages`: the first one began it, the others answered it."""

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
            CaseError: it is none.
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
        """Return a model that replies as the models did; tools that the agent no longer has fail as such."""
        replies = [
            Reply(reply.text, tuple(map(_call, reply.calls)), finish_reason=reply.finish_reason)
            for reply in self.replies
        ]
        return Script(*replies, check_tools=False)

    async def ask(self, app: App[Output]) -> Result[Output]:
        """Say to the agent what was said, each answer when it asks, and return what came of it.

        Secrets are in no file: the tool that asks for one gets a text that says so.

        Raises:
            CaseError: the task ended before all was said.
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
        """Compare what came of it: state, answer, data, and tool calls with arguments and outcomes.

        Raises:
            CaseError: they differ, which is an AssertionError as well; the message says where.
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
        wanted = self.expected.model_copy(update={"calls": without_results, "data": data})
        found = list(differences(wanted.model_dump(), told.model_dump(), words=("expected", "got")))
        if found:
            raise CaseError(f"the task came to something else: {'; '.join(found)}")


def _as_model(data: JsonValue, model: type[object]) -> JsonValue:
    """Return data as it is when it has been a pydantic model, whose defaults are in it then."""
    if issubclass(model, BaseModel):
        with suppress(ValidationError):
            return to_jsonable_python(model.model_validate_json(to_json(data)))
    return data


async def export(client: Client, task_id: str, file: str | Path) -> Case:
    """Write a finished task of a gateway, with those of its sub-agents, as a test case; also return it.

    What summed up or narrated is not in it.

    Raises:
        CaseError: the task has not ended, or the file cannot be written.
        ClientError: there is no such task, or the server is no Everloop.
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
    """Return what a model replied, and when; attempts that failed are none."""
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
    """Return the calls in the order in which they were made; one that was answered was made again."""
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
    """Return the parts of a message, with the contents of files that are kept elsewhere."""
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
    """Return the JSON that a text is, if it is that of an object."""
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

"""What an Everloop serves beside A2A (docs/protocol/extension.md): how it is asked for, and the answers."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, TypeVar, cast
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from everloop.client.connection import PAGE, Connection
from everloop.client.errors import ExtensionMissingError, NotFoundError, ServerError
from everloop.client.events import arguments_of

_FIRST_LOOK = 0.1
_LONGEST_LOOK = 2.0
"""Seconds between two looks at what takes time."""


class Answer(BaseModel):
    """Something that an Everloop tells beside A2A. Fields that are not known here are kept as they came."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True)


class Approval(Answer):
    """A question of somebody's task that asks the caller, who has its scope (`Client.decide`)."""

    task_id: str
    question_id: str
    agent: str = ""
    tool: str = ""
    arguments: JsonValue = None
    text: str = ""
    scope: str = ""
    asked_at: datetime | None = None
    age_seconds: int = 0

    _arguments = field_validator("arguments", mode="before")(arguments_of)


class Decision(Answer):
    """What somebody said in the owner's place."""

    task_id: str
    question: str
    approved: bool
    by: str
    at: datetime | None = None
    scope: str = ""


_Answer = TypeVar("_Answer", bound=Answer)


class ExtensionCalls:
    """The part of `Client` that takes an Everloop: everything raises ExtensionMissingError elsewhere."""

    _connection: Connection

    async def approvals(self) -> AsyncGenerator[Approval]:
        """Yield the open questions for the caller's scopes, of all owners, the oldest first.

        Raises:
            ForbiddenError: the caller has no scope that approves.
        """
        async with aclosing(self._listed("/approvals", "approvals", Approval)) as approvals:
            async for each in approvals:
                yield each

    async def decide(
        self, task_id: str, question_id: str, *, approved: bool = True, note: str = ""
    ) -> Decision:
        """Answer a question of somebody's task in its owner's place; saying the same again is no error.

        Args:
            task_id: As `Approval` has it.
            question_id: As `Approval` has it.
            approved: Whether the call may run.
            note: The model reads that of a no; at most 2,000 characters.

        Raises:
            NotFoundError: no such question waits for the caller.
            InvalidError: somebody else has answered it (status 409).
        """
        path = f"/approvals/{_segment(task_id)}/{_segment(question_id)}"
        body: JsonValue = {"approved": approved, "note": note}
        return _read(Decision, await self._asked("POST", path, body))

    async def _asked(
        self, method: str, path: str, body: JsonValue = None, **query: str | int | None
    ) -> dict[str, Any]:
        """Return the JSON that an address of the extension answers.

        Raises:
            ExtensionMissingError: the server has no such address.
        """
        url = await self._connection.extension(path)
        try:
            answer = await self._connection.ask(method, url, body, **query)
        except NotFoundError as error:
            if error.reason == "ADDRESS_UNKNOWN":
                raise ExtensionMissingError(
                    f"this Everloop has no {method} {path}, which the call takes; it is older than the client"
                ) from None
            raise
        if not isinstance(answer, dict):
            raise ServerError(f"what {url} answers is not what was expected")
        return cast("dict[str, Any]", answer)

    async def _listed(
        self, path: str, name: str, kind: type[_Answer], **query: str | int | None
    ) -> AsyncGenerator[_Answer]:
        token = ""
        while True:
            page = await self._asked("GET", path, pageSize=PAGE, pageToken=token, **query)
            for each in page.get(name, []):
                yield _read(kind, each)
            token = page.get("nextPageToken", "")
            if not token:
                return


def _read(kind: type[_Answer], answer: Mapping[str, Any]) -> _Answer:
    try:
        return kind.model_validate(answer)
    except ValidationError as error:
        flaw = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, flaw["loc"]))
        raise ServerError(f"the server's {kind.__name__} cannot be read: {place}: {flaw['msg']}") from None


def _segment(name: str) -> str:
    return quote(name, safe="")

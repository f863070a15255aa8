"""What a tool may know and do besides its arguments."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from pydantic import JsonValue

from everloop.agents.hooks import ANYBODY
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.messages import Part
from everloop.workflows.contract.questions import Answer
from everloop.workflows.contract.tasks import Identity

# What a tool does with artifacts.

Content = str | bytes | Iterable[str] | Iterable[bytes] | AsyncIterable[str] | AsyncIterable[bytes]
"""A text, bytes, or pieces of either, which are taken one by one."""

Row = Mapping[str, JsonValue]


class FileWriter(ABC):
    """A file artifact that is being written."""

    @abstractmethod
    async def write(self, chunk: str | bytes) -> None:
        """Append to the file. What is written within 25 ms (once it is large: a second) goes out together."""


class ToolArtifacts(ABC):
    """The artifacts of the context that a tool call works in; subscribers of its task see what it writes.

    Writing under an id that is taken replaces that artifact, so that a call that runs again does no harm.
    While a store is away, writes wait for it. Everything raises `ArtifactError` (named in
    `everloop.stores.artifacts.errors`) where it is refused, and `ValueError` for an unusable id.
    """

    @abstractmethod
    async def write_file(  # noqa: PLR0913 -- what a file is called, each by its name
        self,
        artifact_id: str,
        content: Content,
        *,
        media_type: str = "",
        filename: str = "",
        name: str = "",
        description: str = "",
    ) -> StoredArtifact:
        """Write a file of any size in constant memory.

        `media_type`: by default text/plain for str, application/octet-stream for bytes.
        """

    @abstractmethod
    def open_file(
        self,
        artifact_id: str,
        *,
        media_type: str = "",
        filename: str = "",
        name: str = "",
        description: str = "",
    ) -> AbstractAsyncContextManager[FileWriter]:
        """Write a file piece by piece; it is complete at the end of the block, failed if that raises."""

    @abstractmethod
    async def write_data(
        self, artifact_id: str, value: JsonValue, *, name: str = "", description: str = ""
    ) -> StoredArtifact:
        """Write a JSON value."""

    @abstractmethod
    async def write_rows(
        self,
        artifact_id: str,
        rows: Iterable[Row] | AsyncIterable[Row],
        *,
        schema: Mapping[str, JsonValue] | None = None,
        name: str = "",
        description: str = "",
    ) -> StoredArtifact:
        """Write a dataset of any size in constant memory. `schema` is the JSON schema of a row."""

    @abstractmethod
    async def create(  # noqa: PLR0913 -- what an artifact is made of, each by its name
        self,
        artifact_id: str,
        parts: Sequence[Part],
        *,
        name: str = "",
        description: str = "",
        complete: bool = True,
        override: bool = True,
    ) -> StoredArtifact:
        """Make an artifact of several parts; one that is not complete takes more."""

    @abstractmethod
    async def append(
        self, artifact_id: str, parts: Sequence[Part], *, last_chunk: bool = False
    ) -> StoredArtifact:
        """Append as A2A does: a text continues a last part that is text; all else is a part of its own."""

    @abstractmethod
    async def replace_part(self, artifact_id: str, index: int, part: Part) -> StoredArtifact:
        """Put a part in the place of another."""

    @abstractmethod
    async def complete(self, artifact_id: str) -> StoredArtifact:
        """Say that an artifact is whole."""

    @abstractmethod
    def read(self, artifact_id: str, index: int = 0) -> AsyncIterator[bytes]:
        """Yield the content of a part in pieces of at most a few MiB."""

    @abstractmethod
    def read_rows(self, artifact_id: str, index: int = 0) -> AsyncIterator[dict[str, JsonValue]]:
        """Yield the rows of a dataset."""

    @abstractmethod
    async def get(self, artifact_id: str) -> StoredArtifact:
        """Return what is known of an artifact."""

    @abstractmethod
    async def list(self) -> Sequence[StoredArtifact]:
        """Return all artifacts of the context, oldest first, also those that clients sent along."""

    @abstractmethod
    async def delete(self, artifact_id: str) -> None:
        """Remove an artifact."""

    @abstractmethod
    async def show(self, artifact_id: str, index: int = 0) -> None:
        """As `ToolContext.show`."""


async def _no_secret(_name: str) -> JsonValue:
    return None


async def _forget(_value: JsonValue) -> None:
    return None


def _yes() -> bool:
    return True


@dataclass(frozen=True)
class ToolContext:
    """The context of one tool call."""

    task_id: str
    context_id: str
    owner: str
    call_id: str
    attempt: int
    """Counts from 1."""
    idempotency_key: str
    """The same for every attempt of the same call: hand it to services that accept one."""
    progress: Callable[[str], Awaitable[None]]
    """Lets subscribers know how far the call is, in a few words."""
    artifacts: ToolArtifacts
    """Those of the context: read them, and write what the task is to leave behind."""
    auth: Identity = ANYBODY
    """Who started the task, as the gateway authenticated them: nothing secret."""
    answers: tuple[Answer, ...] = ()
    """What the tool's own questions came to, oldest first."""
    secret: Callable[[str], Awaitable[JsonValue]] = _no_secret
    """Returns what a client supplied for an `AuthRequired` of that name, None if there is nothing yet; it
    raises if their store is silent for 20 s."""
    kept: JsonValue = None
    """What an earlier attempt has kept; None before."""
    keep: Callable[[JsonValue], Awaitable[None]] = _forget
    """Lets a later attempt of this call, or the same call after a question, know what an attempt has come to
    so far (a job's id, a position)."""
    is_wanted: Callable[[], bool] = _yes
    """For an attempt that Temporal took for lost and that is stopped after all: False if the call has ended
    for good, so that no other attempt goes on with it."""

    async def show(self, artifact_id: str, index: int = 0) -> None:
        """Let the model look at a part of an artifact, with the result of the call; 20 at most.

        It gets what it would get of a file of the client: the file itself, a text, or a line about it.

        Raises:
            ArtifactError: there is none such.
            ValueError: these are too many.
        """
        await self.artifacts.show(artifact_id, index)

    @property
    def answer(self) -> JsonValue:
        """The value of the last answer; None if the tool has not asked yet."""
        return self.answers[-1].value if self.answers else None

"""Context of a tool call: its data and operations besides the arguments."""

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

# Artifacts of a tool.

Content = str | bytes | Iterable[str] | Iterable[bytes] | AsyncIterable[str] | AsyncIterable[bytes]
"""A text, bytes, or pieces of either, which are read one by one."""

Row = Mapping[str, JsonValue]


class FileWriter(ABC):
    """A file artifact that is being written."""

    @abstractmethod
    async def write(self, chunk: str | bytes) -> None:
        """Append to the file. Data written within 25 ms (in a large file: a second) are sent together."""


class ToolArtifacts(ABC):
    """The artifacts in the context of a tool call; subscribers of its task see changes.

    Writing under an existing id replaces that artifact, so that a call that runs again does no harm. If
    a store is unavailable, writes wait for it. All methods raise `ArtifactError` (named in
    `everloop.stores.artifacts.artifact_errors`) if the store rejects the change, and `ValueError` for an
    unusable id.
    """

    @abstractmethod
    async def write_file(  # noqa: PLR0913 -- fields of a file, each by its name
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
    async def create(  # noqa: PLR0913 -- fields of an artifact, each by its name
        self,
        artifact_id: str,
        parts: Sequence[Part],
        *,
        name: str = "",
        description: str = "",
        complete: bool = True,
        override: bool = True,
    ) -> StoredArtifact:
        """Create an artifact of several parts; one that is not complete accepts more."""

    @abstractmethod
    async def append(
        self, artifact_id: str, parts: Sequence[Part], *, last_chunk: bool = False
    ) -> StoredArtifact:
        """Append as A2A does: a text continues a last part that is text; all else is a part of its own."""

    @abstractmethod
    async def replace_part(self, artifact_id: str, index: int, part: Part) -> StoredArtifact:
        """Replace a part."""

    @abstractmethod
    async def complete(self, artifact_id: str) -> StoredArtifact:
        """Mark an artifact as complete."""

    @abstractmethod
    def read(self, artifact_id: str, index: int = 0) -> AsyncIterator[bytes]:
        """Yield the content of a part in pieces of at most a few MiB."""

    @abstractmethod
    def read_rows(self, artifact_id: str, index: int = 0) -> AsyncIterator[dict[str, JsonValue]]:
        """Yield the rows of a dataset."""

    @abstractmethod
    async def get(self, artifact_id: str) -> StoredArtifact:
        """Return an artifact without its content."""

    @abstractmethod
    async def list(self) -> Sequence[StoredArtifact]:
        """Return all artifacts of the context, oldest first, also files of clients."""

    @abstractmethod
    async def delete(self, artifact_id: str) -> None:
        """Remove an artifact."""

    @abstractmethod
    async def show(self, artifact_id: str, index: int = 0) -> None:
        """Show a part to the model, as `ToolContext.show` does."""


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
    """The same for every attempt of the same call: pass it to services that accept one."""
    progress: Callable[[str], Awaitable[None]]
    """Reports progress to subscribers, in a few words."""
    artifacts: ToolArtifacts
    """Artifacts of the context: read them, and write the results of the task."""
    auth: Identity = ANYBODY
    """Who started the task, as authenticated by the gateway: nothing secret."""
    answers: tuple[Answer, ...] = ()
    """Answers to the tool's own questions, oldest first."""
    secret: Callable[[str], Awaitable[JsonValue]] = _no_secret
    """Returns the secret that a client supplied for an `AuthRequired` of that name, None before; it raises
    if the store does not respond for 20 s."""
    kept: JsonValue = None
    """Data that an earlier attempt stored; None before."""
    keep: Callable[[JsonValue], Awaitable[None]] = _forget
    """Stores progress data (a job's id, a position) for a later attempt of this call, or for the same call
    after a question."""
    is_wanted: Callable[[], bool] = _yes
    """For an attempt that Temporal considered lost and that is stopped later: False if the call has ended
    for good, so that no other attempt continues it."""

    async def show(self, artifact_id: str, index: int = 0) -> None:
        """Show a part of an artifact to the model, with the result of the call; 20 at most.

        It gets the same as for a file of the client: the file itself, a text, or a line about it.

        Raises:
            ArtifactError: the artifact does not exist.
            ValueError: these are too many.
        """
        await self.artifacts.show(artifact_id, index)

    @property
    def answer(self) -> JsonValue:
        """The value of the last answer; None before the first one."""
        return self.answers[-1].value if self.answers else None

"""What a tool does with artifacts."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from pydantic import JsonValue

from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.messages import Part

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
    `everloop.stores.artifacts`) where it is refused, and `ValueError` for an unusable id.
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

"""Artifacts by what they hold: files, data and datasets."""

import json
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, cast

from pydantic import JsonValue

from everloop.stores.artifacts.changes import (
    Announcement,
    Append,
    Change,
    Create,
    NewPart,
    Replace,
    decode_rows,
    encode_rows,
)
from everloop.stores.artifacts.errors import ArtifactKindError
from everloop.stores.artifacts.rules import part_of
from everloop.workflows.contract.artifacts import ArtifactPart, PartKind, StoredArtifact

Encoding = Literal["utf-8", "base64"]
"""What a file's chunks of type str are: its text, or its bytes in base64."""

DATA_TYPE = "application/json"
ROWS_TYPE = "application/x-ndjson"

Row = Mapping[str, JsonValue]


class TypedArtifacts(ABC):
    """What files, data and datasets can do; all of it is made of `apply` and `read_part`.

    Each method that changes an artifact takes an `operation_id` and raises what `apply` does.
    """

    @abstractmethod
    async def apply(
        self,
        context_id: str,
        artifact_id: str,
        change: Change,
        *,
        operation_id: str = "",
        announcement: Announcement | None = None,
    ) -> StoredArtifact:
        """Change an artifact and return it as it is then. The methods below are made of this one.

        An operation whose `operation_id` the artifact has seen changes nothing and announces nothing.

        Raises:
            ArtifactError: see there.
            BlobError, RedisError: a store is away or has lost something. Whether the artifact has changed is
                not known; the same `operation_id` makes it safe to try again.
        """

    @abstractmethod
    async def get_artifact(self, context_id: str, artifact_id: str) -> StoredArtifact:
        """Return an artifact without its content.

        Raises:
            ArtifactMissingError: there is none.
        """

    @abstractmethod
    def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the content of a part from byte `start` to `end` (exclusive; None: what is there now).

        Pieces have at most a few MiB. Each was checked before it is yielded: what blobs hold against its
        sha256, what is kept inline against its CRC-32.

        Raises:
            ArtifactMissingError: there is no such artifact.
            PartIndexError: it has no such part.
            ArtifactReplacedError: it was replaced after a piece of it was yielded.
            BlobMissingError, BlobCorruptError: the content is lost.
        """

    async def create_file_artifact(  # noqa: PLR0913 -- what a file is called, each by its name
        self,
        context_id: str,
        artifact_id: str,
        content: str | bytes = b"",
        *,
        task_id: str,
        mime_type: str = "",
        encoding: Encoding = "utf-8",
        filename: str = "",
        name: str = "",
        description: str = "",
        override: bool = False,
        operation_id: str = "",
    ) -> StoredArtifact:
        """Make an artifact of one file; `encoding` says what str means here and in `append_file_chunk`."""
        kind: PartKind = "text" if encoding == "utf-8" else "file"
        part = NewPart(kind, _file_bytes(artifact_id, kind, content), mime_type, filename)
        create = Create(task_id, (part,), name, description, override=override)
        return await self.apply(context_id, artifact_id, create, operation_id=operation_id)

    async def append_file_chunk(  # noqa: PLR0913 -- the chunk, where it goes, and what it is called
        self,
        context_id: str,
        artifact_id: str,
        chunk: str | bytes,
        is_last_chunk: bool = False,  # noqa: FBT001, FBT002 -- the issue names the order of these
        *,
        index: int = -1,
        chunk_index: int | None = None,
        operation_id: str = "",
    ) -> StoredArtifact:
        """Append to a file (-1: the last part); bytes are taken as they are."""
        if isinstance(chunk, str):
            artifact = await self.get_artifact(context_id, artifact_id)
            part = part_of(artifact, len(artifact.parts) - 1 if index == -1 else index)
            chunk = _file_bytes(artifact_id, part.kind, chunk)
        append = Append(chunk, index, last_chunk=is_last_chunk, chunk_index=chunk_index)
        return await self.apply(context_id, artifact_id, append, operation_id=operation_id)

    async def get_file_content(self, context_id: str, artifact_id: str, *, index: int = 0) -> bytes:
        """Return all of a file; large ones are better read with `read_part`."""
        await self._part(context_id, artifact_id, index, {"text", "file"})
        return await self._content(context_id, artifact_id, index)

    async def create_data_artifact(  # noqa: PLR0913 -- what data are called, each by its name
        self,
        context_id: str,
        artifact_id: str,
        value: JsonValue = None,
        *,
        task_id: str,
        name: str = "",
        description: str = "",
        override: bool = False,
        operation_id: str = "",
    ) -> StoredArtifact:
        """Make an artifact of one JSON value."""
        create = Create(task_id, (_data(artifact_id, value),), name, description, override=override)
        return await self.apply(context_id, artifact_id, create, operation_id=operation_id)

    async def write_data(
        self, context_id: str, artifact_id: str, value: JsonValue, *, index: int = 0, operation_id: str = ""
    ) -> StoredArtifact:
        """Put a JSON value in the place of another; readers see the one or the other."""
        replace = Replace(index, _data(artifact_id, value), replaces="data")
        return await self.apply(context_id, artifact_id, replace, operation_id=operation_id)

    async def get_data_content(self, context_id: str, artifact_id: str, *, index: int = 0) -> JsonValue:
        """Return a JSON value."""
        await self._part(context_id, artifact_id, index, {"data"})
        return cast("JsonValue", json.loads(await self._content(context_id, artifact_id, index)))

    async def create_dataset_artifact(  # noqa: PLR0913 -- what a dataset is called, each by its name
        self,
        context_id: str,
        artifact_id: str,
        rows: Sequence[Row] = (),
        *,
        task_id: str,
        schema: Row | None = None,
        name: str = "",
        description: str = "",
        override: bool = False,
        operation_id: str = "",
    ) -> StoredArtifact:
        """Make an artifact of rows; each has to fit `schema`, a JSON schema (2020-12), if that is given."""
        part = NewPart("rows", encode_rows(rows), ROWS_TYPE, row_schema=schema)
        create = Create(task_id, (part,), name, description, override=override)
        return await self.apply(context_id, artifact_id, create, operation_id=operation_id)

    async def append_dataset_batch(  # noqa: PLR0913 -- the rows, where they go, and what they are called
        self,
        context_id: str,
        artifact_id: str,
        rows: Sequence[Row],
        is_last_batch: bool = False,  # noqa: FBT001, FBT002 -- the issue names the order of these
        *,
        index: int = -1,
        chunk_index: int | None = None,
        operation_id: str = "",
    ) -> StoredArtifact:
        """Append rows to a dataset: all of them, or none if one does not fit its schema."""
        content = encode_rows(rows)
        append = Append(content, index, len(rows), last_chunk=is_last_batch, chunk_index=chunk_index)
        return await self.apply(context_id, artifact_id, append, operation_id=operation_id)

    async def get_dataset_rows(
        self, context_id: str, artifact_id: str, *, index: int = 0, start: int = 0, limit: int | None = None
    ) -> AsyncIterator[dict[str, JsonValue]]:
        """Yield the rows of a dataset from row `start` on, at most `limit` of them (None: all)."""
        await self._part(context_id, artifact_id, index, {"rows"})
        end = None if limit is None else start + limit
        number = 0
        async for row in decode_rows(self.read_part(context_id, artifact_id, index)):
            if number == end:
                return
            if number >= start:
                yield row
            number += 1

    async def replace_part(
        self, context_id: str, artifact_id: str, index: int, part: NewPart, *, operation_id: str = ""
    ) -> StoredArtifact:
        """Put a part in the place of another."""
        return await self.apply(context_id, artifact_id, Replace(index, part), operation_id=operation_id)

    async def _part(
        self, context_id: str, artifact_id: str, index: int, kinds: set[PartKind]
    ) -> ArtifactPart:
        part = part_of(await self.get_artifact(context_id, artifact_id), index)
        if part.kind not in kinds:
            reason = f"this reads parts of kind {' or '.join(sorted(kinds))}"
            raise ArtifactKindError(artifact_id, index, part.kind, reason)
        return part

    async def _content(self, context_id: str, artifact_id: str, index: int) -> bytes:
        return b"".join([piece async for piece in self.read_part(context_id, artifact_id, index)])


def _data(artifact_id: str, value: JsonValue) -> NewPart:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return NewPart("data", text.encode(), DATA_TYPE)
    except (TypeError, ValueError) as error:
        raise ArtifactKindError(artifact_id, 0, "data", "its content is no JSON") from error


def _file_bytes(artifact_id: str, kind: PartKind, content: str | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return b64decode(content, validate=True) if kind == "file" else content.encode()
    except ValueError as error:
        expected = "base64" if kind == "file" else "text that UTF-8 can hold"
        raise ArtifactKindError(artifact_id, 0, kind, f"expected {expected}") from error

"""What tools write to artifacts, without the secrets that they have read."""

import builtins
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

from pydantic import JsonValue

from everloop.activities.tools.artifact_writer import chunks_of
from everloop.activities.tools.secrets import SecretReader
from everloop.agents.tool_context import Content, FileWriter, Row, ToolArtifacts
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.messages import DataPart, Part, TextPart


class HiddenArtifacts(ToolArtifacts):
    """Blacks secrets out of texts, JSON and rows that a tool writes, as out of its result.

    Bytes are written as they are; a secret that is cut in two chunks is not found.
    """

    def __init__(self, inner: ToolArtifacts, secrets: SecretReader) -> None:
        self._inner = inner
        self._secrets = secrets

    async def write_file(  # noqa: PLR0913 -- the interface's
        self,
        artifact_id: str,
        content: Content,
        *,
        media_type: str = "",
        filename: str = "",
        name: str = "",
        description: str = "",
    ) -> StoredArtifact:
        hide = self._secrets.hide
        return await self._inner.write_file(
            artifact_id,
            self._hidden(content),
            media_type=media_type,
            filename=hide(filename),
            name=hide(name),
            description=hide(description),
        )

    @asynccontextmanager
    async def open_file(
        self,
        artifact_id: str,
        *,
        media_type: str = "",
        filename: str = "",
        name: str = "",
        description: str = "",
    ) -> AsyncGenerator[FileWriter]:
        hide = self._secrets.hide
        opened = self._inner.open_file(
            artifact_id,
            media_type=media_type,
            filename=hide(filename),
            name=hide(name),
            description=hide(description),
        )
        async with opened as file:
            yield _HiddenFile(file, self._secrets)

    async def write_data(
        self, artifact_id: str, value: JsonValue, *, name: str = "", description: str = ""
    ) -> StoredArtifact:
        hide = self._secrets.hide
        hidden = self._secrets.hide_json(value)
        return await self._inner.write_data(
            artifact_id, hidden, name=hide(name), description=hide(description)
        )

    async def write_rows(
        self,
        artifact_id: str,
        rows: Iterable[Row] | AsyncIterable[Row],
        *,
        schema: Mapping[str, JsonValue] | None = None,
        name: str = "",
        description: str = "",
    ) -> StoredArtifact:
        hide = self._secrets.hide
        return await self._inner.write_rows(
            artifact_id, self._rows(rows), schema=schema, name=hide(name), description=hide(description)
        )

    async def create(  # noqa: PLR0913 -- the interface's
        self,
        artifact_id: str,
        parts: Sequence[Part],
        *,
        name: str = "",
        description: str = "",
        complete: bool = True,
        override: bool = True,
    ) -> StoredArtifact:
        hide = self._secrets.hide
        return await self._inner.create(
            artifact_id,
            self._parts(parts),
            name=hide(name),
            description=hide(description),
            complete=complete,
            override=override,
        )

    async def append(
        self, artifact_id: str, parts: Sequence[Part], *, last_chunk: bool = False
    ) -> StoredArtifact:
        return await self._inner.append(artifact_id, self._parts(parts), last_chunk=last_chunk)

    async def replace_part(self, artifact_id: str, index: int, part: Part) -> StoredArtifact:
        return await self._inner.replace_part(artifact_id, index, self._part(part))

    async def complete(self, artifact_id: str) -> StoredArtifact:
        return await self._inner.complete(artifact_id)

    def read(self, artifact_id: str, index: int = 0) -> AsyncIterator[bytes]:
        return self._inner.read(artifact_id, index)

    def read_rows(self, artifact_id: str, index: int = 0) -> AsyncIterator[dict[str, JsonValue]]:
        return self._inner.read_rows(artifact_id, index)

    async def get(self, artifact_id: str) -> StoredArtifact:
        return await self._inner.get(artifact_id)

    async def list(self) -> Sequence[StoredArtifact]:
        return await self._inner.list()

    async def delete(self, artifact_id: str) -> None:
        await self._inner.delete(artifact_id)

    def _parts(self, parts: Sequence[Part]) -> builtins.list[Part]:
        return [self._part(part) for part in parts]

    def _part(self, part: Part) -> Part:
        hidden: dict[str, JsonValue] = {"filename": self._secrets.hide(part.filename)}
        if isinstance(part, TextPart):
            hidden["text"] = self._secrets.hide(part.text)
        elif isinstance(part, DataPart):
            hidden["data"] = self._secrets.hide_json(part.data)
        return part.model_copy(update=hidden)

    def _hidden(self, content: Content) -> Content:
        """Return content that is read as before: what is there already stays whole."""
        if isinstance(content, bytes):
            return content
        if isinstance(content, str):
            return self._secrets.hide(content)
        # What a stream yields is one or the other, which its type tells apart and ours cannot.
        return cast("Content", self._chunks(content))

    async def _chunks(self, content: Content) -> AsyncIterator[str | bytes]:
        async for chunk in chunks_of(content):
            yield self._secrets.hide(chunk) if isinstance(chunk, str) else chunk

    def _rows(self, rows: Iterable[Row] | AsyncIterable[Row]) -> Iterable[Row] | AsyncIterable[Row]:
        if isinstance(rows, AsyncIterable):
            return self._rows_to_come(rows)
        hidden = map(self._row, rows)
        return builtins.list(hidden) if isinstance(rows, Sequence) else hidden

    async def _rows_to_come(self, rows: AsyncIterable[Row]) -> AsyncIterator[Row]:
        async for row in rows:
            yield self._row(row)

    def _row(self, row: Row) -> Row:
        return cast("Row", self._secrets.hide_json(dict(row)))


class _HiddenFile(FileWriter):
    def __init__(self, inner: FileWriter, secrets: SecretReader) -> None:
        self._inner = inner
        self._secrets = secrets

    async def write(self, chunk: str | bytes) -> None:
        await self._inner.write(self._secrets.hide(chunk) if isinstance(chunk, str) else chunk)

"""Operations of tools on artifacts, in the store of this process."""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from secrets import token_hex
from typing import cast

from pydantic import JsonValue

from everloop.activities.store_retries import artifact_retries, retry_artifacts, suppress_store_errors
from everloop.activities.tools.artifact_writer import Batches, PieceWriter, anybody, items_of, new_part
from everloop.activities.tools.secret_reader import SecretReader
from everloop.agents.tool import Tool
from everloop.agents.tool_context import Content, FileWriter, Row, ToolArtifacts
from everloop.stores.artifacts.artifact_errors import ArtifactReplacedError
from everloop.stores.artifacts.changes import (
    AddParts,
    Append,
    Change,
    Complete,
    Create,
    NewPart,
    Replace,
    decode_rows,
    encode_rows,
)
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.artifacts.rendering import MEDIA_TYPES, is_text
from everloop.stores.artifacts.rules import part_of
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.events import RESPONSE_ARTIFACT
from everloop.workflows.contract.messages import (
    DataPart,
    FilePart,
    Part,
    StoredPartRef,
    TextPart,
    ToolMessage,
    is_plain,
)
from everloop.workflows.contract.names import RESULT_PREFIX, call_key, context_key

_Edition = tuple[datetime, datetime | None]
"""Identifies the content of a part: the creation of the artifact, and the last replacement of the part."""


MOST_SHOWN = 20
"""Limit of the files that one call shows the model."""


@dataclass(eq=False)
class TaskArtifacts(ToolArtifacts):
    """The artifacts of a context, for one attempt at a tool call of the task.

    `call_id` is set for a tool that makes one change to one artifact, and nothing else: repeated under the
    same id, the change has no effect. `attempt` is the prefix of ids of `everloop.stores.artifacts.changes`:
    changes of an attempt that was considered lost are refused after those of a later one. `check` raises if
    the attempt was overtaken.

    `secrets` are masked in texts, JSON and rows that the tool writes, as in its result. Bytes are written
    unchanged; a secret that is split between two chunks is not found.
    """

    artifacts: ArtifactPublisher
    context_id: str
    task_id: str
    _: KW_ONLY
    call_id: str = ""
    attempt: str = ""
    check: Callable[[], Awaitable[None]] = anybody
    secrets: SecretReader | None = None

    def __post_init__(self) -> None:
        self.written: dict[str, int] = {}
        """The written artifacts with their versions, in the order of their first write, without failed ones.
        """
        self.shown: dict[tuple[str, int], FilePart] = {}
        """Files to show the model."""
        self.was_read = False
        """True if the call has read from existing artifacts, or deleted one."""

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
        writer = self._writer(artifact_id, NewPart("file", b"", media_type, filename), name, description)
        is_complete = isinstance(content, str | bytes)
        async with Batches(writer, self._hide, is_complete=is_complete) as file:
            async for chunk in items_of([content] if isinstance(content, str | bytes) else content):
                await file.write(chunk)
        return file.artifact

    @classmethod
    def of_call(
        cls,
        publisher: ArtifactPublisher,
        tool: Tool,
        call: RunToolInput,
        check: Callable[[], Awaitable[None]],
        secrets: SecretReader,
    ) -> "TaskArtifacts":
        """Return the artifacts for one attempt at a call, with the attempt's `check`.

        Its `attempt` is set once the call is claimed.
        """
        key = idempotency_key(call)
        return cls(
            publisher,
            context_key(call.task.owner, call.task.context_id),
            call.task.task_id,
            # A tool whose arguments determine the content makes one change. The changes of other tools under
            # one key may differ from attempt to attempt.
            call_id=key if tool.draft_of else "",
            check=check,
            secrets=secrets,
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
        writer = self._writer(artifact_id, NewPart("file", b"", media_type, filename), name, description)
        async with Batches(writer, self._hide) as file:
            yield file

    async def write_data(
        self, artifact_id: str, value: JsonValue, *, name: str = "", description: str = ""
    ) -> StoredArtifact:
        return await self.create(artifact_id, (DataPart(data=value),), name=name, description=description)

    async def write_rows(
        self,
        artifact_id: str,
        rows: Iterable[Row] | AsyncIterable[Row],
        *,
        schema: Mapping[str, JsonValue] | None = None,
        name: str = "",
        description: str = "",
    ) -> StoredArtifact:
        writer = self._writer(artifact_id, NewPart("rows", row_schema=schema), name, description)
        async with Batches(writer, self._hide, is_complete=isinstance(rows, Sequence)) as batches:
            async for row in items_of(rows):
                await batches.add(encode_rows((cast("Row", self._hide_json(dict(row))),)), rows=1)
        return batches.artifact

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
        written = self._new_parts(parts)
        name, description = self._hide(name), self._hide(description)
        change = Create(self.task_id, written, name, description, complete=complete, override=override)
        return await self._apply(artifact_id, change)

    async def append(
        self, artifact_id: str, parts: Sequence[Part], *, last_chunk: bool = False
    ) -> StoredArtifact:
        written, there = self._new_parts(parts), (await self.get(artifact_id)).parts
        continues = parts and is_plain(parts[0]) and there and is_text(there[-1])
        if not continues:
            return await self._apply(artifact_id, AddParts(written, last_chunk=last_chunk))
        text, *more = written
        longer = Append(text.content, there[-1].index, last_chunk=last_chunk, parts=tuple(more))
        return await self._apply(artifact_id, longer)

    async def replace_part(self, artifact_id: str, index: int, part: Part) -> StoredArtifact:
        return await self._apply(artifact_id, Replace(index, *self._new_parts([part])))

    async def complete(self, artifact_id: str) -> StoredArtifact:
        return await self._apply(artifact_id, Complete())

    async def read(self, artifact_id: str, index: int = 0) -> AsyncGenerator[bytes]:
        edition = _edition(await self.get(artifact_id), index)
        start = 0
        async for attempt in artifact_retries():
            with attempt:
                async for piece in self._read_on(artifact_id, index, start, edition):
                    start += len(piece)
                    yield piece

    async def read_rows(self, artifact_id: str, index: int = 0) -> AsyncGenerator[dict[str, JsonValue]]:
        async for row in decode_rows(self.read(artifact_id, index)):
            yield row

    async def get(self, artifact_id: str) -> StoredArtifact:
        self.was_read = True
        return await retry_artifacts(lambda: self.artifacts.store.get_artifact(self.context_id, artifact_id))

    async def list(self) -> Sequence[StoredArtifact]:
        self.was_read = True
        return await retry_artifacts(lambda: self.artifacts.store.list_artifacts(self.context_id))

    async def delete(self, artifact_id: str) -> None:
        self.was_read = True
        _checked(artifact_id)
        await self.check()
        await retry_artifacts(lambda: self.artifacts.store.delete_artifact(self.context_id, artifact_id))
        self.written.pop(artifact_id, None)

    async def show(self, artifact_id: str, index: int = 0) -> None:
        if len(self.shown) == MOST_SHOWN:
            raise ValueError(
                f"a call shows the model {MOST_SHOWN} files at most; name the others in the result"
            )
        part = part_of(await self.get(_checked(artifact_id)), index)
        self.shown[artifact_id, index] = FilePart(
            media_type=part.media_type or MEDIA_TYPES[part.kind],
            filename=part.filename,
            size=None if part.url else part.size,
            url=part.url,
            stored=None if part.url else StoredPartRef(artifact_id=artifact_id, index=index),
        )

    async def _read_on(
        self, artifact_id: str, index: int, start: int, edition: _Edition
    ) -> AsyncGenerator[bytes]:
        """Read from `start` on in the content of that edition; the store limits one reading."""
        is_checked = start == 0
        async for piece in self.artifacts.store.read_part(self.context_id, artifact_id, index, start=start):
            if not is_checked:
                await self._check_edition(artifact_id, index, edition)
                is_checked = True
            yield piece
        if not is_checked:
            await self._check_edition(artifact_id, index, edition)

    async def _check_edition(self, artifact_id: str, index: int, edition: _Edition) -> None:
        """Raise ArtifactReplacedError if the part no longer has that edition."""
        if _edition(await self.get(artifact_id), index) != edition:
            raise ArtifactReplacedError(artifact_id, index)

    def _writer(self, artifact_id: str, part: NewPart, name: str, description: str) -> PieceWriter:
        part = replace(part, filename=self._hide(part.filename))
        name, description = self._hide(name), self._hide(description)
        create = Create(self.task_id, (part,), name, description, override=True)
        return PieceWriter(
            self.artifacts,
            self.context_id,
            _checked(artifact_id),
            create,
            self.written,
            attempt=self.attempt,
            check=self.check,
        )

    def _hide(self, text: str) -> str:
        return self.secrets.hide(text) if self.secrets else text

    def _hide_json(self, value: JsonValue) -> JsonValue:
        return self.secrets.hide_json(value) if self.secrets else value

    def _new_parts(self, parts: Sequence[Part]) -> tuple[NewPart, ...]:
        """Return parts in the form of the store, with secrets masked."""
        return tuple(new_part(self._hidden(part)) for part in parts)

    def _hidden(self, part: Part) -> Part:
        fields: dict[str, JsonValue] = {"filename": self._hide(part.filename)}
        if isinstance(part, TextPart):
            fields["text"] = self._hide(part.text)
        elif isinstance(part, DataPart):
            fields["data"] = self._hide_json(part.data)
        return part.model_copy(update=fields)

    async def _apply(self, artifact_id: str, change: Change) -> StoredArtifact:
        """Make one change, and repeat it if the answer was lost: the store makes one change per id."""
        operation_id = self.call_id or f"{self.attempt}{token_hex(8)}"
        _checked(artifact_id)
        await self.check()
        artifact = await retry_artifacts(
            lambda: self.artifacts.apply(self.context_id, artifact_id, change, operation_id=operation_id)
        )
        self.written[artifact_id] = artifact.version
        return artifact


def _edition(artifact: StoredArtifact, index: int) -> _Edition:
    """Return a value that changes when the content of a part is replaced, and not when it grows."""
    replaced = [done.at for done in artifact.operations if done.kind == "replace" and done.index == index]
    return artifact.created_at, replaced[-1] if replaced else None


def _checked(artifact_id: str) -> str:
    if artifact_id == RESPONSE_ARTIFACT:
        raise ValueError(f"{RESPONSE_ARTIFACT!r} is the id of the agent's answer; choose another one")
    if artifact_id.startswith(RESULT_PREFIX):
        raise ValueError(f"ids that begin with {RESULT_PREFIX!r} are for long results; choose another one")
    return artifact_id


async def correct_draft(
    publisher: ArtifactPublisher, tool: Tool, call: RunToolInput, reply: ToolReply
) -> None:
    """Publish the stored content in place of the model's draft of a call that has written nothing.

    The call may have failed, or an earlier run of the task has made it, for its own subscribers. This is best
    effort: the end of the task publishes missing content.
    """
    draft = tool.draft_of(call.call.arguments) if tool.draft_of else None
    if not draft or not isinstance(reply, ToolMessage):
        return
    context = context_key(call.task.owner, call.task.context_id)
    with suppress_store_errors("draft not corrected"):
        await publisher.reconcile(context, draft.artifact_id, drafted_at=call.reply_position)


def idempotency_key(call: RunToolInput) -> str:
    """Return an id that is the same for every attempt at a call, and for no other call."""
    return f"{call.task.task_id}/{call_key(call.call)}"

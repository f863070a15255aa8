"""The artifacts that a reply of the model writes, shown while it is written."""

import asyncio
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import structlog
from redis.exceptions import RedisError

from everloop.activities.artifact_stream import ArtifactStream, ShownContent
from everloop.activities.deltas import ArgumentsDelta
from everloop.activities.draft_numbers import DraftNumbers
from everloop.activities.drafted_calls import DraftedReply, drafts_of, is_showable, shown_parts, shown_size
from everloop.activities.stored_contents import StoredContents
from everloop.agents.artifact_drafts import ArtifactDraft, DraftReader
from everloop.runtime.blobs import BlobError
from everloop.stores.artifacts.interface import ArtifactError
from everloop.workflows.contract.events import ArtifactChunk
from everloop.workflows.contract.messages import AssistantMessage

STORE_ERRORS = (RedisError, OSError, BlobError, ArtifactError)

LOOK_UP = 5.0
"""Seconds that the artifact store has to answer; the reply does not wait for it any longer."""

_log = structlog.get_logger()


@dataclass
class _Call:
    """A call while it is written. `base` is the artifact that it extends."""

    read: DraftReader
    written: list[str] = field(default_factory=list[str])
    draft: ArtifactDraft | None = None
    stream: ArtifactStream | None = None
    base: ShownContent | None = None
    is_silent: bool = False


class ArtifactStreams:
    """Makes the chunks that one attempt at a model call publishes of artifacts, from the calls it writes.

    A call waits while one before it does not say which artifact it is for. Of several for one artifact only
    the first is shown. An artifact that is to be extended has to be there, and small enough to be repeated.
    """

    def __init__(self, of: DraftedReply, contents: StoredContents) -> None:
        self._of = of
        self._contents = contents
        self._calls: dict[int, _Call] = {}
        self.shown_ids: set[str] = set()
        """The artifacts of which a chunk was made."""

    @property
    def tools(self) -> AbstractSet[str]:
        """The names of the tools whose calls it shows."""
        return self._of.tools.keys()

    def add(self, delta: ArgumentsDelta) -> None:
        """Take a piece of the arguments of a call."""
        if call := self._call(delta.call, delta.tool):
            call.written.append(delta.text)

    async def chunks(self) -> list[ArtifactChunk]:
        """Return what subscribers have not seen yet."""
        chunks: list[ArtifactChunk] = []
        for call, draft in self._first_calls():
            if is_showable(draft) and not call.is_silent:
                chunks += await self._show(call, draft)
        self.shown_ids |= {chunk.artifact_id for chunk in chunks}
        return chunks

    async def finish(self, reply: AssistantMessage) -> list[ArtifactChunk]:
        """Return what is still missing of the calls of the whole reply, whose arguments fit."""
        chunks: list[ArtifactChunk] = []
        for number, draft in drafts_of(reply, self._of.tools).items():
            call = self._call(number, reply.tool_calls[number].name)
            if call and is_showable(draft) and not call.is_silent:
                chunks += await self._show(call, draft)
        self.shown_ids |= {chunk.artifact_id for chunk in chunks}
        return chunks

    def restart(self) -> None:
        """Begin new drafts: it is not known whether the last chunks were published."""
        for call in self._calls.values():
            if call.stream:
                call.stream.restart()

    def _call(self, number: int, tool: str) -> _Call | None:
        """Return the call of that number, which may have been unheard of."""
        read = self._of.tools[tool].draft_of
        return self._calls.setdefault(number, _Call(read)) if read else None

    def _first_calls(self) -> Iterator[tuple[_Call, ArtifactDraft]]:
        taken: set[str] = set()
        for _, call in sorted(self._calls.items()):
            draft = _read(call)
            if draft is None:
                return
            if draft.artifact_id not in taken:
                yield call, draft
            taken.add(draft.artifact_id)

    async def _show(self, call: _Call, draft: ArtifactDraft) -> list[ArtifactChunk]:
        try:
            if call.stream is None:
                call.stream = await self._begin(call, draft)
        except STORE_ERRORS as error:
            _log.warning("artifact not streamed", error_type=type(error).__name__)
        if call.stream is None:
            call.is_silent = True
            return []
        named = call.base or draft
        content = ShownContent(draft.artifact_id, shown_parts(draft), named.name, named.description)
        return call.stream.show(content)

    async def _begin(self, call: _Call, draft: ArtifactDraft) -> ArtifactStream | None:
        numbers = DraftNumbers(self._of.attempt)
        if not draft.extends:
            return ArtifactStream(self._of.position, numbers)
        async with asyncio.timeout(LOOK_UP):
            call.base = await self._contents.find_extensible(draft.artifact_id, shown_size(draft))
        return ArtifactStream(self._of.position, numbers, call.base.parts) if call.base else None


def _read(call: _Call) -> ArtifactDraft | None:
    """Return what the call is about to write; it is read only when more of it has come."""
    if len(call.written) > 1 or call.draft is None:
        call.written = ["".join(call.written)]
        call.draft = call.read(call.written[0])
    return call.draft

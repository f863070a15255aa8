"""The end of a model call for the artifacts that were shown while it ran."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import structlog
from pydantic_core import to_json
from redis.exceptions import RedisError

from everloop.activities.model.drafts import DraftNumbers
from everloop.activities.model.reply import ArgumentsDelta
from everloop.agents.artifact_drafts import ArtifactDraft, DraftReader, joined_parts
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import InvalidArgumentsError, read_arguments
from everloop.runtime.blobs import BlobError
from everloop.stores.artifacts.errors import MAX_PARTS
from everloop.stores.artifacts.interface import (
    ArtifactError,
    ArtifactIdError,
    ArtifactMissingError,
    Artifacts,
)
from everloop.stores.artifacts.rendering import (
    RENDERED_BYTES,
    RENDERED_PART_BYTES,
    Rendered,
    RenderedPart,
    continuation,
    matches_view,
    read_contents,
    render_parts,
    rendered_indexes,
)
from everloop.stores.artifacts.rules import check_id
from everloop.stores.views.interface import TaskViews, ViewArtifact
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk, ChunkMode
from everloop.workflows.contract.messages import EMPTY, AssistantMessage, DataPart, Part, TextPart, ToolCall
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.parts import is_sendable
from everloop.workflows.contract.tasks import TaskRef

# Which tool calls of a reply write artifacts, and which of those are shown before they run.


@dataclass(frozen=True)
class DraftedReply:
    """Which attempt at which reply of a task writes artifacts, and with which tools.

    `attempt` is numbered by `attempt_number`.
    """

    task_id: str
    position: int
    attempt: int
    tools: Mapping[str, Tool]


def drafts_of(reply: AssistantMessage, tools: Mapping[str, Tool]) -> dict[int, ArtifactDraft]:
    """Return, by the number of the call, what a whole reply is about to write.

    Only the first call for each artifact is among them: what others do depends on it. A call whose arguments
    do not fit will write nothing.
    """
    drafts: dict[int, ArtifactDraft] = {}
    taken: set[str] = set()
    for number, call in enumerate(reply.tool_calls):
        draft = _valid_draft(call, tools.get(call.name))
        if draft and draft.artifact_id not in taken:
            taken.add(draft.artifact_id)
            drafts[number] = draft
    return drafts


def is_showable(draft: ArtifactDraft) -> bool:
    """Whether there is something to show before the call has run, and views show such content."""
    parts = draft.parts or ()
    if not 0 < len(parts) <= MAX_PARTS or not _is_usable(draft.artifact_id):
        return False
    return rendered_size(draft) <= RENDERED_BYTES and all(map(_is_sendable, parts))


def shown_parts(draft: ArtifactDraft) -> Rendered:
    """Return what the call writes as it is shown."""
    return tuple(RenderedPart(part) for part in draft.parts or ())


def rendered_size(draft: ArtifactDraft) -> int:
    """Return how many bytes of an artifact the call writes; more than fit if a part has too many."""
    return sum(map(_size, draft.parts or ()))


def _valid_draft(call: ToolCall, tool: Tool | None) -> ArtifactDraft | None:
    if tool is None or tool.draft_of is None:
        return None
    try:
        read_arguments(tool, call.arguments)
    except InvalidArgumentsError:
        return None
    return tool.draft_of(call.arguments)


def _is_usable(artifact_id: str) -> bool:
    try:
        return check_id(artifact_id) != RESPONSE_ARTIFACT
    except ArtifactIdError:
        return False


def _is_sendable(part: Part) -> bool:
    return not isinstance(part, DataPart) or is_sendable(part.data)


def _size(part: Part) -> int:
    if isinstance(part, TextPart):
        return len(part.text.encode())
    size = len(to_json(part.data)) if isinstance(part, DataPart) else 0
    return size if size <= RENDERED_PART_BYTES else RENDERED_BYTES + 1


# One artifact while the model writes the tool call that makes it.


@dataclass(frozen=True)
class RenderedContent:
    """What subscribers see of an artifact, or are to see."""

    artifact_id: str
    parts: Rendered = ()
    name: str = ""
    description: str = ""
    complete: bool = False


class ArtifactStream:
    """Makes the chunks that one activity attempt publishes of one artifact; see `DraftNumbers`.

    `base` is what the artifact holds that the call extends, None for one that it makes. The first draft of
    all extends what subscribers see; nobody could take that back, so every later one repeats the base.
    """

    def __init__(self, position: int, numbers: DraftNumbers, base: Rendered | None = None) -> None:
        self._position = position
        self._numbers = numbers
        self._base = base
        self._shown = RenderedContent("")

    def show(self, content: RenderedContent) -> list[ArtifactChunk]:
        """Return the chunks that bring subscribers to what the call itself has written so far."""
        added = self._added(content)
        if added is None:  # what seemed to be its beginning is not
            self.restart()
            added = self._added(content)
        if not added or self._numbers.is_spent:
            return []
        self._shown = content
        mode = self._mode()
        return [chunk_of(self._position, self._numbers, content, part, mode) for part in added]

    def restart(self) -> None:
        """Begin a new draft with the next chunk: it is not known whether the last ones were published."""
        self._numbers.restart()

    def _added(self, content: RenderedContent) -> list[Part] | None:
        """Return what comes behind what is shown; None if that is not the beginning of it."""
        if not self._numbers.has_begun:
            base = (self._base or ()) if self._mode() == "replace" and content.parts else ()
            return [shown.part for shown in (*base, *content.parts)]
        if (self._shown.name, self._shown.description) != (content.name, content.description):
            return None
        return continuation(self._shown.parts, content.parts)

    def _mode(self) -> ChunkMode:
        if self._base is None:
            return "draft"
        return "extend" if self._numbers.is_first else "replace"


def whole_chunks(position: int, numbers: DraftNumbers, content: RenderedContent) -> list[ArtifactChunk]:
    """Return the chunks that put a whole content in the place of every draft of this attempt."""
    numbers.end()
    parts = [shown.part for shown in content.parts] or [EMPTY]
    chunks = [chunk_of(position, numbers, content, part, "replace") for part in parts]
    chunks[-1] = chunks[-1].model_copy(update={"last_chunk": content.complete})
    return chunks


def chunk_of(
    position: int, numbers: DraftNumbers, content: RenderedContent, part: Part, mode: ChunkMode
) -> ArtifactChunk:
    """Return the next chunk."""
    return ArtifactChunk(
        artifact_id=content.artifact_id,
        name=content.name,
        description=content.description,
        mode=mode,
        position=position,
        attempt=numbers.draft,
        index=numbers.next_index(),
        part=part,
    )


# What the artifact store holds of the artifacts that a reply writes.


class StoredContents:
    """The artifacts of the context of a task, in the form in which views show them."""

    def __init__(self, artifacts: Artifacts, task: TaskRef) -> None:
        self._artifacts = artifacts
        self._context = context_key(task.owner, task.context_id)

    async def find(self, artifact_id: str) -> RenderedContent | None:
        """Return an artifact, whatever it is; None if there is none."""
        artifact = await self._artifact(artifact_id)
        return await self._shown(artifact) if artifact else None

    async def find_appendable(self, artifact_id: str, size: int) -> RenderedContent | None:
        """Return an artifact that takes more, and of which a view still shows all with so many bytes more."""
        artifact = await self._artifact(artifact_id)
        return await self._shown(artifact) if artifact and _can_grow(artifact, size) else None

    async def _artifact(self, artifact_id: str) -> StoredArtifact | None:
        try:
            return await self._artifacts.get_artifact(self._context, artifact_id)
        except ArtifactMissingError:
            return None

    async def _shown(self, artifact: StoredArtifact) -> RenderedContent:
        contents = await read_contents(self._artifacts, artifact, rendered_indexes(artifact))
        return RenderedContent(
            artifact.artifact_id,
            render_parts(artifact, contents),
            artifact.name,
            artifact.description,
            complete=artifact.status is ArtifactStatus.COMPLETE,
        )


def _can_grow(artifact: StoredArtifact, size: int) -> bool:
    indexes = rendered_indexes(artifact)
    shown = sum(part.size for part in artifact.parts if part.index in indexes)
    are_texts_shown = all(part.index in indexes for part in artifact.parts if part.kind == "text")
    return artifact.status is ArtifactStatus.BUILDING and are_texts_shown and shown + size <= RENDERED_BYTES


class ArtifactReconciler:
    """Brings what subscribers see of artifacts in line with the reply that counts.

    Each artifact that a call of the reply writes is shown whole, under the position of the reply; one that
    only an attempt wrote about is shown as it is stored, or empty if it is not.
    """

    def __init__(self, of: DraftedReply, contents: StoredContents, views: TaskViews) -> None:
        self._of = of
        self._contents = contents
        self._views = views

    async def chunks(self, reply: AssistantMessage | None, shown_ids: Iterable[str]) -> list[ArtifactChunk]:
        """Return what has to be published for that. `reply` is None for a call that failed for good.

        `shown_ids` are the artifacts that this attempt has shown; those of others are looked for.
        """
        wanted = await self._wanted(reply) if reply else {}
        ids = dict.fromkeys([*wanted, *shown_ids, *await self._ids_of_others()])
        chunks: list[ArtifactChunk] = []
        for artifact_id in ids:
            shown = await self._views.artifact(self._of.task_id, artifact_id)
            if content := await self._correction(artifact_id, shown, wanted.get(artifact_id)):
                chunks += whole_chunks(self._of.position, DraftNumbers(self._of.attempt), content)
        return chunks

    async def _wanted(self, reply: AssistantMessage) -> dict[str, RenderedContent]:
        drafts = (draft for draft in drafts_of(reply, self._of.tools).values() if is_showable(draft))
        contents = [await self._content(draft) for draft in drafts]
        return {content.artifact_id: content for content in contents if content}

    async def _content(self, draft: ArtifactDraft) -> RenderedContent | None:
        """Return the artifact as the call will leave it, if that can be told."""
        written = shown_parts(draft)
        if not draft.extends:
            return RenderedContent(draft.artifact_id, written, draft.name, draft.description)
        base = await self._contents.find_appendable(draft.artifact_id, rendered_size(draft))
        return replace(base, parts=_extended(base.parts, written)) if base else None

    async def _ids_of_others(self) -> list[str]:
        """Return the artifacts that an earlier attempt may have shown."""
        if not self._of.tools or DraftNumbers(self._of.attempt).is_first_attempt:
            return []
        snapshot = await self._views.load(self._of.task_id)
        artifacts = snapshot.view.artifacts if snapshot else ()
        return [a.artifact_id for a in artifacts if not a.complete and a.artifact_id != RESPONSE_ARTIFACT]

    async def _correction(
        self, artifact_id: str, shown: ViewArtifact | None, wanted: RenderedContent | None
    ) -> RenderedContent | None:
        """Return what is to be shown in place of what is; None if that is right."""
        is_ours = shown is not None and shown.position == self._of.position
        if wanted is None and not is_ours:
            return None
        content = wanted or await self._stored(artifact_id)
        return None if shown and is_ours and _shows(shown, content) else content

    async def _stored(self, artifact_id: str) -> RenderedContent:
        return await self._contents.find(artifact_id) or RenderedContent(artifact_id)


def _extended(base: Rendered, written: Rendered) -> Rendered:
    """Return both, joined as the view joins them."""
    *before, last = base
    first, *rest = joined_parts([last.part, *(shown.part for shown in written)])
    return (*before, replace(last, part=first), *map(RenderedPart, rest))


def _shows(shown: ViewArtifact, content: RenderedContent) -> bool:
    artifact = shown.artifact
    is_open = artifact.complete == content.complete and not artifact.failed
    return is_open and matches_view(content.parts or (RenderedPart(EMPTY),), artifact.parts)


# The artifacts that a reply of the model writes, shown while it is written.

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
    base: RenderedContent | None = None
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
        content = RenderedContent(draft.artifact_id, shown_parts(draft), named.name, named.description)
        return call.stream.show(content)

    async def _begin(self, call: _Call, draft: ArtifactDraft) -> ArtifactStream | None:
        numbers = DraftNumbers(self._of.attempt)
        if not draft.extends:
            return ArtifactStream(self._of.position, numbers)
        async with asyncio.timeout(LOOK_UP):
            call.base = await self._contents.find_appendable(draft.artifact_id, rendered_size(draft))
        return ArtifactStream(self._of.position, numbers, call.base.parts) if call.base else None


def _read(call: _Call) -> ArtifactDraft | None:
    """Return what the call is about to write; it is read only when more of it has come."""
    if len(call.written) > 1 or call.draft is None:
        call.written = ["".join(call.written)]
        call.draft = call.read(call.written[0])
    return call.draft

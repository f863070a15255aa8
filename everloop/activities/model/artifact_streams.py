"""Publishes artifacts while the model writes the tool calls that make them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic_core import to_json

from everloop.activities.model.drafts import DraftNumbers
from everloop.activities.model.reply import ArgumentsDelta
from everloop.activities.store_retries import suppress_store_errors
from everloop.agents.artifact_drafts import ArtifactDraft, DraftReader
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import InvalidArgumentsError, read_arguments
from everloop.stores.artifacts.artifact_errors import MAX_PARTS, ArtifactIdError, ArtifactMissingError
from everloop.stores.artifacts.publisher import (
    ArtifactPublisher,
    Draft,
    drafted_version,
    make_chunks,
    version_of,
)
from everloop.stores.artifacts.rendering import (
    RENDERED_BYTES,
    RENDERED_PART_BYTES,
    Rendered,
    RenderedPart,
    continuation,
    read_contents,
    render_parts,
    rendered_indexes,
)
from everloop.stores.artifacts.rules import check_id
from everloop.stores.log.log_types import LoggedArtifact
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk, ChunkMode
from everloop.workflows.contract.messages import (
    EMPTY,
    AssistantMessage,
    DataPart,
    Part,
    TextPart,
    ToolCall,
    join_texts,
)
from everloop.workflows.contract.parts import is_sendable

LOOK_UP = 5.0
"""Timeout of the artifact store in seconds. After it the reply continues without the store."""


# Selects the tool calls of a reply that write artifacts, and those that are published before they run.


def drafts_of(reply: AssistantMessage, tools: Mapping[str, Tool]) -> dict[int, ArtifactDraft]:
    """Return the drafts of artifacts in a complete reply by the number of the call.

    Only the first call for each artifact is included: the effects of others depend on it. Calls with invalid
    arguments write nothing and are left out.
    """
    drafts: dict[int, ArtifactDraft] = {}
    taken: set[str] = set()
    for number, call in enumerate(reply.tool_calls):
        draft = _valid_draft(call, tools.get(call.name))
        if draft and draft.artifact_id not in taken:
            taken.add(draft.artifact_id)
            drafts[number] = draft
    return drafts


def is_renderable(draft: ArtifactDraft) -> bool:
    """True if there is content to show before the call has run, and views show such content."""
    parts = _parts_of(draft)
    if not 0 < len(parts) <= MAX_PARTS or not _is_usable(draft.artifact_id):
        return False
    is_small = rendered_size(draft) <= RENDERED_BYTES
    return is_small and all(not isinstance(part, DataPart) or is_sendable(part.data) for part in parts)


def rendered_size(draft: ArtifactDraft) -> int:
    """Return how many bytes of an artifact the call writes, or more than the limit if a part has too many."""
    return sum(map(_size, _parts_of(draft)))


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


def _size(part: Part) -> int:
    if isinstance(part, TextPart):
        return len(part.text.encode())
    size = len(to_json(part.data)) if isinstance(part, DataPart) else 0
    return size if size <= RENDERED_PART_BYTES else RENDERED_BYTES + 1


# Artifacts of the model's reply that are published while it is written.


@dataclass(frozen=True)
class _Base:
    """A stored artifact that a call extends, and its rendered parts."""

    artifact: StoredArtifact
    parts: tuple[Part, ...]


@dataclass
class _DraftedCall:
    """A call while it is written.

    `base` is the artifact that it extends, `sent` the published part of the call in the current draft.
    """

    read: DraftReader
    numbers: DraftNumbers
    written: list[str] = field(default_factory=list[str])
    draft: ArtifactDraft | None = None
    base: _Base | None = None
    sent: ArtifactDraft | None = None
    is_silent: bool = False

    def read_on(self) -> ArtifactDraft | None:
        """Return the draft of the call. It is parsed again only after more of it has arrived."""
        if len(self.written) > 1 or self.draft is None:
            self.written = ["".join(self.written)]
            self.draft = self.read(self.written[0])
        return self.draft

    def restart(self) -> None:
        """Begin a new draft with the next chunk, after a publish whose outcome is unknown."""
        self.numbers.restart()
        self.sent = None

    @property
    def mode(self) -> ChunkMode:
        """The first draft of all continues the log; every later one has to repeat its content."""
        if self.base is None:
            return "draft"
        return "extend" if self.numbers.is_first else "replace"

    def added(self, draft: ArtifactDraft) -> list[Part] | None:
        """Return the parts after the sent ones, or None if the sent ones are not their beginning."""
        parts = _parts_of(draft)
        if self.sent is None:
            return [*(self.base.parts if self.base and self.mode == "replace" else ()), *parts]
        if not self.base and (self.sent.name, self.sent.description) != (draft.name, draft.description):
            return None
        return continuation(_rendered(_parts_of(self.sent)), _rendered(parts))


@dataclass(eq=False)
class ArtifactStreams:
    """Publishes artifacts of one attempt at a model call from the tool calls that it writes.

    A call waits while an earlier call has not named its artifact. Of several calls for one artifact only the
    first is published. An artifact to extend must exist, and be small enough to repeat.

    `position` is that of the reply, `attempt` comes from `attempt_number`, `tools` are all tools that write
    artifacts.
    """

    publisher: ArtifactPublisher
    context_id: str
    position: int
    attempt: int
    tools: Mapping[str, Tool]

    def __post_init__(self) -> None:
        self._calls: dict[int, _DraftedCall] = {}

    def add(self, delta: ArgumentsDelta) -> None:
        """Add a piece of the arguments of a call."""
        if call := self._call(delta.call, delta.tool):
            call.written.append(delta.text)

    async def chunks(self) -> list[ArtifactChunk]:
        """Return the chunks that have not been published yet."""
        return [chunk for call, draft in self._first_calls() for chunk in await self._chunks_for(call, draft)]

    async def finish(self, reply: AssistantMessage) -> list[ArtifactChunk]:
        """Return the missing chunks of the valid calls in the complete reply.

        The last chunk of each call names the version that the log then has.
        """
        chunks: list[ArtifactChunk] = []
        for number, draft in drafts_of(reply, self.tools).items():
            written = reply.tool_calls[number]
            call = self._call(number, written.name)
            if call and is_renderable(draft):
                rest = await self._chunks_for(call, draft)
                if not rest and call.numbers.has_begun and not call.numbers.is_spent:
                    rest = self._made(draft, call.base, [EMPTY], call.mode, call.numbers)
                chunks += _named(rest, written, call.base)
        return chunks

    def restart(self) -> None:
        """Begin new drafts, after a publish whose outcome is unknown."""
        for call in self._calls.values():
            call.restart()

    async def reconcile(self, reply: AssistantMessage | None) -> None:
        """Publish missing chunks of the final reply. `reply` is None if the call ended without one.

        The content of its calls is published again in full, unless the log has it: a log that was lost, or
        has nothing yet of an artifact that another task began, accepts no continuation. All other drafts of
        the same position are replaced by the stored content.

        Raises:
            OvertakenError: A later attempt has claimed the call.
        """
        if not self.tools:
            return
        logged = await self.publisher.views.logged_artifacts(self.publisher.task.task_id)
        repeated = await self._repeat(reply, logged) if reply else {}
        await self.publisher.publish([chunk for chunks in repeated.values() for chunk in chunks])
        drafted = [name for name, each in logged.items() if each.position == self.position]
        for artifact_id in drafted:
            if artifact_id not in repeated:
                await self.publisher.reconcile(self.context_id, artifact_id, drafted_at=self.position)

    async def _repeat(
        self, reply: AssistantMessage, logged: Mapping[str, LoggedArtifact]
    ) -> dict[str, list[ArtifactChunk]]:
        """Return by artifact the chunks that show the effect of its call, empty if the log has it already."""
        repeated: dict[str, list[ArtifactChunk]] = {}
        for number, draft in drafts_of(reply, self.tools).items():
            base = await self._find_base(draft) if draft.extends else None
            if not is_renderable(draft) or (draft.extends and not base):
                continue
            written, found = reply.tool_calls[number], logged.get(draft.artifact_id)
            repeated[draft.artifact_id] = []
            if not found or found.version != _version_of(written, base):
                parts = join_texts([*(base.parts if base else ()), *_parts_of(draft)])
                numbers = DraftNumbers(self.attempt)
                numbers.end()
                chunks = self._made(draft, base, parts, "replace", numbers)
                repeated[draft.artifact_id] = _named(chunks, written, base)
        return repeated

    def _call(self, number: int, tool: str) -> _DraftedCall | None:
        """Return the call with this number, which may be new."""
        read = self.tools[tool].draft_of
        return (
            self._calls.setdefault(number, _DraftedCall(read, DraftNumbers(self.attempt))) if read else None
        )

    def _first_calls(self) -> Iterator[tuple[_DraftedCall, ArtifactDraft]]:
        taken: set[str] = set()
        for _, call in sorted(self._calls.items()):
            draft = call.read_on()
            if draft is None:
                return
            if draft.artifact_id not in taken:
                yield call, draft
            taken.add(draft.artifact_id)

    async def _chunks_for(self, call: _DraftedCall, draft: ArtifactDraft) -> list[ArtifactChunk]:
        """Return the chunks that add the text that the call has written since the last ones."""
        if call.is_silent or not is_renderable(draft):
            return []
        if draft.extends and not call.base:
            with suppress_store_errors("artifact not streamed"):
                async with asyncio.timeout(LOOK_UP):
                    call.base = await self._find_base(draft)
            call.is_silent = not call.base
            if call.is_silent:
                return []
        added = call.added(draft)
        if added is None:  # the sent part is not its beginning
            call.restart()
            added = call.added(draft)
        if call.numbers.is_spent:
            return []
        chunks = self._made(draft, call.base, added or [], call.mode, call.numbers)
        call.sent = draft
        return chunks

    def _made(
        self,
        draft: ArtifactDraft,
        base: _Base | None,
        parts: Sequence[Part],
        mode: ChunkMode,
        numbers: DraftNumbers,
    ) -> list[ArtifactChunk]:
        named = base.artifact if base else draft
        return make_chunks(
            draft.artifact_id,
            parts,
            mode,
            Draft(self.position, numbers.draft, numbers.take(len(parts))),
            name=named.name,
            description=named.description,
            base=version_of(base.artifact) if base and mode == "extend" else "",
        )

    async def _find_base(self, draft: ArtifactDraft) -> _Base | None:
        """Return the artifact that a call extends if a view will show all of it then."""
        store = self.publisher.store
        try:
            artifact = await store.get_artifact(self.context_id, draft.artifact_id)
        except ArtifactMissingError:
            return None
        if not _can_grow(artifact, rendered_size(draft)):
            return None
        contents = await read_contents(store, artifact, rendered_indexes(artifact))
        return _Base(artifact, tuple(each.part for each in render_parts(artifact, contents)))


def _named(chunks: list[ArtifactChunk], written: ToolCall, base: _Base | None) -> list[ArtifactChunk]:
    """Return chunks of which the last one names the version of the content that the call writes."""
    ends = [chunk.model_copy(update={"version": _version_of(written, base)}) for chunk in chunks[-1:]]
    return [*chunks[:-1], *ends]


def _version_of(written: ToolCall, base: _Base | None) -> str:
    return drafted_version(written.arguments, base.artifact if base else None)


def _parts_of(draft: ArtifactDraft) -> Sequence[Part]:
    return draft.parts or ()


def _rendered(parts: Sequence[Part]) -> Rendered:
    return tuple(map(RenderedPart, parts))


def _can_grow(artifact: StoredArtifact, size: int) -> bool:
    """True if an artifact takes more content, and a view still shows all of it with so many bytes more."""
    indexes = rendered_indexes(artifact)
    rendered = sum(part.size for part in artifact.parts if part.index in indexes)
    has_all_texts = all(part.index in indexes for part in artifact.parts if part.kind == "text")
    return artifact.status is ArtifactStatus.BUILDING and has_all_texts and rendered + size <= RENDERED_BYTES

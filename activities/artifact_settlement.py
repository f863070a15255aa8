"""The end of a model call for the artifacts that were shown while it ran."""

from collections.abc import Iterable
from dataclasses import replace

from everloop.activities.artifact_stream import ShownContent, whole_chunks
from everloop.activities.draft_numbers import DraftNumbers
from everloop.activities.drafted_calls import DraftedReply, drafts_of, is_showable, shown_parts, shown_size
from everloop.activities.stored_contents import StoredContents
from everloop.agents.artifact_drafts import ArtifactDraft, joined_parts
from everloop.stores.artifacts.shown import Shown, ShownPart, is_shown_by
from everloop.stores.views.interface import ShownArtifact, TaskViews
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk
from everloop.workflows.contract.messages import EMPTY, AssistantMessage


class ArtifactSettlement:
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

    async def _wanted(self, reply: AssistantMessage) -> dict[str, ShownContent]:
        drafts = (draft for draft in drafts_of(reply, self._of.tools).values() if is_showable(draft))
        contents = [await self._content(draft) for draft in drafts]
        return {content.artifact_id: content for content in contents if content}

    async def _content(self, draft: ArtifactDraft) -> ShownContent | None:
        """Return the artifact as the call will leave it, if that can be told."""
        written = shown_parts(draft)
        if not draft.extends:
            return ShownContent(draft.artifact_id, written, draft.name, draft.description)
        base = await self._contents.find_extensible(draft.artifact_id, shown_size(draft))
        return replace(base, parts=_extended(base.parts, written)) if base else None

    async def _ids_of_others(self) -> list[str]:
        """Return the artifacts that an earlier attempt may have shown."""
        if not self._of.tools or DraftNumbers(self._of.attempt).is_first_attempt:
            return []
        snapshot = await self._views.load(self._of.task_id)
        artifacts = snapshot.view.artifacts if snapshot else ()
        return [a.artifact_id for a in artifacts if not a.complete and a.artifact_id != RESPONSE_ARTIFACT]

    async def _correction(
        self, artifact_id: str, shown: ShownArtifact | None, wanted: ShownContent | None
    ) -> ShownContent | None:
        """Return what is to be shown in place of what is; None if that is right."""
        is_ours = shown is not None and shown.position == self._of.position
        if wanted is None and not is_ours:
            return None
        content = wanted or await self._stored(artifact_id)
        return None if shown and is_ours and _shows(shown, content) else content

    async def _stored(self, artifact_id: str) -> ShownContent:
        return await self._contents.find(artifact_id) or ShownContent(artifact_id)


def _extended(base: Shown, written: Shown) -> Shown:
    """Return both, joined as the view joins them."""
    *before, last = base
    first, *rest = joined_parts([last.part, *(shown.part for shown in written)])
    return (*before, replace(last, part=first), *map(ShownPart, rest))


def _shows(shown: ShownArtifact, content: ShownContent) -> bool:
    artifact = shown.artifact
    is_open = artifact.complete == content.complete and not artifact.failed
    return is_open and is_shown_by(content.parts or (ShownPart(EMPTY),), artifact.parts)

"""Drafts of the answer: after any failures of publishing, the fold has one whole answer."""

from hypothesis import given
from hypothesis import strategies as st

from everloop.activities.model.drafts import DRAFTS_PER_ATTEMPT, ResponseDraft
from everloop.workflows.contract.events import FINAL_ATTEMPT, RESPONSE_ARTIFACT, ArtifactChunk
from everloop.workflows.contract.messages import TextPart, text_of
from everloop.workflows.contract.tasks import Artifact, TaskRef
from tests.support.fences import FencedTask
from tests.support.rigs.artifacts.drafting import Publish
from tests.support.rigs.model_rig import new_view

TASK = TaskRef(task_id="t", run_id="run", context_id="c", owner="o", agent_id="a")


class Viewer:
    """The fold of one task, with publishes that fail as scripted."""

    def __init__(self) -> None:
        self._folded = FencedTask()
        self._folded.create(new_view(TASK))

    def publish(self, chunks: list[ArtifactChunk], how: Publish, draft: ResponseDraft) -> None:
        if how is not Publish.IS_LOST:
            self._folded.publish(TASK.run_id, chunks)
        if how is not Publish.WORKS:
            draft.restart()

    @property
    def response(self) -> Artifact:
        assert self._folded.view
        [artifact] = self._folded.view.artifacts
        assert artifact.artifact_id == RESPONSE_ARTIFACT
        return artifact


def appended(draft: ResponseDraft, text: str) -> list[ArtifactChunk]:
    chunk = draft.append(text)
    return [chunk] if chunk else []


STEPS = st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.sampled_from(Publish)), max_size=15)


def test_the_last_chunk_is_the_whole_answer() -> None:
    """Clients that read only the last update of an artifact have it all; the fold has it once."""
    viewer, draft = Viewer(), ResponseDraft(position=1, attempt=1)
    viewer.publish(appended(draft, "Four, "), Publish.WORKS, draft)
    end = draft.finish("and five.")
    viewer.publish(end, Publish.WORKS, draft)
    assert [(c.index, c.part, c.last_chunk) for c in end] == [(0, TextPart(text="Four, and five."), True)]
    assert text_of(viewer.response.parts) == "Four, and five."


def test_a_large_answer_is_not_sent_twice() -> None:
    """Beyond the limit the last piece completes it; the fold drops the whole that follows."""
    folded, draft, large = FencedTask(), ResponseDraft(position=1, attempt=1), "x" * 64_000
    folded.create(new_view(TASK))
    folded.publish(TASK.run_id, appended(draft, large))
    told = folded.publish(TASK.run_id, draft.finish("."))
    assert [(c.index, c.part, c.last_chunk) for c in told if isinstance(c, ArtifactChunk)] == [
        (1, TextPart(text="."), True)
    ]


@given(STEPS, STEPS)
def test_a_draft_that_was_forgotten_is_whole_at_the_end(
    before: list[tuple[str, Publish]], after: list[tuple[str, Publish]]
) -> None:
    """Redis was emptied in the middle: the next pieces cannot be appended, but the end carries it all."""
    draft = ResponseDraft(position=1, attempt=1)
    for steps in (before, after):
        viewer = Viewer()
        for piece, how in steps:
            viewer.publish(appended(draft, piece), how, draft)
    viewer.publish(draft.finish("."), Publish.WORKS, draft)

    assert text_of(viewer.response.parts) == "".join(piece for piece, _ in [*before, *after]) + "."
    assert viewer.response.complete


@given(STEPS, STEPS)
def test_a_later_attempt_replaces_the_draft(
    first: list[tuple[str, Publish]], second: list[tuple[str, Publish]]
) -> None:
    """Nothing of the earlier one is left; lost publishes, and those with a lost answer, leave no trace."""
    viewer = Viewer()
    for attempt, steps in ((1, first), (2, second)):
        draft = ResponseDraft(position=1, attempt=attempt)
        for piece, how in steps:
            viewer.publish(appended(draft, piece), how, draft)
    viewer.publish(draft.finish("."), Publish.WORKS, draft)
    assert text_of(viewer.response.parts) == "".join(piece for piece, _ in second) + "."
    assert viewer.response.complete


def test_an_endless_outage_leaves_room_for_the_end() -> None:
    """When an attempt has used up its drafts it publishes nothing until the end, which replaces them all."""
    viewer, draft = Viewer(), ResponseDraft(position=1, attempt=1)
    chunks = [appended(draft, "a")]
    for _ in range(DRAFTS_PER_ATTEMPT + 10):
        viewer.publish(chunks[-1], Publish.LOSES_ITS_ANSWER, draft)
        chunks.append(appended(draft, "a"))
    viewer.publish(draft.finish("."), Publish.WORKS, draft)
    assert chunks[-1] == []
    assert text_of(viewer.response.parts) == "a" * len(chunks) + "."


def test_the_workflow_has_the_last_word() -> None:
    """No number of attempts reaches the number with which the workflow completes the answer."""
    draft = ResponseDraft(position=1, attempt=10 * FINAL_ATTEMPT)
    assert draft.withdraw().attempt < FINAL_ATTEMPT

"""Clients that go on behind an event that they heard before: what they are told, and by which id."""

import pytest
from a2a.types import a2a_pb2 as pb

from everloop.gateway.operations.updates import UpdateTranslator
from everloop.gateway.tasks.streams import EventId
from everloop.workflows.contract.events import ArtifactChunk, StatusChanged, ToolCalled
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.unit.gateway.shown_tasks import AT, URL, artifact, chunk, sent, view

POSITION = "17-3"


GoesOn = tuple[TaskView, list[ArtifactChunk], str, list[ArtifactChunk]]
"""A client's first view, what it heard, the id of the last event, and what comes after its reconnection."""

GOES_ON: dict[str, GoesOn] = {
    "a draft": (view(), [chunk(0, "a")], POSITION, [chunk(1, "b"), chunk(2, "", last=True)]),
    "an artifact of its view": (view(artifact(TextPart(text="a"))), [], POSITION, [chunk(1, "b")]),
    "an empty beginning": (
        view(),
        [chunk(0, "", artifact_id="log")],
        POSITION,
        [chunk(1, "a", artifact_id="log"), chunk(2, "b", artifact_id="log")],
    ),
    "an empty beginning to come": (view(), [], POSITION, [chunk(0, "", artifact_id="log")]),
    "an empty artifact of its view": (
        view(artifact(TextPart(text=""), artifact_id="log")),
        [],
        POSITION,
        [chunk(0, "a", artifact_id="log", mode="extend")],
    ),
    "a withdrawal": (
        view(),
        [chunk(0, "a"), chunk(0, "")],
        POSITION,
        [chunk(0, ""), chunk(0, "b"), chunk(1, "c")],
    ),
    "empty and over": (
        view(),
        [chunk(0, "", artifact_id="log", last=True)],
        POSITION,
        [chunk(0, "a", artifact_id="log", mode="replace")],
    ),
    "a withdrawal to come": (view(), [chunk(0, "a")], POSITION, [chunk(0, ""), chunk(0, "b")]),
    "an extension": (view(), [chunk(0, "a")], POSITION, [chunk(0, "b", mode="extend"), chunk(1, "c")]),
}


@pytest.mark.parametrize(("before", "heard", "last_id", "chunks"), GOES_ON.values(), ids=GOES_ON)
def test_a_client_that_goes_on_is_told_what_it_would_have_been_told(
    before: TaskView, heard: list[ArtifactChunk], last_id: str, chunks: list[ArtifactChunk]
) -> None:
    """The id of the last event is all that is known of it, and enough; the view of then is gone."""
    stayed = UpdateTranslator(before, URL, extended=False)
    for each in heard:
        stayed.translate(each)
    written = str(stayed.event_id(POSITION))
    # By now, the view holds all that is yet to be told.
    newer = view(artifact(TextPart(text="ab")), artifact(TextPart(text="ab"), artifact_id="log"))
    goes_on = UpdateTranslator(newer, URL, extended=False, after=EventId.parse(written))

    assert written == last_id
    expected = [sent(stayed.translate(each)) for each in chunks]
    assert [sent(goes_on.translate(each)) for each in chunks] == expected


@pytest.mark.parametrize(
    "text", ["", "x", "17", "17-", "17-3,nonsense", "-1-0", "17-3,,,x;drop", "17-3,working,log", f"{2**64}-0"]
)
def test_an_id_that_is_none_of_ours_is_none(text: str) -> None:
    """Clients may send any text; what we did not write ourselves leads nowhere."""
    assert EventId.parse(text) is None


@pytest.mark.parametrize("ended", [False, True])
def test_a_client_that_goes_on_hears_what_failed_in_the_end(*, ended: bool) -> None:
    """Also what was unfinished before, and failed before anybody looked; once."""
    unfinished = artifact(TextPart(text="a"), failed=ended)
    whole = artifact(TextPart(text="w"), artifact_id="whole", complete=True)
    state = TaskState.FAILED if ended else TaskState.WORKING
    translator = UpdateTranslator(
        view(unfinished, whole, state=state), URL, extended=False, after=EventId(POSITION)
    )
    event = StatusChanged(version=2, state=TaskState.FAILED, at=AT)

    failed, status = translator.translate(event)

    assert isinstance(failed, pb.TaskArtifactUpdateEvent)
    assert failed.artifact.artifact_id == "response"
    assert isinstance(status, pb.TaskStatusUpdateEvent)


def test_a_client_of_the_extension_goes_on_with_the_state_it_knew() -> None:
    """What happened before the task ended is not told as if it had ended."""
    stayed = UpdateTranslator(view(), URL, extended=True)
    after = EventId.parse(str(stayed.event_id(POSITION)))

    goes_on = UpdateTranslator(view(state=TaskState.COMPLETED), URL, extended=True, after=after)
    (update,) = goes_on.translate(ToolCalled(iteration=1, call_id="c", name="search", arguments="{}"))

    assert isinstance(update, pb.TaskStatusUpdateEvent)
    assert update.status.state == pb.TASK_STATE_WORKING

"""The events of a task as A2A updates for one client."""

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from gateway.event_ids import EventId
from gateway.translate import EVENTS_EXTENSION
from gateway.updates import Update, UpdateTranslator
from tests.unit.shown_tasks import AT, URL, artifact, chunk, said, view
from workflows.contract.events import ArtifactChunk, StatusChanged, TaskEvent, ToolCalled, UsageReported
from workflows.contract.messages import FilePart, Part, StoredPart, TextPart, Usage, UserMessage
from workflows.contract.tasks import TaskState, TaskView

POSITION = "17-3"


@pytest.mark.parametrize(
    ("before", "chunks", "expected"),
    [
        ((), [(0, "a"), (1, "b")], [("a", False), ("b", True)]),
        ((TextPart(text="a"),), [(1, "b")], [("b", True)]),
        ((), [(0, ""), (1, "b"), (2, "c")], [("b", False), ("c", True)]),
        ((), [(0, "")], []),
        ((TextPart(text="draft"),), [(0, "")], [("", False)]),
        ((TextPart(text="draft"),), [(0, ""), (0, ""), (0, "new")], [("", False), ("new", False)]),
        ((), [(0, "a"), (0, ""), (0, "b"), (1, "")], [("a", False), ("", False), ("b", False)]),
    ],
    ids=[
        "a draft from its start",
        "a draft that the snapshot has",
        "an empty beginning",
        "nothing at all",
        "a withdrawal",
        "a withdrawal twice",
        "a replaced draft that is continued with nothing",
    ],
)
def test_chunks_append_to_what_the_client_has(
    before: tuple[Part, ...], chunks: list[tuple[int, str]], expected: list[tuple[str, bool]]
) -> None:
    """A client never appends to what it was not shown, and hears of withdrawals only of what it was."""
    translator = UpdateTranslator(view(artifact(*before)), URL, extended=False)

    updates = [update for index, text in chunks for update in translator.translate(chunk(index, text))]

    sent = [update for update in updates if isinstance(update, pb.TaskArtifactUpdateEvent)]
    assert [(update.artifact.parts[0].text, update.append) for update in sent] == expected


def test_artifacts_are_told_apart() -> None:
    """What was shown of one artifact says nothing of another."""
    translator = UpdateTranslator(view(artifact(TextPart(text="a"))), URL, extended=False)

    (update,) = translator.translate(chunk(1, "b", artifact_id="other", last=True))

    assert isinstance(update, pb.TaskArtifactUpdateEvent)
    assert (update.append, update.last_chunk, update.artifact.artifact_id) == (False, True, "other")


def test_a_status_is_an_update_without_what_was_received() -> None:
    """Message, time and metadata go out; the client's own words do not come back."""
    event = StatusChanged(
        version=3,
        state=TaskState.INPUT_REQUIRED,
        at=AT,
        message=said("Which one?"),
        received=(UserMessage(message_id="u2", parts=(TextPart(text="secret"),)),),
        metadata={"call": "c1"},
    )

    (update,) = UpdateTranslator(view(), URL, extended=False).translate(event)

    assert isinstance(update, pb.TaskStatusUpdateEvent)
    assert MessageToDict(update)["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert update.status.message.parts[0].text == "Which one?"
    assert MessageToDict(update.metadata) == {"call": "c1"}
    assert "secret" not in str(update)


OTHERS: list[TaskEvent] = [
    ToolCalled(iteration=1, call_id="c", name="search", arguments="{}"),
    UsageReported(iteration=1, usage=Usage(input_tokens=1, output_tokens=2)),
]


@pytest.mark.parametrize("event", OTHERS, ids=lambda event: type(event).__name__)
def test_other_events_are_for_the_extension(event: TaskEvent) -> None:
    """Only a client that activated it gets them, as metadata beside the status of the moment."""
    extended = UpdateTranslator(view(), URL, extended=True)
    extended.translate(StatusChanged(version=2, state=TaskState.AUTH_REQUIRED, at=AT))

    (update,) = extended.translate(event)

    assert UpdateTranslator(view(), URL, extended=False).translate(event) == []
    assert isinstance(update, pb.TaskStatusUpdateEvent)
    assert update.status.state == pb.TASK_STATE_AUTH_REQUIRED
    assert MessageToDict(update.metadata)[EVENTS_EXTENSION]["kind"] == event.kind


ENDS_BADLY = {TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}


@pytest.mark.parametrize("state", TaskState)
def test_a_task_that_ends_badly_first_fails_its_open_artifacts(state: TaskState) -> None:
    """Each that the client was shown and that is not complete ends with one update; then comes the status."""
    text = TextPart(text="a")
    seen = view(
        artifact(text),
        artifact(text, artifact_id="whole", complete=True),
        artifact(text, artifact_id="failed", failed=True),
        artifact(text, artifact_id="ended"),
        artifact(text, artifact_id="withdrawn"),
        artifact(TextPart(text=""), artifact_id="empty"),
    )
    translator = UpdateTranslator(seen, URL, extended=False)
    for each in (
        chunk(1, "", artifact_id="ended", last=True),
        chunk(0, "", artifact_id="withdrawn"),
        chunk(0, "n", artifact_id="new"),
    ):
        translator.translate(each)
    event = StatusChanged(version=2, state=state, at=AT)

    *failed, last = translator.translate(event)

    assert isinstance(last, pb.TaskStatusUpdateEvent)
    assert [MessageToDict(update) for update in failed] == [
        {
            "taskId": "task",
            "contextId": "context",
            "artifact": {
                "artifactId": artifact_id,
                **({"name": artifact_id} if artifact_id == "response" else {}),
                "parts": [{"text": ""}],
                "metadata": {"status": "failed"},
            },
            "append": True,
            "lastChunk": True,
        }
        for artifact_id in (("response", "new") if state in ENDS_BADLY else ())
    ]
    assert len(translator.translate(event)) == 1


Sent = tuple[str, bool, bool]
"""Text of a sent chunk, whether it appends, and whether it is the last one."""


def sent(updates: list[Update]) -> list[Sent]:
    return [
        (update.artifact.parts[0].text, update.append, update.last_chunk)
        for update in updates
        if isinstance(update, pb.TaskArtifactUpdateEvent)
    ]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([chunk(0, "b", mode="extend")], [("b", True, False)]),
        ([chunk(0, "", mode="extend")], []),
        ([chunk(0, "", mode="extend", last=True)], [("", True, True)]),
        (
            [chunk(0, "", mode="extend"), chunk(1, "b"), chunk(2, "", last=True)],
            [("b", True, False), ("", True, True)],
        ),
        ([chunk(0, "new", mode="replace")], [("new", False, False)]),
        ([chunk(0, "", mode="replace"), chunk(1, "b")], [("", False, False), ("b", False, False)]),
    ],
    ids=[
        "more",
        "nothing",
        "the end",
        "nothing, more, the end",
        "in its place",
        "in its place, empty at first",
    ],
)
def test_an_artifact_is_extended_or_replaced_as_its_chunk_says(
    chunks: list[ArtifactChunk], expected: list[Sent]
) -> None:
    """An extension appends to what the client has; one that adds and completes nothing is not sent."""
    translator = UpdateTranslator(view(artifact(TextPart(text="a"))), URL, extended=False)

    assert sent([update for each in chunks for update in translator.translate(each)]) == expected


def test_a_text_that_is_named_is_sent_although_it_is_empty() -> None:
    """It begins a part, which plain texts then continue; so does a file that is still being written."""
    named = TextPart(text="", media_type="text/csv", filename="t.csv")
    file = FilePart(media_type="image/png", stored=StoredPart(artifact_id="plot"))
    translator = UpdateTranslator(view(), URL, extended=False)

    updates = [
        update
        for each in (chunk(0, named), chunk(1, "a,b"), chunk(0, file, artifact_id="plot"))
        for update in translator.translate(each)
    ]

    parts = [MessageToDict(u.artifact.parts[0]) for u in updates if isinstance(u, pb.TaskArtifactUpdateEvent)]
    assert parts == [
        {"text": "", "mediaType": "text/csv", "filename": "t.csv"},
        {"text": "a,b"},
        {"url": f"{URL}artifacts/context/plot/parts/0", "mediaType": "image/png"},
    ]
    assert [append for _, append, _ in sent(updates)] == [False, True, False]


GoesOn = tuple[TaskView, list[ArtifactChunk], str, list[ArtifactChunk]]
"""A client's first view, what it heard, the id of the last event, and what comes after its reconnection."""

GOES_ON: dict[str, GoesOn] = {
    "a draft": (view(), [chunk(0, "a")], POSITION, [chunk(1, "b"), chunk(2, "", last=True)]),
    "an artifact of its view": (view(artifact(TextPart(text="a"))), [], POSITION, [chunk(1, "b")]),
    "a hidden beginning": (view(), [chunk(0, "")], f"{POSITION},,response", [chunk(1, "a"), chunk(2, "b")]),
    "a hidden artifact of its view": (
        view(artifact(TextPart(text=""))),
        [],
        f"{POSITION},,response",
        [chunk(1, "a"), chunk(2, "b")],
    ),
    "a withdrawal": (
        view(),
        [chunk(0, "a"), chunk(0, "")],
        f"{POSITION},,response",
        [chunk(1, "b"), chunk(2, "c")],
    ),
    "hidden, then shown": (view(), [chunk(0, ""), chunk(1, "a")], POSITION, [chunk(2, "b")]),
    "empty and over": (view(), [chunk(0, "", last=True)], POSITION, [chunk(0, "a", mode="replace")]),
    "an odd name": (
        view(),
        [chunk(0, "", artifact_id="a,b/c")],
        f"{POSITION},,a%2Cb%2Fc",
        [chunk(1, "a", artifact_id="a,b/c")],
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
    newer = view(artifact(TextPart(text="ab")), artifact(TextPart(text="ab"), artifact_id="a,b/c"))
    goes_on = UpdateTranslator(newer, URL, extended=False, after=EventId.parse(written))

    assert written == last_id
    expected = [sent(stayed.translate(each)) for each in chunks]
    assert [sent(goes_on.translate(each)) for each in chunks] == expected


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
    (update,) = goes_on.translate(OTHERS[0])

    assert isinstance(update, pb.TaskStatusUpdateEvent)
    assert update.status.state == pb.TASK_STATE_WORKING


@pytest.mark.parametrize(
    "text", ["", "x", "17", "17-", "17-3,nonsense", "-1-0", "17-3,,,x;drop", f"{2**64}-0"]
)
def test_an_id_that_is_none_of_ours_is_none(text: str) -> None:
    """Clients may send any text; it never becomes more than names of artifacts."""
    parsed = EventId.parse(text)

    assert parsed is None or parsed.position == POSITION

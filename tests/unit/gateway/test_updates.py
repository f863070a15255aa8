"""The events of a task as A2A updates for one client, also for one that resumes after an event."""

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from everloop.gateway.operations.updates import UpdateTranslator
from everloop.gateway.tasks.streams import EventId
from everloop.runtime.protocol.a2a_tasks import FAILED_ARTIFACT
from everloop.workflows.contract.events import (
    AgentInvoked,
    ArtifactChunk,
    StatusChanged,
    SubAgentEvent,
    TaskEvent,
    ToolCalled,
    ToolCompleted,
    UsageReported,
)
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from everloop.workflows.contract.messages import FilePart, Part, StoredPartRef, TextPart, Usage
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.unit.gateway.rendered_tasks import AT, URL, Sent, artifact, chunk, sent, view


@pytest.mark.parametrize(
    ("before", "chunks", "expected"),
    [
        ((), [(0, "a"), (1, "b")], [("a", False), ("b", True)]),
        ((TextPart(text="a"),), [(1, "b")], [("b", True)]),
        ((), [(0, "")], []),
        ((TextPart(text=""),), [(0, ""), (0, "new")], [("new", False)]),
        ((TextPart(text="draft"),), [(0, "")], [("", False)]),
        ((TextPart(text="draft"),), [(0, ""), (0, "new")], [("", False), ("new", False)]),
        ((), [(0, "a"), (0, ""), (0, "b"), (1, "")], [("a", False), ("", False), ("b", False)]),
    ],
)
def test_chunks_append_to_what_the_client_has(
    before: tuple[Part, ...], chunks: list[tuple[int, str]], expected: list[tuple[str, bool]]
) -> None:
    """A client never appends to an answer that it did not get, and gets withdrawals only of those it got."""
    translator = UpdateTranslator(view(artifact(*before)), URL, extended=False)
    updates = [update for index, text in chunks for update in translator.translate(chunk(index, text))]
    sent = [update for update in updates if isinstance(update, pb.TaskArtifactUpdateEvent)]
    assert [(update.artifact.parts[0].text, update.append) for update in sent] == expected


OTHERS: list[TaskEvent] = [
    ToolCalled(iteration=1, call_id="c", name="search", arguments="{}"),
    UsageReported(iteration=1, usage=Usage(input_tokens=1, output_tokens=2)),
    AgentInvoked(call_id="c", agent_id="writer", task_id="task/c"),
    SubAgentEvent(path=("c",), event={"kind": "thought", "iteration": 1, "text": "Hm"}),
]


@pytest.mark.parametrize("event", OTHERS, ids=lambda event: type(event).__name__)
def test_other_events_are_for_the_extension(event: TaskEvent) -> None:
    """Only a client that activated it gets them, as metadata beside the current status."""
    extended = UpdateTranslator(view(), URL, extended=True)
    extended.translate(StatusChanged(version=2, state=TaskState.AUTH_REQUIRED, at=AT))
    (update,) = extended.translate(event)
    assert UpdateTranslator(view(), URL, extended=False).translate(event) == []
    assert isinstance(update, pb.TaskStatusUpdateEvent)
    assert update.status.state == pb.TASK_STATE_AUTH_REQUIRED
    assert MessageToDict(update.metadata)[EVENTS_EXTENSION]["kind"] == event.kind


@pytest.mark.parametrize(
    ("extended", "told"), [(True, {"kind": "resumed", "after": "operator"}), (False, {})]
)
def test_a_status_tells_that_the_task_goes_on(*, extended: bool, told: dict[str, str]) -> None:
    """Clients of the extension get the cause; others get the status."""
    event = StatusChanged(version=2, state=TaskState.WORKING, at=AT, resumed="operator")
    (update,) = UpdateTranslator(view(), URL, extended=extended).translate(event, "1800000000123-4")
    shown = MessageToDict(update.metadata).get(EVENTS_EXTENSION, {})
    assert {name: shown[name] for name in ("kind", "after") if name in shown} == told


@pytest.mark.parametrize("cut", [True, False])
def test_a_result_that_is_cut_comes_with_the_address_of_all_of_it(*, cut: bool) -> None:
    """A complete one has no address."""
    event = ToolCompleted(call_id="c/1", name="search", outcome="ok", result="x", size=20_000, cut=cut)
    (update,) = UpdateTranslator(view(), URL, extended=True).translate(event)
    told = MessageToDict(update.metadata)[EVENTS_EXTENSION]
    assert (told["result"], told["size"], told["cut"]) == ("x", 20_000, cut)
    assert told.get("url") == (f"{URL}results/{view().task_id}/c%2F1" if cut else None)


ENDS_BADLY = {TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}


@pytest.mark.parametrize("state", TaskState)
def test_a_task_that_ends_badly_first_fails_its_open_artifacts(state: TaskState) -> None:
    """Each shown, incomplete one ends with one update; then comes the status."""
    text = TextPart(text="a")
    seen = view(
        artifact(text),
        artifact(text, artifact_id="whole", complete=True),
        artifact(text, artifact_id="failed", failed=True),
        artifact(text, artifact_id="ended"),
        artifact(TextPart(text=""), artifact_id="empty"),
    )
    translator = UpdateTranslator(seen, URL, extended=False)
    for each in (
        chunk(1, "", artifact_id="ended", last=True),
        chunk(0, "", artifact_id="begun"),
        chunk(0, "", artifact_id="begun", mode="replace"),
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
                **({"name": artifact_id} if artifact_id in {"response", "empty"} else {}),
                "parts": [{"text": ""}],
                "metadata": {"status": "failed"},
            },
            "append": True,
            "lastChunk": True,
        }
        for artifact_id in (("response", "empty", "begun", "new") if state in ENDS_BADLY else ())
    ]
    assert len(translator.translate(event)) == 1


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
        ([chunk(0, "", mode="replace"), chunk(1, "b")], [("", False, False), ("b", True, False)]),
    ],
)
def test_an_artifact_is_extended_or_replaced_as_its_chunk_says(
    chunks: list[ArtifactChunk], expected: list[Sent]
) -> None:
    """An extension appends to the client's copy; one that adds and completes nothing is not sent."""
    translator = UpdateTranslator(view(artifact(TextPart(text="a"))), URL, extended=False)
    assert sent([update for each in chunks for update in translator.translate(each)]) == expected


def test_a_text_that_is_named_is_sent_although_it_is_empty() -> None:
    """It begins a part, which plain texts then continue; so does an unfinished file."""
    named = TextPart(text="", media_type="text/csv", filename="t.csv")
    file = FilePart(media_type="image/png", stored=StoredPartRef(artifact_id="plot"))
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


@pytest.mark.parametrize(("content", "texts"), [("", [""]), ("b", ["b", ""])])
def test_an_artifact_that_failed_is_told_once(content: str, texts: list[str]) -> None:
    """At once, after its last content; not again when the task fails later."""
    translator = UpdateTranslator(view(), URL, extended=False)
    translator.translate(chunk(0, "a", artifact_id="log"))
    updates = translator.translate(chunk(1, content, artifact_id="log").model_copy(update={"failed": True}))
    ends = translator.translate(StatusChanged(version=2, state=TaskState.FAILED, at=AT))
    told = [update for update in updates if isinstance(update, pb.TaskArtifactUpdateEvent)]
    assert [update.artifact.parts[0].text for update in told] == texts
    assert all(update.append for update in told)
    assert [update.last_chunk for update in told] == [False] * (len(texts) - 1) + [True]
    assert MessageToDict(told[-1].artifact.metadata) == FAILED_ARTIFACT
    assert [type(update) for update in ends] == [pb.TaskStatusUpdateEvent]


POSITION = "17-3"

GoesOn = tuple[TaskView, list[ArtifactChunk], list[ArtifactChunk]]
"""A client's first view, the events it got, and those after its reconnection."""

LOG = artifact(TextPart(text=""), artifact_id="log")
GOES_ON: dict[str, GoesOn] = {
    "a draft": (view(), [chunk(0, "a")], [chunk(1, "b"), chunk(2, "", last=True)]),
    "an artifact of its view": (view(artifact(TextPart(text="a"))), [], [chunk(1, "b")]),
    "an empty beginning": (
        view(),
        [chunk(0, "", artifact_id="log")],
        [chunk(1, "a", artifact_id="log"), chunk(2, "b", artifact_id="log")],
    ),
    "an empty beginning to come": (view(), [], [chunk(0, "", artifact_id="log")]),
    "an empty artifact of its view": (view(LOG), [], [chunk(0, "a", artifact_id="log", mode="extend")]),
    "a withdrawal": (view(), [chunk(0, "a"), chunk(0, "")], [chunk(0, ""), chunk(0, "b"), chunk(1, "c")]),
    "empty and over": (
        view(),
        [chunk(0, "", artifact_id="log", last=True)],
        [chunk(0, "a", artifact_id="log", mode="replace")],
    ),
    "a withdrawal to come": (view(), [chunk(0, "a")], [chunk(0, ""), chunk(0, "b")]),
    "an extension": (view(), [chunk(0, "a")], [chunk(0, "b", mode="extend"), chunk(1, "c")]),
}


@pytest.mark.parametrize(("before", "heard", "chunks"), GOES_ON.values(), ids=GOES_ON)
def test_a_client_that_goes_on_is_told_what_it_would_have_been_told(
    before: TaskView, heard: list[ArtifactChunk], chunks: list[ArtifactChunk]
) -> None:
    """The id of the last event is enough; the view of then is gone."""
    stayed = UpdateTranslator(before, URL, extended=False)
    for each in heard:
        stayed.translate(each)
    written = str(stayed.event_id(POSITION))
    # By now, the view contains all later events.
    newer = view(artifact(TextPart(text="ab")), artifact(TextPart(text="ab"), artifact_id="log"))
    goes_on = UpdateTranslator(newer, URL, extended=False, after=EventId.parse(written))
    assert written == POSITION
    expected = [sent(stayed.translate(each)) for each in chunks]
    assert [sent(goes_on.translate(each)) for each in chunks] == expected


@pytest.mark.parametrize(
    "text", ["", "x", "17", "17-", "17-3,nonsense", "-1-0", "17-3,,,x;drop", "17-3,working,log", f"{2**64}-0"]
)
def test_an_id_that_is_none_of_ours_is_none(text: str) -> None:
    """Clients may send any text; ids that we did not write lead nowhere."""
    assert EventId.parse(text) is None


@pytest.mark.parametrize("ended", [False, True])
def test_a_client_that_goes_on_hears_what_failed_in_the_end(*, ended: bool) -> None:
    """Also artifacts that were unfinished before, and failed before the client came back; once."""
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
    """Events before the end of the task do not have its final state."""
    stayed = UpdateTranslator(view(), URL, extended=True)
    after = EventId.parse(str(stayed.event_id(POSITION)))
    goes_on = UpdateTranslator(view(state=TaskState.COMPLETED), URL, extended=True, after=after)
    (update,) = goes_on.translate(ToolCalled(iteration=1, call_id="c", name="search", arguments="{}"))
    assert isinstance(update, pb.TaskStatusUpdateEvent)
    assert update.status.state == pb.TASK_STATE_WORKING

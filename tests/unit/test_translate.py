"""Tasks and events as A2A messages."""

from datetime import UTC, datetime

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue

from gateway.translate import EVENTS_EXTENSION, UpdateTranslator, to_part, to_task
from workflows.contract.events import ArtifactChunk, StatusChanged, TaskEvent, ToolCalled, UsageReported
from workflows.contract.messages import AgentMessage, DataPart, Part, TextPart, Usage, UserMessage
from workflows.contract.tasks import Artifact, TaskState, TaskStatus, TaskView

AT = datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=UTC)


def view(*artifacts: Artifact, state: TaskState = TaskState.WORKING) -> TaskView:
    return TaskView(
        task_id="task",
        context_id="context",
        owner="owner",
        agent_id="agent",
        created_at=AT,
        status=TaskStatus(state=state, at=AT, message=said("thinking")),
        history=(
            UserMessage(message_id="u1", parts=(TextPart(text="hi"),), metadata={"a": 1}),
            AgentMessage(message_id="a1", parts=(TextPart(text="hello"),)),
        ),
        artifacts=artifacts,
    )


def said(text: str) -> AgentMessage:
    return AgentMessage(message_id="a2", parts=(TextPart(text=text),))


def artifact(
    *parts: Part, artifact_id: str = "response", complete: bool = False, failed: bool = False
) -> Artifact:
    return Artifact(artifact_id=artifact_id, name=artifact_id, parts=parts, complete=complete, failed=failed)


def chunk(index: int, text: str, *, artifact_id: str = "response", last: bool = False) -> ArtifactChunk:
    return ArtifactChunk(
        artifact_id=artifact_id,
        position=1,
        attempt=1,
        index=index,
        part=TextPart(text=text),
        last_chunk=last,
    )


def test_a_task_is_its_view() -> None:
    """Ids, status, history, artifacts: all of it, with times to the microsecond."""
    task = to_task(view(artifact(TextPart(text="answer"), DataPart(data={"n": [1, None]}))))

    assert MessageToDict(task) == {
        "id": "task",
        "contextId": "context",
        "status": {
            "state": "TASK_STATE_WORKING",
            "timestamp": "2026-11-21T01:02:03.456789Z",
            "message": {
                "messageId": "a2",
                "taskId": "task",
                "contextId": "context",
                "role": "ROLE_AGENT",
                "parts": [{"text": "thinking"}],
            },
        },
        "history": [
            {
                "messageId": "u1",
                "taskId": "task",
                "contextId": "context",
                "role": "ROLE_USER",
                "parts": [{"text": "hi"}],
                "metadata": {"a": 1.0},
            },
            {
                "messageId": "a1",
                "taskId": "task",
                "contextId": "context",
                "role": "ROLE_AGENT",
                "parts": [{"text": "hello"}],
            },
        ],
        "artifacts": [
            {
                "artifactId": "response",
                "name": "response",
                "parts": [{"text": "answer"}, {"data": {"n": [1.0, None]}}],
            }
        ],
    }


@pytest.mark.parametrize("state", TaskState)
def test_every_state_has_its_a2a_name(state: TaskState) -> None:
    """No state of ours is unknown to A2A."""
    assert pb.TaskState.Name(to_task(view(state=state)).status.state) == f"TASK_STATE_{state.name}"


@pytest.mark.parametrize("data", [None, True, 1.5, "text", [], {}, [1, [2]], {"a": {"b": None}}])
def test_any_json_is_data(data: JsonValue) -> None:
    """Data parts need not be objects."""
    part = to_part(DataPart(data=data))

    assert part.WhichOneof("content") == "data"
    assert MessageToDict(part.data) == data


@pytest.mark.parametrize(
    ("length", "expected"), [(None, ["u1", "a1"]), (0, []), (1, ["a1"]), (5, ["u1", "a1"])]
)
def test_history_length_takes_the_newest(length: int | None, expected: list[str]) -> None:
    """None means all."""
    task = to_task(view(), history_length=length)

    assert [message.message_id for message in task.history] == expected


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ((), False),
        ((TextPart(text=""),), False),
        ((TextPart(text=""), TextPart(text="x")), True),
        ((DataPart(data=None),), True),
    ],
)
def test_artifacts_without_content_are_hidden(parts: tuple[Part, ...], *, shown: bool) -> None:
    """A draft that was withdrawn is an artifact with empty text."""
    assert bool(to_task(view(artifact(*parts))).artifacts) == shown


@pytest.mark.parametrize(
    ("before", "chunks", "expected"),
    [
        ((), [(0, "a"), (1, "b")], [("a", False), ("b", True)]),
        ((TextPart(text="a"),), [(1, "b")], [("b", True)]),
        ((), [(0, ""), (1, "b"), (2, "c")], [("b", False), ("c", True)]),
        ((), [(0, "")], []),
        ((TextPart(text="draft"),), [(0, "")], [("", False)]),
        ((TextPart(text="draft"),), [(0, ""), (0, ""), (0, "new")], [("", False), ("new", False)]),
        ((), [(0, "a"), (0, ""), (0, "b"), (1, "")], [("a", False), ("", False), ("b", False), ("", True)]),
    ],
    ids=[
        "a draft from its start",
        "a draft that the snapshot has",
        "an empty beginning",
        "nothing at all",
        "a withdrawal",
        "a withdrawal twice",
        "a replaced draft with an empty end",
    ],
)
def test_chunks_append_to_what_the_client_has(
    before: tuple[Part, ...], chunks: list[tuple[int, str]], expected: list[tuple[str, bool]]
) -> None:
    """A client never appends to what it was not shown, and hears of withdrawals only of what it was."""
    translator = UpdateTranslator(view(artifact(*before)), extended=False)

    updates = [update for index, text in chunks for update in translator.translate(chunk(index, text))]

    sent = [update for update in updates if isinstance(update, pb.TaskArtifactUpdateEvent)]
    assert [(update.artifact.parts[0].text, update.append) for update in sent] == expected


def test_artifacts_are_told_apart() -> None:
    """What was shown of one artifact says nothing of another."""
    translator = UpdateTranslator(view(artifact(TextPart(text="a"))), extended=False)

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

    (update,) = UpdateTranslator(view(), extended=False).translate(event)

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
    extended = UpdateTranslator(view(), extended=True)
    extended.translate(StatusChanged(version=2, state=TaskState.AUTH_REQUIRED, at=AT))

    (update,) = extended.translate(event)

    assert UpdateTranslator(view(), extended=False).translate(event) == []
    assert isinstance(update, pb.TaskStatusUpdateEvent)
    assert update.status.state == pb.TASK_STATE_AUTH_REQUIRED
    assert MessageToDict(update.metadata)[EVENTS_EXTENSION]["kind"] == event.kind


def test_a_task_tells_what_it_used_and_what_it_left_unfinished() -> None:
    """The metadata of the status are the task's; an artifact that failed says so in its own."""
    usage: dict[str, JsonValue] = {"usage": {"input_tokens": 3, "output_tokens": 4, "cost": 0.25}}
    status = TaskStatus(state=TaskState.FAILED, at=AT, metadata=usage)
    artifacts = (artifact(TextPart(text="ha"), failed=True), artifact(TextPart(text="x"), artifact_id="log"))

    task = MessageToDict(to_task(view(*artifacts).model_copy(update={"status": status})))

    assert task["metadata"] == usage
    assert [found.get("metadata") for found in task["artifacts"]] == [{"status": "failed"}, None]


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
    translator = UpdateTranslator(seen, extended=False)
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

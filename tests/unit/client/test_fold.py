"""The state of a task after each update of A2A."""

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from pydantic import JsonValue

from everloop.client.changes import changes
from everloop.client.fold import Task, fold
from everloop.client.task_events import ArtifactChanged, Question, StatusChanged, TextDelta


def _update(update: dict[str, JsonValue]) -> pb.StreamResponse:
    return ParseDict(update, pb.StreamResponse())


def _chunk(text: str, *, append: bool, artifact_id: str = "a", media_type: str = "") -> pb.StreamResponse:
    part: JsonValue = {"text": text, "mediaType": media_type}
    artifact: JsonValue = {"artifactId": artifact_id, "parts": [part]}
    return _update({"artifactUpdate": {"taskId": "t", "artifact": artifact, "append": append}})


def _status(state: str, text: str = "") -> pb.StreamResponse:
    message: JsonValue = {"role": "ROLE_AGENT", "parts": [{"text": text}]}
    status: JsonValue = {"state": f"TASK_STATE_{state}", "message": message}
    return _update({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}})


def _folded(task: Task, *updates: pb.StreamResponse) -> Task:
    for update in updates:
        task = fold(task, update)
    return task


@pytest.mark.parametrize(
    ("updates", "parts"),
    [
        ([_chunk("a", append=False), _chunk("b", append=True)], ["ab"]),
        ([_chunk("a", append=False), _chunk("b", append=False)], ["b"]),
        ([_chunk("a", append=True), _chunk("b", append=True)], ["ab"]),
        ([_chunk("a", append=False), _chunk("b", append=True, media_type="text/html")], ["a", "b"]),
    ],
)
def test_an_artifact_grows_or_is_replaced(updates: list[pb.StreamResponse], parts: list[str]) -> None:
    """A2A 1.0 §4.2.2; consecutive plain texts are one."""
    assert [part.text for part in _folded(Task(), *updates).artifacts["a"].parts] == parts


def test_an_update_leaves_the_earlier_state_as_it_was() -> None:
    """The fold is pure: the states before and after an update can be compared."""
    before = _folded(Task(), _chunk("a", append=False), _status("WORKING"))
    after = _folded(before, _chunk("b", append=True), _status("COMPLETED", "Done."))

    assert (before.artifacts["a"].text, before.state) == ("a", "working")
    assert (after.artifacts["a"].text, after.state) == ("ab", "completed")


def test_a_message_in_place_of_a_task_is_the_answer() -> None:
    """It has no task id."""
    task = fold(
        Task(), _update({"message": {"messageId": "m", "contextId": "c", "parts": [{"text": "Hi."}]}})
    )

    result = task.result()
    assert (task.id, result.context_id, result.text, result.is_done) == ("", "c", "Hi.", True)


def test_an_answered_question_is_old_until_the_message_arrives() -> None:
    """The history of a snapshot names the message, or the task goes on."""
    waiting: JsonValue = {"state": "TASK_STATE_INPUT_REQUIRED"}
    old = _update({"task": {"id": "t", "status": waiting}})
    message: JsonValue = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "red"}]}
    taken = _update({"task": {"id": "t", "status": waiting, "history": [message]}})
    task = Task(awaited="m")

    assert not _folded(task, old).is_waiting
    assert _folded(task, old, taken).is_waiting
    assert _folded(task, old, _status("WORKING"), old).is_waiting


def test_a_snapshot_reports_only_what_is_new() -> None:
    """In addition to any number of earlier updates."""
    before = _folded(Task(), _status("WORKING"), _chunk("ab", append=False, artifact_id="response"))
    parts: JsonValue = [{"text": "abc"}]
    artifacts: JsonValue = [{"artifactId": "response", "parts": parts}, {"artifactId": "b", "parts": parts}]
    status: JsonValue = {"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": [{"text": "Which?"}]}}
    snapshot = _update({"task": {"id": "t", "artifacts": artifacts, "status": status}})
    after = fold(before, snapshot)

    events = list(changes(before, snapshot, after, is_partial=False))
    assert [type(event) for event in events] == [
        TextDelta,
        TextDelta,
        ArtifactChanged,
        StatusChanged,
        Question,
    ]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["c", "abc"]
    assert not list(changes(after, snapshot, fold(after, snapshot), is_partial=False))

"""Tasks as A2A messages."""

import base64
import json

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, MessageToJson, Parse
from pydantic import JsonValue

from everloop.runtime.protocol.a2a_tasks import TaskUrl, task_url_of, to_part, to_task
from everloop.workflows.approvals import question_message
from everloop.workflows.contract.messages import DataPart, FilePart, Part, StoredPartRef, TextPart, ToolCall
from everloop.workflows.contract.questions import Question, QuestionKind
from everloop.workflows.contract.tasks import Artifact, TaskState, TaskStatus
from tests.unit.gateway.rendered_tasks import AT, URL, artifact, view

TASK_URL = TaskUrl("task", "context", URL)


UNSENDABLE: dict[str, JsonValue] = {
    "a number beyond a double": 10**400,
    "a whole number that no double is": {"id": 2**53 + 1},
    "nested too deeply": json.loads("[" * 32 + "]" * 32),
}


@pytest.mark.parametrize("value", UNSENDABLE.values(), ids=UNSENDABLE)
def test_what_protobuf_cannot_hold_is_text(value: JsonValue) -> None:
    """The task can still be read."""
    part = to_part(DataPart(data=value, filename="a.json"), TASK_URL)
    assert json.loads(part.text) == value
    assert (part.media_type, part.filename) == ("application/json", "a.json")


def test_a_form_with_any_bounds_is_data() -> None:
    """For example a 64-bit field: a program has to find the question, and the server checks the answer."""
    schema: dict[str, JsonValue] = {"properties": {"id": {"maximum": 2**63 - 1, "enum": [1, 2, True]}}}
    call = ToolCall(id="c", name="act", arguments="{}")
    question = Question(id="q", kind=QuestionKind.DATA, text="Which?", call=call, json_schema=schema)

    _, part = question_message("m", [question]).parts

    asked = json.loads(MessageToJson(to_part(part, TASK_URL)))["data"]["questions"][0]["json_schema"]
    assert asked == {"properties": {"id": {"maximum": 2**63, "enum": [1, 2, True]}}}


@pytest.mark.parametrize("number", [2**53, -(2**53), 10**18, 2**80, 0.1])
def test_a_number_that_a_double_is_stays_data(number: float) -> None:
    """It is unchanged, at any size."""
    part = to_part(DataPart(data={"id": number}), TASK_URL)
    assert json.loads(MessageToJson(part))["data"]["id"] == number


@pytest.mark.parametrize("brackets", [('{"a":', "}"), ("[", "]")])
def test_the_deepest_value_can_be_read_by_clients(brackets: tuple[str, str]) -> None:
    """In the deepest message that holds one, with both encodings."""
    value = json.loads(brackets[0] * 30 + "1" + brackets[1] * 30)
    part = to_part(DataPart(data=value), TASK_URL)
    listed = pb.ListTasksResponse(tasks=[pb.Task(artifacts=[pb.Artifact(parts=[part])])])
    assert part.HasField("data")
    assert pb.ListTasksResponse.FromString(listed.SerializeToString()) == listed
    assert Parse(MessageToJson(listed), pb.ListTasksResponse()) == listed


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ((), False),
        ((TextPart(text=""),), False),
        ((TextPart(text=""), TextPart(text="x")), True),
        ((DataPart(data=None),), True),
        ((TextPart(text="", filename="empty.txt"),), True),
        ((FilePart(),), True),
    ],
)
def test_artifacts_without_content_are_hidden(parts: tuple[Part, ...], *, shown: bool) -> None:
    """A withdrawn draft is an artifact with empty text."""
    assert bool(to_task(view(artifact(*parts)), URL).artifacts) == shown


EMPTY = TextPart(text="")


@pytest.mark.parametrize(
    ("empty", "state", "shown"),
    [
        (artifact(EMPTY, artifact_id="log"), TaskState.WORKING, True),
        (artifact(artifact_id="log"), TaskState.INPUT_REQUIRED, True),
        (artifact(EMPTY), TaskState.WORKING, False),
        (artifact(EMPTY, artifact_id="log", complete=True), TaskState.WORKING, False),
        (artifact(EMPTY, artifact_id="log", failed=True), TaskState.WORKING, False),
        (artifact(EMPTY, artifact_id="log"), TaskState.COMPLETED, False),
    ],
    ids=["begun", "nothing", "an answer", "complete", "failed", "of a task that is over"],
)
def test_an_artifact_that_has_only_begun_is_shown(empty: Artifact, state: TaskState, *, shown: bool) -> None:
    """The following chunks append to it; an empty one that ended is left out."""
    assert bool(to_task(view(empty, state=state), URL).artifacts) == shown


def test_a_task_tells_what_it_used_and_what_it_left_unfinished() -> None:
    """The metadata of the status are the task's; an artifact that failed is marked in its own."""
    usage: dict[str, JsonValue] = {"usage": {"input_tokens": 3, "output_tokens": 4, "cost": 0.25}}
    status = TaskStatus(state=TaskState.FAILED, at=AT, metadata=usage)
    artifacts = (artifact(TextPart(text="ha"), failed=True), artifact(TextPart(text="x"), artifact_id="log"))
    task = MessageToDict(to_task(view(*artifacts).model_copy(update={"status": status}), URL))
    assert task["metadata"] == usage
    assert [found.get("metadata") for found in task["artifacts"]] == [{"status": "failed"}, None]


STORED = FilePart(
    media_type="image/png", filename="p.png", stored=StoredPartRef(artifact_id="a/b c", index=2), size=200_000
)
PARTS: list[tuple[Part, dict[str, JsonValue]]] = [
    (TextPart(text="x"), {"text": "x"}),
    (
        TextPart(text="a,b", media_type="text/csv", filename="t.csv"),
        {"text": "a,b", "mediaType": "text/csv", "filename": "t.csv"},
    ),
    (DataPart(data=1, media_type="application/json"), {"data": 1, "mediaType": "application/json"}),
    (
        FilePart(media_type="image/png", filename="p.png", content=base64.b64encode(b"\x00png").decode()),
        {"raw": base64.b64encode(b"\x00png").decode(), "mediaType": "image/png", "filename": "p.png"},
    ),
    (FilePart(), {"raw": "", "mediaType": "application/octet-stream"}),
    (
        FilePart(media_type="text/css", url="https://there.example/s.css"),
        {"url": "https://there.example/s.css", "mediaType": "text/css"},
    ),
    (
        STORED,
        {
            "url": f"{URL}artifacts/its%20%2F%20context/a%2Fb%20c/parts/2",
            "mediaType": "image/png",
            "filename": "p.png",
        },
    ),
]


@pytest.mark.parametrize(("part", "expected"), PARTS, ids=[str(number) for number in range(len(PARTS))])
def test_a_part_says_what_it_is_and_where_its_content_is(part: Part, expected: dict[str, JsonValue]) -> None:
    """Media type and file name are included; stored content has an address of this gateway."""
    task_url = task_url_of(view(context_id="its / context"), URL)
    assert MessageToDict(to_part(part, task_url)) == expected

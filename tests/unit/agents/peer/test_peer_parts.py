"""Messages and questions of a peer, in our own terms."""

import json

import pytest
from a2a.types import a2a_pb2 as pb
from pydantic import JsonValue

from everloop.agents.peer.peer_answers import MAX_INLINE, answer_of, value_part
from everloop.agents.peer.questions import meaning, question_of
from everloop.client.content import plain
from everloop.client.fold import Task, task_of
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import Question, QuestionKind

_CALL = ToolCall(id="c", name="ann", arguments="{}")


def _text(artifact_id: str, text: str) -> pb.Artifact:
    return pb.Artifact(artifact_id=artifact_id, parts=[pb.Part(text=text)])


def _status(
    text: str, *, state: int = pb.TaskState.TASK_STATE_INPUT_REQUIRED, data: JsonValue = None
) -> pb.TaskStatus:
    parts = [pb.Part(text=text)] if text else []
    parts += [value_part(data)] if data else []
    return pb.TaskStatus(state=pb.TaskState.Name(state), message=pb.Message(parts=parts))


def _question(status: pb.TaskStatus, problem: str = "") -> Question:
    required = question_of(
        Task(status=status), "ann.0", lambda text: text.replace("s3cret", "[secret]"), problem
    )
    return required.question("q", _CALL)


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None]}, [True], 3, None])
def test_data_comes_back_as_it_was(value: JsonValue) -> None:
    """Whole numbers too, which protobuf does not have."""
    assert repr(plain(value_part(value).data)) == repr(value)


@pytest.mark.parametrize("value", [{"id": 2**53 + 1}, [10**400]])
def test_data_that_would_become_others_are_text(value: JsonValue) -> None:
    """A2A carries numbers as doubles; peers accept data as text, too."""
    part = value_part(value)
    assert (json.loads(part.text), part.media_type) == (value, "application/json")


def test_an_answer_is_what_was_said_last_and_in_artifacts() -> None:
    """Repetitions are left out; long texts are cut, except the answer; then come files taken over."""
    long = "x" * (MAX_INLINE + 1)
    task = task_of(
        pb.Task(
            context_id="c1",
            artifacts=[_text("response", long), _text("other", long), _text("more", "more")],
            status=_status("more"),
        ),
        is_everloop=False,
    )

    answer = answer_of(task, ["ann-other-1 (Other)", "ann-more-2: half of it"])

    assert answer.startswith(
        f"{long}\n\n{long[:-1]}\n(cut; the artifact that was taken over has all of it)\n\n"
    )
    assert answer.endswith("more\n\nArtifacts: ann-other-1 (Other); ann-more-2: half of it\n\n(context: c1)")


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        ({"kind": "selection", "options": ["a", "b"]}, QuestionKind.SELECTION),
        ({"kind": "data", "json_schema": {"type": "object"}}, QuestionKind.DATA),
        ({"kind": "selection", "options": "nonsense"}, QuestionKind.CLARIFICATION),
        ({"kind": "data", "json_schema": {"$ref": "http://elsewhere"}}, QuestionKind.CLARIFICATION),
    ],
)
def test_an_everloop_says_what_answer_it_wants(described: dict[str, JsonValue], kind: QuestionKind) -> None:
    """Our user gets the same question, in the words of that question alone.

    Malformed data become free text.
    """
    data: JsonValue = {
        "questions": [{"id": "q1", "text": "Which?", **described}, {"id": "q2", "text": "And?"}]
    }

    question = _question(_status("Which?\n(choose)\n\nAnd?", data=data))

    assert (question.kind, question.text) == (kind, "Which?")


def test_a_question_is_the_same_beside_others() -> None:
    """An Everloop lists all open questions; a later one does not change the first."""

    def asking(*questions: JsonValue) -> Task:
        return Task(status=_status(f"1 of {len(questions)}", data={"questions": list(questions)}))

    one: JsonValue = {"id": "1", "kind": "confirmation", "text": "Now?"}
    other: JsonValue = {"id": "2", "kind": "clarification", "text": "Who?"}

    assert meaning(asking(one)) == meaning(asking(one, other)) != meaning(asking(other))


@pytest.mark.parametrize("questions", [[], ["Which?"], "Which?", None])
def test_data_of_others_is_no_description(questions: JsonValue) -> None:
    """Then the text is the question, without our secrets."""
    question = _question(_status("s3cret?", data={"questions": questions, "x": 1}), "no, try again")

    assert (question.kind, question.text) == (QuestionKind.CLARIFICATION, "no, try again\n\n[secret]?")

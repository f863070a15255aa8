"""What counts as an answer to a question."""

import pytest
from pydantic import JsonValue

from workflows.contract.messages import DataPart, TextPart, ToolCall, UserMessage
from workflows.contract.questions import (
    WITHHELD,
    InvalidAnswerError,
    Question,
    QuestionKind,
    answer_with,
    expected,
    match_question,
    read_answer,
)

CALL = ToolCall(id="a", name="x", arguments="{}")


def question(kind: str, id_: str = "a") -> Question:
    options = ("red", "Blue") if kind == "selection" else ()
    return Question(id=id_, kind=QuestionKind(kind), text="?", call=CALL, options=options)


def said(*parts: str | dict[str, JsonValue], **metadata: JsonValue) -> UserMessage:
    made = tuple(TextPart(text=p) if isinstance(p, str) else DataPart(data=p) for p in parts)
    return UserMessage(message_id="m", parts=made, metadata=metadata)


ANSWERS: list[tuple[str, UserMessage, tuple[bool, JsonValue, str]]] = [
    ("confirmation", said("yes"), (True, True, "")),
    ("confirmation", said(" OK. "), (True, True, "")),
    ("confirmation", said("Approve, it is fine"), (True, True, "it is fine")),
    ("confirmation", said("No: too dear"), (False, False, "too dear")),
    ("confirmation", said({"approved": True, "note": "n"}), (True, True, "n")),
    ("confirmation", said("look:", {"approved": False, "note": "n"}), (False, False, "n")),
    ("selection", said("blue"), (True, "Blue", "")),
    ("selection", said({"selected": "red"}), (True, "red", "")),
    ("clarification", said("anything"), (True, "anything", "")),
    ("clarification", said({"a": 1}), (True, {"a": 1}, "")),
    ("data", said({"a": 1}), (True, {"a": 1}, "")),
    ("data", said({"question": "a", "answer": [1]}), (True, [1], "")),
    ("data", said({"question": "a", "n": 1}), (True, {"n": 1}, "")),
    ("data", said("[1, 2]"), (True, [1, 2], "")),
    ("data", said("plain"), (True, "plain", "")),
    ("data", said({"approved": False, "note": "no data"}), (False, False, "no data")),
    ("auth", said("(withheld)", **{WITHHELD: True}), (True, None, "")),
]


@pytest.mark.parametrize(("kind", "message", "answer"), ANSWERS)
def test_answers(kind: str, message: UserMessage, answer: tuple[bool, JsonValue, str]) -> None:
    """Text for people, data for programs; any question can be rejected by data."""
    given = read_answer(question(kind), message)
    assert (given.approved, given.value, given.note) == answer
    assert given.by == "user"


NO_ANSWERS = [
    ("confirmation", said("perhaps")),
    ("confirmation", said("yesterday")),
    ("confirmation", said("nothing")),
    ("confirmation", said("")),
    ("confirmation", said({"approved": "yes"})),
    ("selection", said("green")),
    ("selection", said({"selected": 1})),
    ("clarification", said("  ")),
    ("auth", said("hunter2")),
]


@pytest.mark.parametrize(("kind", "message"), NO_ANSWERS)
def test_what_is_no_answer_is_refused_with_what_is_expected(kind: str, message: UserMessage) -> None:
    """What was said is not repeated: it might be a secret."""
    asked = question(kind)
    with pytest.raises(InvalidAnswerError) as refused:
        read_answer(asked, message)
    assert expected(asked) in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_only_question_needs_no_name() -> None:
    """A name must fit all the same."""
    one, two = question("data", "a"), question("data", "b")
    assert match_question([one], said("x")) == one
    assert match_question([one, two], said("x", question="b")) == two
    assert match_question([one, two], said({"question": "b"})) == two
    for open_, message in [([one], said("x", question="b")), ([one, two], said("x")), ([], said("x"))]:
        with pytest.raises(InvalidAnswerError, match="name one of them"):
            match_question(open_, message)


def test_an_operator_may_not_hand_over_a_secret() -> None:
    """It would stand in the history of the workflow."""
    with pytest.raises(InvalidAnswerError):
        answer_with(question("auth"), "hunter2", by="operator")
    assert not answer_with(question("auth"), {"approved": False}, by="operator").approved

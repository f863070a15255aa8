"""Valid answers to a question."""

import pytest
from pydantic import JsonValue

from everloop.workflows.contract.messages import DataPart, TextPart, ToolCall, UserMessage
from everloop.workflows.contract.questions import (
    WITHHELD,
    YES_OR_NO,
    InvalidAnswerError,
    Question,
    QuestionKind,
    answer_with,
    expected,
    match_question,
    read_answer,
    read_yes_or_no,
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
    ("confirmation", said("No!"), (False, False, "")),
    ("confirmation", said("yes", {"question": "a"}), (True, True, "")),
    ("confirmation", said({"question": "a", "answer": "yes"}), (True, True, "")),
    ("confirmation", said({"approved": True, "note": "n"}), (True, True, "n")),
    ("confirmation", said({"question": "a", "approved": False, "note": "n"}), (False, False, "n")),
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
    ("auth", said("No."), (False, False, "")),
    ("auth", said("(withheld)", **{WITHHELD: True}), (True, None, "")),
]


@pytest.mark.parametrize(("kind", "message", "answer"), ANSWERS)
def test_answers(kind: str, message: UserMessage, answer: tuple[bool, JsonValue, str]) -> None:
    """Text for people, data for programs; any question can be rejected by data."""
    given = read_answer(question(kind), message)
    assert (given.approved, given.value, given.note) == answer
    assert given.by == "user"


YES = (
    *(
        "Yes",
        " OK. ",
        "OKAY!",
        "*ja*",
        "Oui.",
        "D\u2019accord",
        "\xa1S\xed!",
        "si\u0301",
        "s\xec",
        "va  bene",
    ),
    *("Sim", "akkoord", "Tak.", "はい。", "「承認します」", "好的\uff01", "\uff39\uff25\uff33"),
)
NO = ("no", "N", "Nein!", "non", "NÃO", "nee", "Nie.", "いいえ", "不同意", "拒绝。")
BARE = [*((word, True) for word in YES), *((word, False) for word in NO)]


@pytest.mark.parametrize(("text", "meaning"), BARE)
def test_a_bare_yes_or_no_counts_in_many_languages(text: str, meaning: bool) -> None:  # noqa: FBT001 -- a table
    """In any case, with any surrounding text, and in any Unicode form."""
    assert read_answer(question("confirmation"), said(text)).approved is meaning


def test_no_word_is_yes_in_one_language_and_no_in_another() -> None:
    """No word of the table may have two meanings."""
    meanings = [
        {word.strip() for words in column for word in words.split(",")}
        for column in zip(*YES_OR_NO.values(), strict=True)
    ]
    assert meanings[0] & meanings[1] == set()
    assert all(read_yes_or_no(word) is True for word in meanings[0])
    assert all(read_yes_or_no(word) is False for word in meanings[1])


BEGIN_LIKE_ANSWERS = [
    *("Okay wait, stop", "Approve nothing", "y'all stop", "OK thanks. But do not send any money yet."),
    *("No problem, go ahead", "Approve, it is fine", "No: too dear", "yes?", "yes no", "yes\n\nno", "ok ok"),
    *(
        "ja nein",
        "sí, pero no",
        "好不好",
        "はい\uff1f",
        "はいではない",
        "confirm nothing",
        "not ok",
        "👍",
        "да",
    ),
]


@pytest.mark.parametrize("text", BEGIN_LIKE_ANSWERS)
def test_what_only_begins_like_a_yes_or_no_is_refused(text: str) -> None:
    """The refusal repeats the question and the form of its answer."""
    asked = question("confirmation").model_copy(update={"text": "Send 500 to Ann?"})
    with pytest.raises(InvalidAnswerError) as refused:
        read_answer(asked, said(text))
    assert "Send 500 to Ann?" in str(refused.value)
    assert 'answer "yes" or "no", and nothing else' in str(refused.value)


NO_ANSWERS = [
    ("confirmation", said("perhaps")),
    ("confirmation", said("yesterday")),
    ("confirmation", said("nothing")),
    ("confirmation", said("")),
    ("confirmation", said({"approved": "yes"})),
    ("confirmation", said({"approved": True, "amount": 5})),
    ("confirmation", said("but not today", {"approved": True})),
    ("confirmation", said({"approved": True}, {"approved": False})),
    ("confirmation", said("yes", "but not today")),
    ("data", said("  ")),
    ("selection", said("green")),
    ("selection", said({"selected": 1})),
    ("clarification", said("  ")),
    ("auth", said("hunter2")),
]


@pytest.mark.parametrize(("kind", "message"), NO_ANSWERS)
def test_what_is_no_answer_is_refused_with_what_is_expected(kind: str, message: UserMessage) -> None:
    """The rejected text is not repeated: it might be a secret."""
    asked = question(kind)
    with pytest.raises(InvalidAnswerError) as refused:
        read_answer(asked, message)
    assert expected(asked) in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_message_without_a_name_answers_the_oldest_question() -> None:
    """A name must fit all the same."""
    one, two = question("data", "a"), question("data", "b")
    assert match_question([one, two], said("x")) == one
    assert match_question([one, two], said("x", question="b")) == two
    assert match_question([one, two], said({"question": "b"})) == two
    for open_, message in [([one], said("x", question="b")), ([], said("x"))]:
        with pytest.raises(InvalidAnswerError, match="is open; name another one"):
            match_question(open_, message)


def test_an_operator_may_not_hand_over_a_secret() -> None:
    """It would be in the history of the workflow."""
    with pytest.raises(InvalidAnswerError):
        answer_with(question("auth"), "hunter2", by="operator")
    assert not answer_with(question("auth"), {"approved": False}, by="operator").approved

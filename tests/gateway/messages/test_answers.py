"""Answers to the questions of a task: checked by the gateway, and stripped of secrets."""

import asyncio
import json

import pytest
from a2a.utils.errors import InvalidParamsError
from pydantic import JsonValue

from everloop.gateway.errors import AnswerInvalidError
from everloop.gateway.operations.question_answers import Answers
from everloop.stores.secrets import Secrets
from everloop.workflows.contract.messages import DataPart, FilePart, Part, TextPart, UserMessage
from everloop.workflows.contract.questions import WITHHELD, Question, QuestionKind
from everloop.workflows.contract.tasks import TaskState, TaskStatus, TaskView
from tests.gateway.messages.questions import SCHEMA, ask, kept
from tests.stores.examples import answered, submitted
from tests.support.doubling import doubling, small_budget
from tests.support.stores import database

pytestmark = pytest.mark.usefixtures("redis")


def waiting(*questions: Question, state: TaskState = TaskState.INPUT_REQUIRED) -> TaskView:
    status = TaskStatus(state=state, at=submitted().created_at, questions=questions)
    return answered(submitted("task"), "run", 1, status=status)


def working(*questions: Question) -> TaskView:
    return waiting(*questions, state=TaskState.WORKING)


def answering(message: UserMessage, question: str = "q") -> UserMessage:
    """Return the message as the gateway passes it on: with the question that it answers."""
    return message.model_copy(update={"answers": question})


def says(*parts: Part | str | JsonValue, message_id: str = "m", **metadata: JsonValue) -> UserMessage:
    """Return a message; a string is a text part, other JSON a data part."""
    read = [TextPart(text=p) if isinstance(p, str) else p for p in parts]
    data = [p if isinstance(p, TextPart | DataPart | FilePart) else DataPart(data=p) for p in read]
    return UserMessage(message_id=message_id, parts=tuple(data), metadata=metadata)


WRONG_DATA = [
    ({"age": 7}, '{"minimum": 18} at $.age'),
    ({"age": "s3cret"}, '{"type": "integer"} at $.age'),
    ({"name": "s3cret"}, '{"required": ["age"]} at $;'),
    ({"age": 20, "extra": "s3cret"}, '{"additionalProperties": false} at $;'),
    ("s3cret", '{"type": "object"} at $;'),
    (["s3cret"], '{"type": "object"} at $;'),
]


@pytest.mark.parametrize(("data", "words"), WRONG_DATA)
async def test_data_that_do_not_fit_are_refused(data: JsonValue, words: str) -> None:
    """The error names the place, the rule and the whole schema, and repeats nothing of the answer."""
    answers = Answers(Secrets(database()))
    with pytest.raises(AnswerInvalidError) as refused:
        await answers.take_in(waiting(ask(QuestionKind.DATA, json_schema=SCHEMA)), says(data))
    assert words in str(refused.value)
    assert json.dumps(SCHEMA) in str(refused.value)
    assert "s3cret" not in str(refused.value)


FITTING = [
    says({"age": 18}),
    says('{"age": 18}'),
    says({"question": "q", "age": 18}),
    says({"question": "q", "answer": {"age": 18}}),
    says({"approved": False, "note": "no"}),
]


@pytest.mark.usefixtures(small_budget.__name__)
async def test_questions_that_no_check_comes_to_an_end_of_stop_nobody() -> None:
    """Eight answers at once to such a question leave the gateway its threads, and are accepted unchecked."""
    answers, asked = Answers(Secrets(database())), ask(QuestionKind.DATA, json_schema=doubling())
    taken = [asyncio.create_task(answers.take_in(waiting(asked), says({"a": 1}))) for _ in range(8)]
    for _ in range(20):
        await asyncio.to_thread(str)
    assert not any(answer.done() for answer in taken)
    assert [message.answers for message in await asyncio.gather(*taken)] == ["q"] * 8


async def test_a_pattern_of_a_question_is_matched_in_linear_time() -> None:
    """Patterns of any author."""
    asked = ask(QuestionKind.DATA, json_schema={"properties": {"a": {"pattern": "^(a+)+$"}}})
    with pytest.raises(AnswerInvalidError, match="breaks the rule"):
        await Answers(Secrets(database())).take_in(waiting(asked), says({"a": "a" * 41 + "!"}))


@pytest.mark.parametrize("message", FITTING)
async def test_data_that_fit_go_on(message: UserMessage) -> None:
    """An answer as data, as JSON text, or beside the name of its question; declining needs to fit nothing."""
    view = waiting(ask(QuestionKind.DATA, json_schema=SCHEMA))
    assert await Answers(Secrets(database())).take_in(view, message) == answering(message)


SECRETS: list[tuple[UserMessage, JsonValue]] = [
    (says("k3y", question="q"), "k3y"),
    (says("no", question="q"), "no"),
    (says("secret: k3y"), "k3y"),
    (says(" SECRET:k3y "), "k3y"),
    (says({"token": "k3y"}, question="q"), {"token": "k3y"}),
    (says("here it is", {"token": "k3y"}, key="k3y", question="q"), {"token": "k3y"}),
    (says({"question": "q", "answer": "k3y"}), "k3y"),
    (says("k3y", {"question": "q"}), "k3y"),
    (says({"question": "q", "user": "u", "password": "k3y"}), {"user": "u", "password": "k3y"}),
]


@pytest.mark.parametrize(("message", "secret"), SECRETS)
async def test_a_secret_is_taken_out(message: UserMessage, secret: JsonValue) -> None:
    """It is stored under the name of its question; parts and metadata of the client are not passed on."""
    secrets = Secrets(database())
    taken = await Answers(secrets).take_in(waiting(ask(QuestionKind.AUTH)), message)
    assert taken.model_dump(exclude={"role"}) == {
        "message_id": "m",
        "parts": (TextPart(text="(a secret was supplied)").model_dump(),),
        "answers": "q",
        "references": (),
        "extensions": (),
        "size": 0,
        "metadata": {WITHHELD: True},
    }
    assert await kept(secrets) == secret


NO_SECRETS = {
    "a remark": (says("hello?"), "send the secret in a message whose metadata"),
    "a word": (says("k3y"), "send the secret in a message whose metadata"),
    "data without a name": (says({"token": "k3y"}), "send the secret in a message whose metadata"),
    "empty text": (says("  ", question="q"), "is empty"),
    "empty in a chat": (says("secret:  "), "is empty"),
    "empty object": (says({}, question="q"), "is empty"),
    "nothing but a name": (says({"question": "q"}), "is empty"),
    "null": (says(None, question="q"), "is empty"),
    "another name": (says("k3y", question="other"), "no question 'other' is open"),
    "a name that is none": (says("k3y", question="x" * 300), "has 300 bytes"),
    "an empty name": (says("k3y", question=""), "is empty"),
    "data with a question of their own": (says({"question": "k3y?"}), "the data of the message name no open"),
    "declined with text": (says("k3y", {"approved": False}), "to decline question 'q'"),
    "declined with more data": (says({"approved": False, "token": "k3y"}), "to decline question 'q'"),
}


@pytest.mark.parametrize(("message", "words"), NO_SECRETS.values(), ids=NO_SECRETS.keys())
async def test_what_may_hold_a_secret_is_refused_rather_than_passed_on(
    message: UserMessage, words: str
) -> None:
    """If a message may or may not be a secret, it is not passed on, and nothing is stored."""
    secrets = Secrets(database())
    with pytest.raises((AnswerInvalidError, InvalidParamsError)) as refused:
        await Answers(secrets).take_in(waiting(ask(QuestionKind.AUTH)), message)
    assert words in str(refused.value)
    assert "k3y" not in str(refused.value)
    assert await kept(secrets) is None


@pytest.mark.parametrize("parts", [({"approved": False, "note": "not mine"},), ("No.",)])
async def test_a_client_may_decline_to_give_a_secret(parts: tuple[JsonValue, ...]) -> None:
    """A declined answer is passed on unchanged, except for the client's own metadata."""
    secrets = Secrets(database())
    taken = await Answers(secrets).take_in(waiting(ask(QuestionKind.AUTH)), says(*parts, key="k3y"))
    assert taken == answering(says(*parts))
    assert await kept(secrets) is None


async def test_a_secret_in_a_chat_goes_nowhere_once_its_question_is_closed() -> None:
    """It would be passed on as a message that is not secret."""
    with pytest.raises(AnswerInvalidError, match="does not ask for a secret now") as refused:
        await Answers(Secrets(database())).take_in(working(), says("secret: k3y"))
    assert "k3y" not in str(refused.value)


async def test_of_several_questions_each_can_be_named() -> None:
    """A message without a name answers the oldest.

    A secret without a name, the oldest that asks for a secret.
    """
    secrets = Secrets(database())
    view = waiting(ask(QuestionKind.DATA, "q1"), ask(QuestionKind.AUTH, "q2"), ask(QuestionKind.AUTH, "q3"))
    answers = Answers(secrets)
    plain = await answers.take_in(view, says("one"))
    two = await answers.take_in(view, says("secret: two", message_id="2"))
    three = await answers.take_in(view, says({"question": "q3", "answer": "three"}, message_id="3"))
    assert plain == answering(says("one"), "q1")
    assert [(m.answers, m.metadata) for m in (two, three)] == [(q, {WITHHELD: True}) for q in ("q2", "q3")]
    assert [await kept(secrets, message_id) for message_id in "23"] == ["two", "three"]


@pytest.mark.parametrize(
    "view", [waiting(ask(QuestionKind.CONFIRMATION)), working(), working(ask(QuestionKind.AUTH))]
)
async def test_an_answer_to_a_question_that_is_not_open_is_refused(view: TaskView) -> None:
    """The question was answered or timed out; the message may be a secret, and is not passed on."""
    secrets = Secrets(database())
    with pytest.raises(AnswerInvalidError, match="no question 'old' is open") as refused:
        await Answers(secrets).take_in(view, says("k3y", question="old"))
    assert "k3y" not in str(refused.value)
    assert await kept(secrets) is None


@pytest.mark.parametrize("message", [says("k3y"), says({"token": "k3y"}), says({"question": "k3y?"})])
async def test_while_a_task_works_a_secret_has_to_name_its_question(message: UserMessage) -> None:
    """A message without a name may be for the agent, or be the secret: it is refused with the reason."""
    secrets = Secrets(database())
    view = working(ask(QuestionKind.AUTH), ask(QuestionKind.CONFIRMATION, "sure"))
    with pytest.raises(AnswerInvalidError, match="name a question in the metadata of the message") as refused:
        await Answers(secrets).take_in(view, message)
    assert "'q': send the secret" in str(refused.value)
    assert "k3y" not in str(refused.value)
    assert await kept(secrets) is None


@pytest.mark.parametrize(
    "view", [working(), working(ask(QuestionKind.CONFIRMATION))], ids=["asks nothing", "works"]
)
@pytest.mark.parametrize(
    "message", [says("anything"), says({"question": "What is it?"}), says("yes", question=None)]
)
async def test_a_task_that_waits_for_nobody_takes_any_message(view: TaskView, message: UserMessage) -> None:
    """A message to a working task is an answer only if it names an open question.

    Or a secret is asked for.
    """
    assert await Answers(Secrets(database())).take_in(view, message) is message


async def test_a_message_that_says_that_it_is_no_answer_is_none() -> None:
    """Its author had not seen the question, which was asked while the message was on its way."""
    view = waiting(ask(QuestionKind.CONFIRMATION))
    with pytest.raises(AnswerInvalidError, match="the task asks something by now"):
        await Answers(Secrets(database())).take_in(view, says("yes", question=None))

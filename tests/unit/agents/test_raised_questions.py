"""Questions that tools raise: what people are asked, and what is refused because nobody could answer it."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest
from pydantic import BaseModel, JsonValue

from everloop.agents.errors import QuestionDefinitionError
from everloop.agents.questions import AuthRequired, InputRequired, QuestionRequired
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import Question, QuestionKind

CALL = ToolCall(id="call", name="book", arguments="{}")
DAY = timedelta(days=1)


class Booking(BaseModel):
    """Where and when."""

    hour: int


SCHEMA: dict[str, JsonValue] = {"type": "object", "required": ["hour"]}


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        (InputRequired("Who?"), Question(id="q", kind=QuestionKind.CLARIFICATION, text="Who?", call=CALL)),
        (
            InputRequired("Sure?", "confirmation", timeout=DAY, default=False),
            Question(
                id="q", kind=QuestionKind.CONFIRMATION, text="Sure?", call=CALL, timeout=86_400, default=False
            ),
        ),
        (
            InputRequired("When?", "selection", options=["noon", "night"]),
            Question(id="q", kind=QuestionKind.SELECTION, text="When?", call=CALL, options=("noon", "night")),
        ),
        (
            InputRequired("When?", "data", schema=Booking),
            Question(
                id="q",
                kind=QuestionKind.DATA,
                text="When?",
                call=CALL,
                json_schema=Booking.model_json_schema(),
            ),
        ),
        (
            AuthRequired("Your token?", "token"),
            Question(id="q", kind=QuestionKind.AUTH, text="Your token?", call=CALL, secret_name="token"),
        ),
    ],
    ids=["clarification", "confirmation", "selection", "data", "auth"],
)
def test_what_a_tool_raises_is_a_question(required: QuestionRequired, expected: Question) -> None:
    """All that it said stands in the question, with the call and the id that it is given."""
    assert required.question("q", CALL) == expected


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda: InputRequired(" "), "has no text"),
        (lambda: InputRequired("?", timeout=timedelta(0)), "some time"),
        (lambda: InputRequired("?", timeout=timedelta.max), "at most 3650 days"),
        (lambda: AuthRequired("?", "token", timeout=timedelta(days=3651)), "at most 3650 days"),
        (lambda: InputRequired("?", "auth"), "there is no kind 'auth'.*AuthRequired"),  # pyright: ignore[reportArgumentType] -- wrong on purpose
        (lambda: InputRequired("?", "selection"), "needs options"),
        (lambda: InputRequired("?", "selection", options=["a", ""]), "an option is empty"),
        (lambda: InputRequired("?", options=["a"]), "give options with the kind 'selection' only"),
        (lambda: InputRequired("?", "data"), "needs schema"),
        (lambda: InputRequired("?", schema=SCHEMA), "give schema with the kind 'data' only"),
        (lambda: InputRequired("?", "data", schema={"type": "number one"}), "no JSON schema"),
        (lambda: InputRequired("?", "data", schema={"prefixItems": [{"$ref": "http://x/"}]}), "refers to"),
        (lambda: InputRequired("?", default="a"), "needs a timeout"),
        (lambda: InputRequired("?", "confirmation", timeout=DAY, default="perhaps"), "does not answer"),
        (lambda: InputRequired("?", "selection", options=["a"], timeout=DAY, default="b"), "does not answer"),
        (lambda: InputRequired("?", "data", schema=SCHEMA, timeout=DAY, default={}), "does not fit"),
        (lambda: AuthRequired("?", " "), "has no name"),
        (lambda: AuthRequired("", "token"), "has no text"),
    ],
    ids=count(),
)
def test_a_question_that_nobody_could_answer(ask: Callable[[], QuestionRequired], expected: str) -> None:
    """It is refused where it is raised, and the message says what to change."""
    with pytest.raises(QuestionDefinitionError, match=expected):
        ask()

"""Questions that tools raise: valid ones, and ones that are refused because no answer is possible."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest
from pydantic import JsonValue

from everloop.agents.errors import QuestionDefinitionError
from everloop.agents.question_exceptions import AuthRequired, InputRequired, QuestionRequired

DAY = timedelta(days=1)


SCHEMA: dict[str, JsonValue] = {"type": "object", "required": ["hour"]}


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda: InputRequired(" "), "has no text"),
        (lambda: InputRequired("?", timeout=timedelta(0)), "some time"),
        (lambda: AuthRequired("?", "token", timeout=timedelta(days=3651)), "at most 3650 days"),
        (lambda: InputRequired("?", "auth"), "there is no kind 'auth'.*AuthRequired"),  # pyright: ignore[reportArgumentType] -- wrong on purpose
        (lambda: InputRequired("?", "selection"), "needs options"),
        (lambda: InputRequired("?", "data"), "needs schema"),
        (lambda: InputRequired("?", "data", schema={"type": "number one"}), "no JSON schema"),
        (lambda: InputRequired("?", "data", schema={"prefixItems": [{"$ref": "http://x/"}]}), "refers to"),
        (lambda: InputRequired("?", default="a"), "needs a timeout"),
        (lambda: InputRequired("?", "confirmation", timeout=DAY, default="perhaps"), "does not answer"),
        (lambda: InputRequired("?", "data", schema=SCHEMA, timeout=DAY, default={}), "does not fit"),
        (lambda: AuthRequired("?", " "), "has no name"),
    ],
    ids=count(),
)
def test_a_question_that_nobody_could_answer(ask: Callable[[], QuestionRequired], expected: str) -> None:
    """It is refused when it is raised, and the error has the remedy."""
    with pytest.raises(QuestionDefinitionError, match=expected):
        ask()

"""Answers that are data: fitting ones, errors for the model, and usable output models."""

from decimal import Decimal
from typing import Any, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field, JsonValue, RootModel, field_validator
from temporalio.exceptions import ApplicationError

from everloop.activities.model.outcome import MAX_PROBLEMS, MAX_SCHEMA_CHARACTERS, as_output
from everloop.agents.agent import Agent
from everloop.agents.errors import AgentDefinitionError
from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, Usage

SECRET = "the-secret-value"


class Line(BaseModel):
    """A line of an invoice."""

    text: str
    amount: Decimal = Decimal(0)


class Invoice(BaseModel):
    """An invoice."""

    total: float
    currency: Literal["EUR", "USD"] = "EUR"
    lines: list[Line] = []


class Anything(BaseModel):
    """Any JSON."""

    value: JsonValue


class Names(RootModel[list[str]]):
    """A list."""


class Renamed(BaseModel):
    """A field with another name in JSON."""

    is_paid: bool = Field(alias="isPaid")


def fit(text: str, output: type[BaseModel] = Invoice, **fields: object) -> AssistantMessage:
    """Return the outcome of an answer."""
    return as_output(AssistantMessage(text=text, **fields), output)  # pyright: ignore[reportArgumentType] -- a table


BILL = '{"total":3.0,"currency":"EUR","lines":[]}'
LINES = '{"total":1.0,"currency":"EUR","lines":[{"text":"x","amount":"0.1"}]}'
FITS: list[tuple[str, type[BaseModel], str]] = [
    ('{"total": 3}', Invoice, BILL),
    (' \n{"total": "3"}\n', Invoice, BILL),
    ('```json\n{"total": 3}\n```', Invoice, BILL),
    ('```\n{"total": 3}\n```\n', Invoice, BILL),
    ('```JSON {"total": 3}```', Invoice, BILL),
    ('{"total": 3.0, "lines": [], "currency": "EUR", "remark": "nobody asked"}', Invoice, BILL),
    ('{"total": 1, "lines": [{"text": "x", "amount": 0.1}]}', Invoice, LINES),
    ('["a", "b"]', Names, '["a","b"]'),
    ('{"isPaid": true}', Renamed, '{"isPaid":true}'),
]


@pytest.mark.parametrize(("text", "output", "canonical"), FITS)
def test_an_answer_that_fits_becomes_canonical(text: str, output: type[BaseModel], canonical: str) -> None:
    """Complete, with defaults, by the names of the schema, without surrounding text; it fits again."""
    usage = Usage(input_tokens=1)
    reply = fit(text, output, usage=usage)
    assert reply == AssistantMessage(text=canonical, usage=usage)
    assert fit(canonical, output, usage=usage) == reply


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"total": "the-secret-value"}', "- total: Input should be a valid number"),
        ('{"lines": [{"text": "the-secret-value", "amount": []}]}', "- total: Field required"),
        ('{"total": 1, "lines": [{"text": 1}]}', "- lines.0.text: Input should be a valid string"),
        ('{"total": 1, "currency": "the-secret-value"}', "- currency: Input should be 'EUR' or 'USD'"),
        ("the-secret-value", "- Invalid JSON"),
        ('Here it is:\n{"total": 1}', "- Invalid JSON"),
        ("", "- Invalid JSON"),
        ("```", "- Invalid JSON"),
        ("[" * 100_000, "- Invalid JSON"),
        ("[1]", "- Input should be an object"),
    ],
)
def test_what_does_not_fit_is_told(text: str, told: str) -> None:
    """By field, with the schema; the model keeps its text, and the values are not repeated."""
    reply = fit(text)
    assert reply.text == text
    assert told in reply.refused
    assert SECRET not in reply.refused
    assert '"currency"' in reply.refused
    assert "schema 'Invoice'" in reply.refused


@pytest.mark.parametrize("value", ["[" * 40 + "]" * 40, "1" + "0" * 400, str(2**53 + 1)])
def test_what_clients_cannot_be_sent_does_not_fit(value: str) -> None:
    """A2A carries neither numbers that are not doubles nor unlimited depth."""
    assert "nested too deeply" in fit(f'{{"value": {value}}}', Anything).refused


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "Let me see.", "tool_calls": (ToolCall(id="a", name="f", arguments="{}"),)},
        {"text": "No.", "refused": "A plugin says no."},
        {"closing": "done"},
        {"text": "I may not.", "rejects": True},
    ],
    ids=["asks for tools", "refused already", "ends without an answer", "rejects the task"],
)
def test_what_is_no_answer_is_left_as_it_is(fields: dict[str, Any]) -> None:
    """Only an answer has to be data."""
    reply = AssistantMessage(**fields)
    assert as_output(reply, Invoice) == reply


Value = TypeVar("Value")


class Unspeakable(BaseModel, arbitrary_types_allowed=True):
    """A model without a JSON schema."""

    pattern: Agent


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (Unspeakable, "agent 'one': there is no JSON schema of output Unspeakable"),
        (Invoice(total=1), "agent 'one': output is of type Invoice; give its class: output=Invoice"),
        (dict, "agent 'one': output is dict; give the class of a pydantic model"),
        (BaseModel, "agent 'one': output is BaseModel itself"),
        ("Invoice", "agent 'one': output is 'Invoice'; give the class of a pydantic model"),
    ],
)
def test_an_output_that_no_model_could_be_told_of_is_refused(output: Any, problem: str) -> None:  # noqa: ANN401 -- a table of wrong values
    """When the agent is defined."""
    with pytest.raises(AgentDefinitionError, match=problem):
        Agent(id="one", name="", description="", output=output)


def test_only_so_much_is_told() -> None:
    """Neither a thousand errors, nor a name of thousands of characters; nor errors at a cut."""
    lines = ", ".join('{"text": 1}' for _ in range(1000))
    assert fit(f'{{"total": 1, "lines": [{lines}]}}').refused.count("\n- ") == MAX_PROBLEMS + 1
    assert "and 980 more" in fit(f'{{"total": 1, "lines": [{lines}]}}').refused
    assert len(fit(f'{{"{"x" * 10_000}": 1}}', Strict).refused) < 1000
    assert len(fit("{}", Long).refused) < 1000
    assert "cut off" in fit('{"total": 3, "lines": [', finish_reason="length").refused


class Strict(BaseModel, extra="forbid"):
    """Nothing at all."""


class Long(BaseModel):
    """A field that takes long to explain."""

    value: int = Field(description="x" * MAX_SCHEMA_CHARACTERS)


def test_a_model_that_fails_itself_ends_the_call() -> None:
    """No other answer would help; the failure does not repeat the model's input."""

    class Broken(BaseModel):
        word: str

        @field_validator("word")
        @classmethod
        def _look_up(cls, word: str) -> str:
            raise KeyError(word)

    with pytest.raises(ApplicationError, match="'Broken' raised KeyError") as failed:
        fit(f'{{"word": "{SECRET}"}}', Broken)

    assert (failed.value.type, failed.value.non_retryable) == (failures.OUTPUT_INVALID, True)
    assert SECRET not in str(failed.value)
    assert failed.value.__cause__ is None

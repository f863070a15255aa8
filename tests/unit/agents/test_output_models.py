"""Output models: clients get data that fit the schema, and read them back; others cannot be defined."""

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import (
    AliasChoices,
    AliasGenerator,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PlainSerializer,
    RootModel,
    SecretStr,
    computed_field,
    create_model,
    field_serializer,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from temporalio.exceptions import ApplicationError

from everloop.activities.model.outcome import as_output, output_schema
from everloop.agents.agent import Agent
from everloop.agents.errors import AgentDefinitionError
from everloop.client import Result, TaskState
from everloop.client.content import Part, plain
from everloop.runtime.schema_validation import find_schema_violations
from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import AssistantMessage


class Doubled(BaseModel):
    """A model with more than it reads."""

    amount: int

    @computed_field
    def double(self) -> int:
        return 2 * self.amount


class Rounded(BaseModel):
    """A serializer that says that it returns what the field takes."""

    total: float
    at: date

    @field_serializer("total")
    def _round(self, total: float) -> float:
        return round(total, 2)

    @field_serializer("at")
    def _first_of_month(self, at: date):  # noqa: ANN202 -- it says nothing, and does it right
        return at.replace(day=1)


class Camel(BaseModel):
    """One name for both, by a generator."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    first_name: str
    born_on: date | None = None


class Tree(BaseModel):
    """A model that holds itself."""

    name: str
    children: "list[Tree]" = []
    by_name: "dict[str, Tree]" = {}


class Dog(BaseModel):
    """One of two."""

    kind: Literal["dog"]
    age: int


class Cat(BaseModel):
    """The other."""

    kind: Literal["cat"]
    lives: Annotated[Decimal, PlainSerializer(float, return_type=float)] = Decimal(9)


class Colour(Enum):
    """Two kinds of values."""

    RED = "red"
    ONE = 1


class Place(NamedTuple):
    """A tuple with names."""

    x: int
    y: float = 0.0


class Many(BaseModel):
    """All other types."""

    pet: Annotated[Dog | Cat, Field(discriminator="kind")]
    price: Decimal
    lasts: timedelta
    colour: Colour
    place: Place
    pair: tuple[int, str]
    names: frozenset[str] = frozenset()
    anything: Any = None
    choice: int | str | None = None


GOOD: list[tuple[type[BaseModel], dict[str, Any] | list[Any]]] = [
    (Doubled, {"amount": 3}),
    (Rounded, {"total": 3.14159, "at": "2026-11-28"}),
    (Camel, {"firstName": "Ada"}),
    (Tree, {"name": "a", "children": [{"name": "b", "by_name": {"c": {"name": "c"}}}]}),
    (
        Many,
        {
            "pet": {"kind": "cat"},
            "price": "3.10",
            "lasts": "PT1H",
            "colour": 1,
            "place": [1, 2.5],
            "pair": [1, "a"],
            "names": ["a"],
            "anything": {"a": [1.5]},
        },
    ),
    (RootModel[list[Dog | Cat]], [{"kind": "dog", "age": 3}, {"kind": "cat"}]),
]


@pytest.mark.parametrize(("output", "answer"), GOOD, ids=lambda each: getattr(each, "__name__", ""))
def test_clients_read_back_what_fits_the_schema(output: type[BaseModel], answer: object) -> None:
    """After the transport over A2A, where numbers are doubles."""
    Agent(id="one", name="", description="", output=output)
    reply = as_output(AssistantMessage(text=json.dumps(answer)), output)
    sent = plain(Part(data=json.loads(reply.text)).to_proto().data)

    assert reply.refused == ""
    assert find_schema_violations(output_schema(output).schema, [sent]) == []
    read = Result(id="t", state=TaskState.COMPLETED, data=sent).data_as(output)
    assert as_output(AssistantMessage(text=read.model_dump_json(by_alias=True)), output) == reply


class ForbidsMore(Doubled, extra="forbid"):
    """It would refuse what it writes."""


class German(BaseModel):
    """A serializer that says that it returns something else."""

    at: datetime

    @field_serializer("at")
    def _written(self, at: datetime) -> str:
        return f"{at:%d.%m.%Y}"


class Wrapped(BaseModel):
    """A serializer of the whole."""

    amount: int

    @model_serializer
    def _written(self) -> dict[str, int]:
        return {"euros": self.amount}


class Generated(BaseModel):
    """Names that are only written."""

    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel))

    is_paid: bool


def of(kind: Any, **field: Any) -> type[BaseModel]:  # noqa: ANN401 -- of a field
    """Return a model with a field of a kind."""
    return create_model("Odd", paid=(kind, Field(**field)))


UNWRITTEN = "is read, and not written; give it one name for both"
DEEP = r"paid is read from within another value \(AliasPath\)"
CHOICES = AliasChoices("a", "b")
BAD: dict[str, tuple[type[BaseModel], str]] = {
    "a name that is read": (of(bool, validation_alias="isPaid"), f"isPaid {UNWRITTEN}"),
    "a name that is written": (of(bool, serialization_alias="p"), f"paid {UNWRITTEN}"),
    "names that are written": (Generated, f"is_paid {UNWRITTEN}"),
    "several names": (of(bool, validation_alias=CHOICES, serialization_alias="b"), f"a {UNWRITTEN}"),
    "a path": (of(bool, validation_alias=AliasPath("a", "b")), DEEP),
    "paths": (of(bool, validation_alias=AliasChoices(AliasPath("a", 0))), DEEP),
    "a field that is left out": (of(int, exclude=True), "paid is read, and not written"),
    "and has a default": (of(int, exclude=True, default=1), "paid is read, and not written"),
    "a field that may be": (of(int, exclude_if=bool), "paid is read, and not written"),
    "a value that is worked out": (ForbidsMore, "double is written, and not read; leave out extra='forbid'"),
    "a text for a time": (German, r"at is read as string \(date-time\), and written as string; let its"),
    "another object": (Wrapped, "amount is read, and not written"),
    "a secret": (of(SecretStr), "paid is a secret, which is written as asterisks"),
    "JSON in a text": (of(Json[list[int]]), "paid is read as string, and written as array"),
    "deep inside": (
        of(dict[str, list[tuple[int, of(bool, validation_alias="isPaid")]]]),
        r"isPaid of paid\[…\]\[…\]\[1\] is read, and not written",
    ),
    "one of several": (of(int | German | None), "paid.at is read as"),
    "a number for a text": (
        of(Annotated[str, PlainSerializer(len, return_type=int)]),
        "paid is read as string, and written as integer",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_model_that_writes_something_else_is_refused(case: str) -> None:
    """When the agent is defined: clients would get other data than the schema's, or unreadable ones."""
    output, problem = BAD[case]
    begin = f"agent 'one': clients could not read the data of output {output.__name__}: "
    with pytest.raises(AgentDefinitionError, match=f"^{begin}.*{problem}"):
        Agent(id="one", name="", description="", output=output)


def test_a_serializer_that_says_nothing_is_seen_when_there_is_an_answer() -> None:
    """The failure names the field; values of the answer are not repeated."""

    class Quiet(BaseModel):
        at: datetime

        @field_serializer("at")
        def _written(self, at: datetime):  # noqa: ANN202 -- it says nothing
            return f"{at:%d.%m.%Y}"

    Agent(id="one", name="", description="", output=Quiet)
    with pytest.raises(
        ApplicationError, match=r"'Quiet' does not read .* \(ValidationError at at\)"
    ) as failed:
        as_output(AssistantMessage(text='{"at": "2026-11-28T12:00:00Z"}'), Quiet)

    assert (failed.value.type, failed.value.non_retryable) == (failures.OUTPUT_INVALID, True)
    assert "28.11" not in failed.value.message

"""Tools: callables, with arguments and results that Python declares and the model reads as JSON."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, assert_type
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, JsonValue
from structlog.testing import capture_logs
from typing_extensions import TypedDict  # pydantic's rule, before Python 3.12

from everloop.agents.plugins import tools
from everloop.agents.tool import Tool, tool
from everloop.cli.author.live_log import rendered
from tests.support.rigs.tool_rig import ToolRig


class Colour(Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Place:
    """Somewhere."""

    latitude: float
    longitude: float = 0.0


class Order(BaseModel):
    """An order."""

    item: str
    count: Annotated[int, Field(ge=1)] = 1


class Row(TypedDict):
    """A row."""

    key: str
    note: NotRequired[str]


ID = "12345678-1234-5678-1234-567812345678"

TYPES: list[tuple[Any, JsonValue, object]] = [
    (Place, {"latitude": 1.5, "longitude": 0.0}, Place(1.5)),
    (Order, {"item": "tea", "count": 2}, Order(item="tea", count=2)),
    (Row, {"key": "a"}, {"key": "a"}),
    (Colour, "red", Colour.RED),
    (Literal["asc", "desc"], "asc", "asc"),
    (Annotated[int, Field(ge=1, le=9)], 9, 9),
    (str | None, None, None),
    (datetime, "2026-11-21T09:00:00Z", datetime(2026, 11, 21, 9, tzinfo=UTC)),
    (date, "2026-11-21", date(2026, 11, 21)),
    (timedelta, "PT1H30M", timedelta(minutes=90)),
    (UUID, ID, UUID(ID)),
    (Decimal, "1.10", Decimal("1.10")),
    (bytes, "_w==", b"\xff"),
    (Path, "a/b.txt", Path("a/b.txt")),
    (list[Place], [{"latitude": 1.0, "longitude": 2.0}], [Place(1, 2)]),
    (dict[str, Order], {"a": {"item": "tea", "count": 1}}, {"a": Order(item="tea")}),
    (set[Colour], ["blue"], {Colour.BLUE}),
    (tuple[int, str], [1, "a"], (1, "a")),
]


@pytest.mark.parametrize(("type_", "written", "value"), TYPES, ids=count())
async def test_values_arrive_as_declared_and_go_back_as_json(
    type_: Any,  # noqa: ANN401 -- an annotation can be anything
    written: JsonValue,
    value: object,
) -> None:
    """The function gets the declared types, and its result is JSON that the model could have written."""
    got: list[object] = []

    def echo(value: object) -> object:
        """Say it again."""
        got.append(value)
        return value

    echo.__annotations__["value"] = type_
    rig = ToolRig(tool(echo))

    result = await rig.run(rig.call("echo", json.dumps({"value": written})))

    assert (result.outcome, got, type(got[0])) == ("ok", [value], type(value))
    assert (result.content if isinstance(value, str) else json.loads(result.content)) == written


class Scan(BaseModel):
    """A scanned page."""

    page: Path
    pixels: bytes


async def test_bytes_within_a_pydantic_model_are_a_result() -> None:
    """Bytes within a pydantic model are base64, as all other bytes: most are not text."""

    def scan() -> list[Scan]:
        """Scan all pages."""
        return [Scan(page=Path("1.png"), pixels=b"\xff\x00")]

    rig = ToolRig(tool(scan))

    result = await rig.run(rig.call("scan", "{}"))

    assert result.outcome == "ok"
    assert json.loads(result.content) == [{"page": "1.png", "pixels": "_wA="}]


class Parcel:
    """An object without a JSON form."""

    def __init__(self, to: str) -> None:
        self.to = to

    def __str__(self) -> str:
        return f"a parcel to {self.to}"


async def test_an_object_without_a_json_form_is_text_and_a_warning() -> None:
    """An object without a JSON form is returned as text.

    A warning is logged once for each tool and type, with a remedy and without the object's content.
    """

    @tool
    def send(to: str) -> object:
        """Send a parcel."""
        return {"sent": [Parcel(to), Parcel("me")]}

    @tool
    def look(to: str) -> Parcel:
        """Look for a parcel."""
        return Parcel(to)

    rig = ToolRig(send, look)
    with capture_logs() as logs:
        sent = await rig.run(rig.call("send", '{"to": "you"}'))
        again = await rig.run(rig.call("send", '{"to": "you"}'))
        looked = await rig.run(rig.call("look", '{"to": "you"}'))

    assert json.loads(sent.content) == {"sent": ["a parcel to you", "a parcel to me"]}
    assert (sent.outcome, again.content) == ("ok", sent.content)
    assert json.loads(looked.content) == "a parcel to you"
    warnings = [log for log in logs if log["log_level"] == "warning"]
    assert [(log["tool"], log["type"]) for log in warnings] == [("send", "Parcel"), ("look", "Parcel")]
    shown = rendered({**warnings[0], "level": "warning"})
    assert shown is not None
    assert "return a str, number, list, dict, dataclass or pydantic model" in shown.plain
    assert "tool=send type=Parcel" in shown.plain
    assert "parcel to" not in str(warnings)


async def test_arguments_that_break_a_rule_do_not_arrive() -> None:
    """Arguments that break a rule of an annotation, a field or an item are refused with that rule."""

    @tool
    def order(orders: list[Order], limit: Annotated[int, Field(le=9)]) -> int:
        """Order."""
        return len(orders) + limit

    rig = ToolRig(order)
    result = await rig.run(rig.call("order", '{"orders": [{"item": "tea", "count": 0}], "limit": 10}'))

    assert result.outcome == "invalid"
    assert "orders.0.count: Input should be greater than or equal to 1" in result.content
    assert "limit: Input should be less than or equal to 9" in result.content


# Callables that are tools.


def plain(text: str, times: int = 1) -> str:
    """Repeat."""
    return text * times


async def waiting(text: str) -> str:
    """Repeat."""
    return text * 2


@wraps(waiting)
def wrapped(*args: Any, **kwargs: Any) -> Awaitable[str]:  # noqa: ANN401 -- as decorators are written
    return waiting(*args, **kwargs)


class Shelf:
    """A class with methods for tools."""

    def __init__(self, times: int) -> None:
        self.times = times

    def repeat(self, text: str) -> str:
        """Repeat."""
        return text * self.times

    @tool(idempotent=True)
    async def find(self, text: str) -> str:
        """Repeat."""
        return text * self.times

    @tool
    @staticmethod
    def once(text: str) -> str:
        """Say it."""
        return text


class TextRepeater:
    """A callable object."""

    async def __call__(self, text: str) -> str:
        """Repeat."""
        return text * 2


CALLABLES: list[tuple[Callable[..., Any], str, str]] = [
    (plain, "plain", "a"),
    (waiting, "waiting", "aa"),
    (wrapped, "waiting", "aa"),
    (partial(plain, times=3), "plain", "aaa"),
    (partial(partial(waiting)), "waiting", "aa"),
    (Shelf(2).repeat, "repeat", "aa"),
    (Shelf(2).find, "find", "aa"),
    (Shelf.once, "once", "a"),
    (TextRepeater(), "text_repeater", "aa"),
]


@pytest.mark.parametrize(("given", "name", "expected"), CALLABLES, ids=count())
async def test_what_can_be_called_can_be_a_tool(given: Callable[..., Any], name: str, expected: str) -> None:
    """Functions, partials, methods and callable objects can be tools, async or not, with `@tool` or not."""
    (offered,) = tools(given).tools
    rig = ToolRig(offered)

    assert (offered.name, offered.parameters["required"]) == (name, ["text"])
    assert (await rig.run(rig.call(name, '{"text": "a"}'))).content == expected


def test_what_a_partial_has_given_is_not_the_models() -> None:
    """Arguments of a partial are not in the schema, and the model cannot set them."""
    assert set(tool(partial(plain, times=3)).arguments.model_fields) == {"text"}


async def test_a_tool_is_called_as_its_function_is() -> None:
    """The function of a tool can be called directly, with its types, sync or async, also as a method."""

    @tool
    def double(number: int) -> int:
        """Double."""
        return 2 * number

    @tool(timeout=timedelta(seconds=1))
    async def half(number: int) -> float:
        """Halve."""
        return number / 2

    assert assert_type(double(2), int) == 4
    assert assert_type(await half(3), float) == 1.5
    assert assert_type(await Shelf(2).find("a"), str) == "aa"
    assert await Shelf.find(Shelf(3), "a") == "aaa"
    assert Shelf(2).find.idempotent


# Descriptions in docstrings.


def described(a: int, b: str = "", c: Annotated[str, Field(description="Third, here.")] = "") -> str:
    """Describe.

    More of it.

    Args:
        a (int): First,
            in two lines.
        b: Second: with a colon.
        c: Third, there.

    Returns:
        Nothing.
    """
    return f"{a}{b}{c}"


def in_fields(a: int, b: str) -> str:
    """Describe.

    :param int a: First,
        in two lines.
    :param b: Second: with a colon.
    """
    return f"{a}{b}"


@pytest.mark.parametrize(
    ("function", "description"),
    [(described, "Describe.\n\nMore of it.\n\nReturns:\n    Nothing."), (in_fields, "Describe.")],
    ids=["google", "fields"],
)
def test_what_a_docstring_says_of_arguments_goes_to_these(
    function: Callable[..., str], description: str
) -> None:
    """Descriptions of arguments move from the docstring to the schema; an annotation's description wins."""
    made: Tool[..., str] = tool(function)
    properties: Any = made.parameters["properties"]

    told = {name: each["description"] for name, each in properties.items()}
    assert made.description == description
    assert (told["a"], told["b"]) == ("First, in two lines.", "Second: with a colon.")
    assert told.get("c", "Third, here.") == "Third, here."

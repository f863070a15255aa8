"""The stand-in for a model: its tool calls, their arguments, and the fit to their schemas."""

import json
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, EmailStr, Field

from everloop.local.demo_model.chat_request import ChatRequest
from everloop.local.demo_model.script import MODEL, answer
from everloop.local.demo_model.stand_in import STAND_IN, made_up
from everloop.local.stack import PRICES_OF_THE_DEMO_MODEL
from everloop.models.catalogue import Catalogue
from everloop.models.file import Price

TEXT: dict[str, Any] = {"type": "string"}


class Unit(StrEnum):
    """An enum of a tool."""

    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Node(BaseModel):
    """A recursive model."""

    name: Annotated[str, Field(min_length=5, max_length=8)]
    parts: list["Node"] = []
    next: "Node | None"


class Everything(BaseModel):
    """One field of each kind."""

    unit: Unit
    level: Literal["low", "high"]
    day: date
    count: Annotated[int, Field(ge=3, lt=9)]
    share: Annotated[float, Field(gt=0, le=1)]
    tags: Annotated[list[str], Field(min_length=2)]
    pair: tuple[int, str]
    node: Node
    maybe: int | None
    where: EmailStr
    known: dict[str, int]
    is_new: bool
    left_out: str = "as it is"


def asked(prompt: str, tools: dict[str, dict[str, Any]], **more: object) -> ChatRequest:
    offered = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"Tell the {name}.",
                "parameters": {"type": "object", "properties": given, "required": [*given]},
            },
        }
        for name, given in tools.items()
    ]
    said = [{"role": "user", "content": prompt}]
    return ChatRequest.model_validate({"model": MODEL, "messages": said, "tools": offered, **more})


CASES: list[tuple[str, dict[str, Any], list[tuple[str, Any]]]] = [
    ("How warm is it in Oslo?", {"temperature": {"city": TEXT}}, [("temperature", {"city": "Oslo"})]),
    ("Tell the time", {"temperature": {"city": TEXT}, "time": {}}, [("time", {})]),
    ('Send "hi" to Ann', {"send": {"text": TEXT, "to": TEXT}}, [("send", {"text": "hi", "to": "Ann"})]),
    ("What else?", {"temperature": {"city": TEXT}, "time": {}}, []),
    ("request input", {"request_input": {}, "time": {}}, [("request_input", {})]),
    ("Anything", {"request_input": {"text": TEXT}}, []),
]


@pytest.mark.parametrize(("prompt", "tools", "calls"), CASES)
async def test_it_calls_what_the_message_is_about(
    prompt: str, tools: dict[str, dict[str, Any]], calls: list[tuple[str, Any]]
) -> None:
    """Tools by their names and words; the only one for any message; Everloop's own only by name."""
    reply = await answer(asked(prompt, tools))

    assert [(call.name, call.arguments) for call in reply.calls] == calls
    assert calls or reply.text.startswith(STAND_IN)


async def test_it_answers_with_what_the_tools_came_to() -> None:
    """After the calls, with their results and a note that it is a stand-in; or data if data are required."""
    tools: dict[str, dict[str, Any]] = {"temperature": {"city": TEXT}}
    call = {"id": "c", "type": "function", "function": {"name": "temperature", "arguments": "{}"}}
    past: list[Any] = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "4 degrees"},
    ]
    schema = {"type": "json_schema", "json_schema": {"schema": Everything.model_json_schema()}}

    said = (await answer(asked("Oslo?", tools, messages=past))).text
    data = (await answer(asked("Oslo?", tools, messages=past, response_format=schema))).text

    assert said.startswith(STAND_IN)
    assert "temperature: 4 degrees" in said
    assert Everything.model_validate_json(data).model_dump(mode="json")["left_out"] == "as it is"


def test_made_up_values_fit_their_schema() -> None:
    """Of each kind of parameter in pydantic; values in the message win over invented ones."""
    schema = Everything.model_json_schema()

    value = made_up(schema, "It is fahrenheit and high, 7 of them")

    jsonschema.validate(json.loads(json.dumps(value)), schema)
    made = Everything.model_validate(value)
    assert (made.unit, made.level, made.count) == (Unit.FAHRENHEIT, "high", 7)


@pytest.mark.parametrize("name", [None, "gpt-4.1", "openai/gpt-5-mini", "o3", "openai/o4-mini"])
def test_what_stands_in_costs_nothing(name: str | None) -> None:
    """Under each model name of OpenAI, so that an agent with a cost limit runs without a key, too."""
    variables = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "any"}
    chosen = Catalogue.load(PRICES_OF_THE_DEMO_MODEL, MODEL, variables).choose(name, "a")

    assert chosen.price == Price(input=0, output=0)


async def test_it_stands_in_for_the_model_that_an_agent_names() -> None:
    """Users may name a model for later, and try the agent without a key first."""
    request = asked("How warm is it in Oslo?", {"temperature": {"city": TEXT}}, model="gpt-4.1")

    assert [call.name for call in (await answer(request)).calls] == ["temperature"]

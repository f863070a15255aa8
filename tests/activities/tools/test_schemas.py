"""Tools with a JSON schema for their arguments, which is checked without blocking the worker."""

import json
from typing import Any

import pytest
from pydantic import JsonValue

from everloop import request_input
from everloop.agents.errors import ToolDefinitionError
from everloop.agents.tool import Tool
from everloop.agents.tool_context import ToolContext
from tests.support.doubling import doubling, while_checks_wait
from tests.support.rigs.tool_rig import ToolRig

SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "to": {"$ref": "#/$defs/person"},
        "count": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["to"],
    "additionalProperties": False,
    "$defs": {"person": {"type": "string", "minLength": 2}},
}


def _tool(schema: dict[str, JsonValue], **settings: Any) -> Tool:  # noqa: ANN401 -- any field of Tool
    async def function(arguments: dict[str, JsonValue], context: ToolContext) -> JsonValue:
        return {"got": arguments, "call": context.call_id}

    return Tool(function, "send", "Send it.", schema=schema, **settings)


async def test_the_function_gets_what_the_model_wrote_and_the_context() -> None:
    """The function gets the context, and arguments that fit the schema in one dict."""
    rig = ToolRig(_tool(SCHEMA))
    result = await rig.run(rig.call("send", '{"to": "Ada", "count": 2}'))
    assert result.content == '{"got":{"to":"Ada","count":2},"call":"call"}'


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{}", 'arguments: "to" is a required property'),
        ('{"to": "A"}', 'to: "A" is shorter than 2 characters'),
        ('{"to": "Ada", "count": "2"}', 'count: "2" is not of type "integer"'),
        ('{"to": "Ada", "tags": ["a", 3]}', 'tags.1: 3 is not of type "string"'),
        ('{"to": "Ada", "x": 1}', "arguments: Additional properties are not allowed ('x' was unexpected)"),
        ("[1]", "arguments: Input should be an object"),
        ('{"to": ', "arguments: Invalid JSON"),
    ],
)
async def test_what_does_not_fit_goes_back_to_the_model(arguments: str, problem: str) -> None:
    """Invalid arguments go back to the model with the field and the expected value; the tool does not run."""
    rig = ToolRig(_tool(SCHEMA))
    result = await rig.run(rig.call("send", arguments))
    assert result.outcome == "invalid"
    assert f"\n- {problem}" in result.content
    assert result.content.endswith("expected arguments: to, count, tags")


async def test_a_long_value_is_not_repeated_to_the_model() -> None:
    """An error does not repeat a long value, nor thousands of invalid ones."""
    rig = ToolRig(_tool(SCHEMA))
    wrong = ",".join("0" for _ in range(50_000))
    result = await rig.run(rig.call("send", f'{{"to": "Ada", "count": "{"x" * 50_000}", "tags": [{wrong}]}}'))
    assert result.outcome == "invalid"
    assert len(result.content) < 10_000


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (doubling(), "takes too long"),
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, 'does not match "^(a+)+$"'),
    ],
    ids=["doubling", "pattern"],
)
async def test_a_schema_that_only_fails_in_use_fails_the_call(
    schema: dict[str, JsonValue], problem: str
) -> None:
    """A schema that fails during a check fails the call, not the activity, whose retries would fail again."""
    rig = ToolRig(_tool(schema))
    result = await rig.run(rig.call("send", json.dumps({"a": "a" * 41 + "!"})))
    assert result.outcome == "invalid"
    assert problem in result.content


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "strange"}, "its schema is that of type 'strange'"),
        ({"type": "array"}, "arguments are passed by name"),
        ({"properties": {"a": {"type": "strange"}}}, 'this is no JSON schema: "strange" is not valid'),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "Pointer '/$defs/b' does not exist"),
        ({"$ref": "http://elsewhere/schema"}, "refers to 'http://elsewhere/schema'; put it in"),
        ({"properties": {"a": {"anyOf": [{"$dynamicRef": "b.json#c"}]}}}, "refers to 'b.json#c'"),
    ],
)
def test_a_schema_that_no_call_could_fit_is_refused(schema: dict[str, JsonValue], problem: str) -> None:
    """An invalid schema, or one with remote references, is refused where the tool is defined."""
    with pytest.raises(ToolDefinitionError, match="tool 'send'") as refused:
        _tool(schema)
    assert problem in str(refused.value)


def test_an_empty_schema_is_that_of_an_object() -> None:
    """An empty schema becomes one of an object, as providers require."""
    assert _tool({}).parameters == {"type": "object", "properties": {}}


async def test_a_question_of_the_model() -> None:
    """A question with a schema asks for data."""
    rig = ToolRig(*request_input().tools)
    arguments = '{"question": "Which?", "kind": "data", "schema": {"type": "object"}}'
    question = await while_checks_wait(rig.ask(rig.call("request_input", arguments)))
    assert question.json_schema == {"type": "object"}

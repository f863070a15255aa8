"""Stand-in for the model of any agent: it calls the agent's tools with invented values, and says so.

It uses only the request: the available tools with their schemas, and the user's message. Values come
from that message where they can (names, numbers, texts in quotes), else from the schema.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from pydantic import JsonValue

from everloop.local.demo_model.chat_request import ChatRequest, FunctionDefinition
from everloop.local.demo_model.completion import Call, Reply

STAND_IN = "No language model wrote this: a script stands in for one."
HOW_TO_LEAVE = (
    "To have a language model answer, set EVERLOOP_MODEL and the key of its provider, such as OPENAI_API_KEY "
    "(EVERLOOP_MODEL=ollama/qwen3 needs none)."
)
MOST_CALLS = 3
OF_EVERLOOP = frozenset({"read_result", "read_attachment", "request_input", "create_task", "artifact_update"})
"""Tools that are called only if the message names them."""

FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "binary": "aGVsbG8=",
    "base64": "aGVsbG8=",
    "path": "file.txt",
    "ipv4": "192.0.2.1",
}
"""A text for each format of JSON schema."""

_WORD = re.compile(r"[^\W\d_]{3,}")
_QUOTED = re.compile(r"[\"“`]([^\"”`]+)[\"”`]")
_NAME = re.compile(r"(?<![.!?:]\s)(?<!^)\b[A-ZÀ-Þ][\w-]+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_EMPTY = frozenset(
    _WORD.findall("the and for with what which that this from are you can how who use please tool call")
)

Schema = Mapping[str, JsonValue]
T = TypeVar("T")


def stand_in(request: ChatRequest) -> Reply:
    """Return calls of the tools that the message is about, and then an answer with their results."""
    prompt, called = request.prompt, {tool for tool, _ in request.returned}
    chosen = _choose_tools(request, prompt)
    if calls := [_call(tool, prompt) for tool in chosen if tool.name not in called]:
        names = " and ".join(call.name for call in calls)
        return Reply(f"I call {names} with made-up values.", tuple(calls))
    if schema := request.output_schema:
        return Reply(json.dumps(made_up(schema, prompt), ensure_ascii=False))
    said = [f"- {tool}: {result}" for tool, result in request.returned]
    return Reply("\n".join([STAND_IN, "", *(said or [_offered(request)]), "", HOW_TO_LEAVE]))


def made_up(schema: Schema, prompt: str) -> JsonValue:
    """Return a value that matches a JSON schema, as far as a script can, with words of a message in it."""
    return _Maker(schema, prompt).value(schema)


def _choose_tools(request: ChatRequest, prompt: str) -> list[FunctionDefinition]:
    """Return the tools that the message is about; the only one of an agent in any case."""
    offered = [tool.function for tool in request.tools]
    if forced := [tool for tool in offered if tool.name == request.forced_tool]:
        return forced
    words = _words_of(prompt)
    ranked = sorted(offered, key=lambda tool: -_nearness(tool, words))
    if near := [tool for tool in ranked if _nearness(tool, words)]:
        best = _nearness(near[0], words)
        return [tool for tool in near if _nearness(tool, words) == best][:MOST_CALLS]
    own = [tool for tool in offered if tool.name not in OF_EVERLOOP]
    return own if len(own) == 1 else []


def _nearness(tool: FunctionDefinition, words: frozenset[str]) -> int:
    """Return how much of a message matches a tool; names count more than descriptions."""
    by_name = len(_words_of(tool.name) & words)
    if tool.name in OF_EVERLOOP:
        return 10 if by_name == len(_words_of(tool.name)) else 0
    return 10 * by_name + len(_words_of(tool.description) & words)


def _words_of(text: str) -> frozenset[str]:
    return frozenset(word.rstrip("s") for word in _WORD.findall(text.casefold())) - _EMPTY


def _call(tool: FunctionDefinition, prompt: str) -> Call:
    arguments = made_up(tool.parameters, prompt)
    return Call(tool.name, arguments if isinstance(arguments, dict) else {})


def _offered(request: ChatRequest) -> str:
    names = [tool.function.name for tool in request.tools if tool.function.name not in OF_EVERLOOP]
    if not names:
        return "It has no tool to call, and cannot answer that."
    return f"It calls the tool that a message is about: say something of {', '.join(names)}."


class _Maker:
    """Makes values of one schema; `root` has the definitions that its parts refer to.

    Texts and numbers of the message are used once each, the last one repeatedly.
    """

    def __init__(self, root: Schema, prompt: str) -> None:
        self._root = root
        self._prompt = prompt.casefold()
        names = _NAME.findall(_QUOTED.sub(" ", prompt))
        self._texts = [*_QUOTED.findall(prompt), *names] or [prompt]
        self._numbers = [float(number) for number in _NUMBER.findall(prompt)] or [1.0]
        self._open: list[str] = []

    def value(self, schema: Schema) -> JsonValue:
        if isinstance(reference := schema.get("$ref"), str):
            return self._referred(reference)
        for given in ("const", "default"):
            if given in schema:
                return schema[given]
        if isinstance(listed := schema.get("enum"), list) and listed:
            return next((one for one in listed if str(one).casefold() in self._prompt), listed[0])
        if isinstance(examples := schema.get("examples"), list) and examples:
            return examples[0]
        for choice in ("anyOf", "oneOf", "allOf"):
            if isinstance(schemas := schema.get(choice), list) and schemas:
                return self.value(_first_of(schemas))
        return self._of_type(schema)

    def _of_type(self, schema: Schema) -> JsonValue:
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = next((one for one in kinds if one != "null"), "null") if isinstance(kinds, list) else kinds
        match kind:
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "integer" | "number":
                number = self._number(schema)
                return int(number) if kind == "integer" else number
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return self._text(schema)

    def _referred(self, reference: str) -> JsonValue:
        if reference in self._open:  # a recursive schema: only optional parts can end it
            return None
        found: JsonValue = cast("JsonValue", self._root)
        for step in reference.removeprefix("#/").split("/"):
            found = found.get(step) if isinstance(found, dict) else None
        self._open.append(reference)
        try:
            return self.value(found) if isinstance(found, dict) else None
        finally:
            self._open.pop()

    def _object(self, schema: Schema) -> JsonValue:
        properties, required = schema.get("properties"), schema.get("required")
        if not (isinstance(properties, dict) and isinstance(required, list)):
            return {}
        parts = {name: properties.get(name) for name in map(str, required)}
        return {name: self.value(part if isinstance(part, dict) else {}) for name, part in parts.items()}

    def _array(self, schema: Schema) -> JsonValue:
        if isinstance(places := schema.get("prefixItems"), list):
            return [self.value(place) if isinstance(place, dict) else None for place in places]
        items, least, most = schema.get("items"), _bound(schema, "minItems"), _bound(schema, "maxItems")
        count = min(max(int(least or 1), 1), int(most) if most is not None else 1_000)
        return [self.value(items if isinstance(items, dict) else {}) for _ in range(count)]

    def _number(self, schema: Schema) -> float:
        above, below = _bound(schema, "exclusiveMinimum"), _bound(schema, "exclusiveMaximum")
        lower = [_bound(schema, "minimum"), None if above is None else above + 1]
        upper = [_bound(schema, "maximum"), None if below is None else below - 1]
        number = max([_next(self._numbers), *(bound for bound in lower if bound is not None)])
        return min([number, *(bound for bound in upper if bound is not None)])

    def _text(self, schema: Schema) -> str:
        if text := FORMATS.get(str(schema.get("format"))):
            return text
        text, least, most = _next(self._texts), _bound(schema, "minLength"), _bound(schema, "maxLength")
        text = text.ljust(int(least or 0), "x")
        return text[: int(most)] if most is not None else text


def _next(left: list[T]) -> T:
    return left.pop(0) if len(left) > 1 else left[0]


def _first_of(schemas: Sequence[JsonValue]) -> Schema:
    """Return the first one that is not null."""
    for schema in schemas:
        if isinstance(schema, dict) and schema.get("type") != "null":
            return schema
    return {}


def _bound(schema: Schema, name: str) -> float | None:
    bound = schema.get(name)
    return float(bound) if isinstance(bound, int | float) else None

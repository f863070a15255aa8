"""Forms: the fields of a JSON schema, asked one by one."""

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import date, datetime, time
from functools import partial
from typing import Any, cast

from pydantic import JsonValue

from everloop.cli.client.prompts import UNCHOSEN, ask_text, choose
from everloop.cli.client.screen import one_line
from everloop.runtime.schema_validation import SchemaUnfitError, find_schema_violations_soon

Schema = Mapping[str, Any]
Say = Callable[..., None]

NOTHING = object()
"""Marks a field that is left out."""

_DEEPEST = 8
_FORMATS: Mapping[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
    "time": time.fromisoformat,
}
"""Parsers of those formats of JSON schema that Python supports; checks of schemas ignore formats."""

_EXAMPLES = {"date": "2026-12-24", "date-time": "2026-12-24T18:30:00", "time": "18:30"}
_NAMES = {"integer": "a whole number", "number": "a number", "string": "a text"}


class Form:
    """Form that asks for a value of a schema. `say` shows lines."""

    def __init__(self, schema: Schema, say: Say) -> None:
        self._root = schema
        self._say = say

    async def fill(self) -> JsonValue:
        """Return the value that the user entered."""
        filled = await self._ask("", self._root, is_required=True, depth=0)
        return cast("JsonValue", {} if filled is NOTHING else filled)

    async def _ask(self, name: str, schema: Schema, *, is_required: bool, depth: int) -> object:
        schema, is_nullable = self._plain(schema)
        kind = schema.get("type") if depth < _DEEPEST else None
        if "const" in schema:
            return schema["const"]
        if isinstance(values := schema.get("enum"), list):
            options = [(value, _shown(value)) for value in cast("list[object]", values)]
            return await self._chosen(name, schema, options, is_required=is_required)
        if kind == "object" and schema.get("properties"):
            return await self._object(name, schema, is_required=is_required, depth=depth)
        asking: Mapping[object, Callable[..., Awaitable[object]]] = {
            "boolean": partial(self._chosen, options=[(True, "yes"), (False, "no")]),
            "array": self._list,
            **dict.fromkeys(_NAMES, self._scalar),
        }
        return await asking.get(kind, self._json)(name, schema, is_required=is_required and not is_nullable)

    def _plain(self, schema: Schema) -> tuple[Schema, bool]:
        """Return a schema without references and without the choice of null, and whether null was one."""
        is_nullable = False
        for _ in range(_DEEPEST):
            found, allows_null = self._unwrapped(schema)
            is_nullable = is_nullable or allows_null
            if found is None:
                break
            schema = found
        kinds = schema.get("type")
        if isinstance(kinds, list):
            real = [str(each) for each in cast("list[object]", kinds) if each != "null"]
            is_nullable = is_nullable or "null" in kinds
            schema = {**schema, "type": real[0] if len(real) == 1 else None}
        return schema, is_nullable

    def _unwrapped(self, schema: Schema) -> tuple[Schema | None, bool]:
        """Return the schema behind the outermost reference or choice, None if there is none."""
        if isinstance(reference := schema.get("$ref"), str):
            return {**self._referred(reference), **_without(schema, "$ref")}, False
        for key in ("anyOf", "oneOf", "allOf"):
            choices = cast("list[Schema]", schema.get(key) or [])
            others = [each for each in choices if each.get("type") != "null"]
            if len(others) == 1:
                return {**others[0], **_without(schema, key)}, len(choices) > 1
        return None, False

    def _referred(self, reference: str) -> Schema:
        found: object = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            found = cast("Mapping[str, object]", found).get(key) if isinstance(found, Mapping) else None
        return cast("Schema", found) if isinstance(found, Mapping) else {}

    # One field.

    async def _object(self, name: str, schema: Schema, *, is_required: bool, depth: int) -> object:
        choices: list[tuple[object, str]] = [(False, "leave it out"), (True, "fill it in")]
        if name and not is_required and not await self._taken(name, schema, choices):
            return NOTHING
        filled: dict[str, object] = {}
        for field, inner in schema["properties"].items():
            place = f"{name}.{field}" if name else field
            value = await self._ask(
                place, inner, is_required=field in schema.get("required", []), depth=depth + 1
            )
            if value is not NOTHING:
                filled[field] = value
        return filled

    async def _chosen(
        self, name: str, schema: Schema, options: list[tuple[object, str]], *, is_required: bool
    ) -> object:
        if not is_required and "default" not in schema:
            options = [*options, (NOTHING, "leave it out")]
        return await self._taken(name, schema, options)

    async def _taken(self, name: str, schema: Schema, options: list[tuple[object, str]]) -> object:
        self._describe(schema)
        value = await choose(
            options, title=f"  {name}" if name else "", default=schema.get("default", UNCHOSEN)
        )
        label = next(label for one, label in options if one is value)
        self._say(f"  {name or 'answer'}: {label}")
        return value

    async def _scalar(self, name: str, schema: Schema, *, is_required: bool) -> object:
        kind = str(schema["type"])
        self._describe(schema)

        def read(text: str) -> JsonValue:
            return text if kind == "string" else json.loads(text.strip())

        expected = _NAMES[kind] + (f" ({schema['format']})" if "format" in schema else "")
        return await self._typed(name, schema, read, expected, is_required=is_required)

    async def _list(self, name: str, schema: Schema, *, is_required: bool) -> object:
        items = schema.get("items")
        inner, _ = self._plain(cast("Schema", items) if isinstance(items, Mapping) else {})
        kind = inner.get("type")
        if kind not in _NAMES:
            return await self._json(name, schema, is_required=is_required)
        self._describe(schema)

        def read(text: str) -> JsonValue:
            pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
            return [piece if kind == "string" else json.loads(piece) for piece in pieces]

        return await self._typed(name, schema, read, "several, separated by commas", is_required=is_required)

    async def _json(self, name: str, schema: Schema, *, is_required: bool) -> object:
        self._describe(schema)
        return await self._typed(name, schema, json.loads, "a JSON value", is_required=is_required)

    async def _typed(
        self, name: str, schema: Schema, read: Callable[[str], JsonValue], expected: str, *, is_required: bool
    ) -> object:
        default = schema.get("default")
        hint = expected if is_required else f"{expected}; Enter leaves it out"
        if default is not None:
            hint = f"{expected}; Enter: {_shown(default)}"
        while True:
            text = await ask_text(f"  {name or 'answer'}: ", hint=hint)
            if not text.strip() and (default is not None or not is_required):
                return NOTHING if default is None else default
            try:
                value = read(text)
            except ValueError:
                self._say(f"  that is not {expected}", "red")
                continue
            if not (problem := await self._problem(value, schema)):
                return value
            self._say(f"  {problem}", "red")

    async def _problem(self, value: JsonValue, schema: Schema) -> str:
        """Return the problem of a value; checks that are impossible here are left to the server."""
        form = str(schema.get("format"))
        if isinstance(value, str) and form in _FORMATS:
            try:
                _FORMATS[form](value)
            except ValueError:
                return f"that is no {form}, such as {_EXAMPLES[form]}"
        complete = {**schema, "$defs": self._root.get("$defs", {})}
        try:
            found = await find_schema_violations_soon(complete, [value])
        except SchemaUnfitError:
            return ""
        return found[0].message if found else ""

    def _describe(self, schema: Schema) -> None:
        if about := schema.get("description"):
            self._say(f"  {one_line(str(about))}", "dim")


def _without(schema: Schema, key: str) -> Schema:
    return {name: value for name, value in schema.items() if name != key}


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""Validation of output models: clients have to be able to read the answers that the model serializes.

The promised schema is that of the language model's answer. Both schemas are checked at the definition
of an agent, except for serializers without a return type: their results are read back with each answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

Schema = Mapping[str, Any]


def problem_of_output(output: type[BaseModel]) -> str:
    """Return why clients could not read the answers of a model; empty if they can read all.

    Raises:
        PydanticUserError: the model has no JSON schema.
    """
    if name := _deep_alias(cast("object", output.__pydantic_core_schema__)):
        return f"{name} is read from within another value (AliasPath), which no schema says; use alias=…"
    return _Schemas(output).problem()


def _deep_alias(schema: object, name: str = "") -> str:
    """Return the name of a field that is only read from below other names."""
    if isinstance(schema, list | tuple):
        parts = [(name, each) for each in cast("Sequence[object]", schema)]
    elif isinstance(schema, dict):
        named = cast("dict[str, object]", schema)
        if _is_deep(named.get("validation_alias")):
            return name
        parts = list(named.items())
    else:
        return ""
    return next((found for key, each in parts if (found := _deep_alias(each, str(key)))), "")


def _is_deep(alias: object) -> bool:
    """Return True for a path (`AliasPath`), or several (`AliasChoices`), unless one has a single step."""
    if not isinstance(alias, list):
        return False
    paths = cast("list[object]", alias)
    several = [cast("list[object]", each) for each in paths if isinstance(each, list)] or [paths]
    return all(len(path) > 1 for path in several)


class _Schemas:
    """The two schemas of a model: `read` for validation, `written` for serialization."""

    def __init__(self, output: type[BaseModel]) -> None:
        self._read: Schema = output.model_json_schema(mode="validation")
        self._written: Schema = output.model_json_schema(mode="serialization")
        self._problems: dict[tuple[int, int], str] = {}
        """Results of finished and running comparisons: a model may contain itself."""

    def problem(self) -> str:
        return self._of_any(self._written, self._read, "it")

    def _of_any(self, written: Schema, read: Schema, place: str) -> str:
        """Return the error of a written form that matches none of the read ones."""
        taken = list(_forms(read, self._read))
        for form in _forms(written, self._written):
            problems = [self._of_form(form, each, place) for each in taken]
            if all(problems):
                inner = (each for each in problems if not each.startswith(f"{place} is read as "))
                return next(inner, problems[0])
        return ""

    def _of_form(self, written: Schema, read: Schema, place: str) -> str:
        if (pair := (id(written), id(read))) not in self._problems:
            self._problems[pair] = ""
            problem = _problem_of_kind(written, read, place) or _problem_of_names(written, read, place)
            self._problems[pair] = problem or next(filter(None, self._of_parts(written, read, place)), "")
        return self._problems[pair]

    def _of_parts(self, written: Schema, read: Schema, place: str) -> Iterator[str]:
        for name, each in read.get("properties", {}).items():
            inside = name if place == "it" else f"{place}.{name}"
            yield self._of_any(written["properties"][name], each, inside)
        for keyword in ("items", "additionalProperties"):
            if each := _schema(read.get(keyword)):
                yield self._of_any(_schema(written.get(keyword)), each, f"{place}[…]")
        pairs = zip(written.get("prefixItems", ()), read.get("prefixItems", ()), strict=False)
        for number, (given, each) in enumerate(pairs):
            yield self._of_any(given, each, f"{place}[{number}]")


_ANY: Schema = {}


def _schema(value: object) -> Schema:
    """Return a schema, or the schema of any value."""
    return cast("Schema", value) if isinstance(value, dict) else _ANY


def _forms(schema: Schema, root: Schema) -> Iterator[Schema]:
    while reference := schema.get("$ref"):
        schema = root["$defs"][reference.rpartition("/")[2]]
    several = schema.get("anyOf") or schema.get("oneOf")
    for each in several or ():
        yield from _forms(each, root)
    if not several:
        yield schema


def _problem_of_kind(written: Schema, read: Schema, place: str) -> str:
    if read.get("writeOnly"):
        return f"{place} is a secret, which is written as asterisks"
    for keyword in ("type", "format", "const", "enum"):
        wanted, given = read.get(keyword), written.get(keyword)
        if wanted is not None and given != wanted and (wanted, given) != ("number", "integer"):
            differs = f"{place} is read as {_kind(read)}, and written as {_kind(written)}"
            return f"{differs}; let its serializer return what the field takes"
    return ""


def _kind(schema: Schema) -> str:
    kind = " or ".join(map(str, schema.get("enum", ()))) or schema.get("const") or schema.get("type", "any")
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


def _problem_of_names(written: Schema, read: Schema, place: str) -> str:
    takes, gives = read.get("properties", {}), written.get("properties", {})
    where = "" if place == "it" else f" of {place}"
    may_miss = {*read.get("required", ())} - {*written.get("required", ())}
    if missing := may_miss | (takes.keys() - gives.keys()):
        name = f"{min(missing)}{where}"
        return f"{name} is read, and not written; give it one name for both (alias=…), and leave out exclude"
    more = gives.keys() - takes.keys() if read.get("additionalProperties") is False else ()
    if more:
        return f"{min(more)}{where} is written, and not read; leave out extra='forbid'"
    return ""

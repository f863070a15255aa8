"""JSON schemas that somebody else has written: a model, a user, or a server."""

from collections.abc import Iterator, Mapping

from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from pydantic import JsonValue


def validator_of(schema: Mapping[str, JsonValue]) -> Validator:
    """Return what checks values against a schema, by the draft that it names (default: 2020-12)."""
    return validator_for(schema, default=Draft202012Validator)(schema)


def problem_of_schema(schema: Mapping[str, JsonValue]) -> str:
    """Return what is wrong with a schema; empty if nothing is.

    A reference to another place is wrong: it would be fetched from there.
    """
    try:
        validator_of(schema).check_schema(dict(schema))
    except SchemaError as error:
        return f"this is no JSON schema: {error.message}"
    if outside := next((ref for ref in _references(dict(schema)) if not ref.startswith("#")), None):
        return f"the schema refers to {outside!r}; put it in ($defs)"
    return ""


def _references(schema: JsonValue) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in {"$ref", "$dynamicRef", "$recursiveRef"} and isinstance(value, str):
                yield value
            yield from _references(value)

"""JSON schemas of questions, and what of an answer does not fit them."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import cast

import structlog
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import (
    Draft202012Validator,
    extend,  # pyright: ignore[reportUnknownVariableType] -- its stub has no types
)
from pydantic import JsonValue
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_PATH = 200
"""Characters of the path to what is wrong: its names may be the client's."""

MAX_MATCHED = 100_000
"""Characters of a text that is matched with a pattern: at worst it takes a fifth of a second."""

Validator = Draft202012Validator
Keyword = Callable[[Validator, JsonValue, JsonValue, Mapping[str, JsonValue]], Iterator[ValidationError]]
"""Checks a keyword of a schema: the arguments are its value, what is checked, and the schema it stands in."""

_UNFIT_SCHEMA = (SchemaError, Unresolvable, RecursionError)
_KEYWORDS = cast("Mapping[str, Keyword]", Draft202012Validator.VALIDATORS)

_log = structlog.get_logger()


def find_misfit(schema: dict[str, JsonValue], value: JsonValue) -> str | None:
    """Return which rule of a schema (Draft 2020-12) data break, and where; None if they fit.

    Of the data it repeats nothing but names of fields. No reference leads out of the schema. A schema that
    is wrong in itself checks nothing: no answer could ever satisfy it. Neither does a pattern that cannot be
    matched in linear time, such as one that looks ahead: it could hold up everybody.
    """
    try:
        Draft202012Validator.check_schema(schema)
        error = next(_validator(schema).iter_errors(value), None)
    except _UNFIT_SCHEMA as unfit:
        _log.warning("answer not checked: its schema is unfit", error_type=type(unfit).__name__)
        return None
    return _describe(error) if isinstance(error, ValidationError) else None


def _validator(schema: dict[str, JsonValue]) -> Validator:
    written = json.dumps(schema)
    kind = _LinearValidator
    if '"patternProperties"' in written and '"unevaluatedProperties"' in written:
        _log.warning("answer partly checked", left_out="unevaluatedProperties beside patternProperties")
        kind = _LaxValidator
    # An empty registry fetches nothing.
    return kind(_without_dialects(schema), registry=Registry())


def _without_dialects(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the schema without `$schema`, by which a part of it would choose another validator than ours."""
    named = {key: value for key, value in schema.items() if key != "$schema" or not isinstance(value, str)}
    return {key: _in_our_dialect(value) for key, value in named.items()}


def _in_our_dialect(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_in_our_dialect(item) for item in value]
    return _without_dialects(value) if isinstance(value, dict) else value


@lru_cache(maxsize=32)
def _compile(pattern: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except PatternError:
        _log.warning("answer partly checked", left_out=f"the pattern {pattern[:MAX_PATH]}")
        return None


def _matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern is found in a text; None if that cannot be told in linear time."""
    compiled = _compile(pattern)
    if compiled is None or len(text) > MAX_MATCHED:
        return None
    return compiled.isinstance_python(text)


def _pattern(
    _validator: Validator, pattern: JsonValue, value: JsonValue, _schema: Mapping[str, JsonValue]
) -> Iterator[ValidationError]:
    if isinstance(value, str) and _matches(str(pattern), value) is False:
        yield ValidationError("does not match")


def _pattern_properties(
    validator: Validator, patterns: JsonValue, value: JsonValue, _schema: Mapping[str, JsonValue]
) -> Iterator[ValidationError]:
    if not isinstance(patterns, dict) or not isinstance(value, dict):
        return
    for pattern, schema in cast("dict[str, dict[str, JsonValue] | bool]", patterns).items():
        for name in value:
            if _matches(pattern, name):
                yield from validator.descend(value[name], schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Validator, rule: JsonValue, value: JsonValue, schema: Mapping[str, JsonValue]
) -> Iterator[ValidationError]:
    """Check what no pattern matches; what one may match is no addition."""
    plain = {key: rest for key, rest in schema.items() if key != "patternProperties"}
    patterns = schema.get("patternProperties")
    if isinstance(patterns, dict) and isinstance(value, dict):
        matched = {name for pattern in patterns for name in value if _matches(pattern, name) is not False}
        value = {name: field for name, field in value.items() if name not in matched}
    yield from _KEYWORDS["additionalProperties"](validator, rule, value, plain)


def _left_out(
    _validator: Validator, _rule: JsonValue, _value: JsonValue, _schema: Mapping[str, JsonValue]
) -> Iterator[ValidationError]:
    yield from ()


_LINEAR: Mapping[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
"""In place of those that match patterns with Python's `re`, which may never end, and stops all threads."""

_LinearValidator = cast("type[Validator]", extend(Validator, _LINEAR))
_LaxValidator = cast("type[Validator]", extend(Validator, {**_LINEAR, "unevaluatedProperties": _left_out}))


def _describe(error: ValidationError) -> str:
    """Say where the data do not fit and which rule they break; the error's own message repeats them."""
    path = error.json_path if len(error.json_path) <= MAX_PATH else error.json_path[:MAX_PATH] + "…"
    rule = json.dumps({str(error.validator): error.validator_value}, ensure_ascii=False)
    return f"{rule} at {path}"

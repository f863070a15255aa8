"""Changes to artifacts."""

import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue
from pydantic_core import from_json

from everloop.runtime.schema_validation import SchemaUnfitError, find_schema_violations, problem_of_schema
from everloop.stores.artifacts.artifact_errors import RowInvalidError, RowSchemaError
from everloop.workflows.contract.artifacts import PartKind
from everloop.workflows.contract.parts import text_problem


@dataclass(frozen=True)
class NewPart:
    """A part to write.

    `content` is UTF-8 of a text, bytes of a file, JSON of data, JSON lines of rows. `row_schema` is for rows.
    `url` is the address of a file that is stored elsewhere; it has no content.
    """

    kind: PartKind
    content: bytes = b""
    media_type: str = ""
    filename: str = ""
    row_schema: Mapping[str, JsonValue] | None = None
    url: str = ""


@dataclass(frozen=True)
class Create:
    """Create an artifact; with `override`, replace one of the same id, and continue its versions."""

    task_id: str
    parts: tuple[NewPart, ...]
    name: str = ""
    description: str = ""
    complete: bool = False
    override: bool = False
    is_input: bool = False


@dataclass(frozen=True)
class Append:
    """Append to the content of part `index` (-1: the last one).

    `rows` is the number of rows in `content`, of a dataset. `parts` are added behind the existing ones.
    """

    content: bytes
    index: int = -1
    rows: int = 0
    last_chunk: bool = False
    parts: tuple[NewPart, ...] = ()


@dataclass(frozen=True)
class AddParts:
    """Add parts behind the existing ones. It counts as one chunk."""

    parts: tuple[NewPart, ...]
    last_chunk: bool = False


@dataclass(frozen=True)
class Replace:
    """Replace part `index`. The new part may be of another kind."""

    index: int
    part: NewPart


@dataclass(frozen=True)
class Complete:
    """Mark the content as complete: it cannot be extended. A complete artifact keeps its version."""


@dataclass(frozen=True)
class Fail:
    """Mark the content as failed: it cannot be extended. A failed artifact keeps its version."""


Change = Create | Append | AddParts | Replace | Complete | Fail


# Names of operations, with the attempt at a tool call that made them.
#
# An attempt on a worker that was wrongly considered lost may write after the next attempt has ended. Such
# writes are refused.

_NAME = re.compile(r"(?P<call>[0-9a-f]{16})@(?P<attempt>[0-9]+)/.*", re.DOTALL)


def attempt_prefix(call_key: str, attempt: int) -> str:
    """Return the prefix of the ids of all operations of one attempt.

    `attempt` is its number in the record of the call: it increases with each attempt, also after a Reset.
    """
    call = hashlib.sha256(call_key.encode()).hexdigest()[:16]
    return f"{call}@{attempt}/"


def is_outdated(operation_id: str, done: Iterable[str]) -> bool:
    """True if one of the operations was made by a later attempt at the same call."""
    name = _NAME.fullmatch(operation_id)
    if name is None:
        return False
    others = filter(None, map(_NAME.fullmatch, done))
    return any(
        other["call"] == name["call"] and int(other["attempt"]) > int(name["attempt"]) for other in others
    )


# Rows of a dataset: JSON objects, one a line, each checked against the schema of the dataset.

_MAX_REASON = 200
_TOGETHER = 1_000
"""Rows that are checked in one batch."""


def encode_rows(rows: Iterable[Mapping[str, JsonValue]]) -> bytes:
    """Return rows as JSON lines.

    Raises:
        RowInvalidError: A row is not JSON, for example because it contains NaN.
    """
    return b"".join(_encode(number, row) for number, row in enumerate(rows))


async def decode_rows(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, JsonValue]]:
    """Yield the rows of stored content. Pieces may end anywhere."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield cast("dict[str, JsonValue]", json.loads(line))


def check_schema(schema: Mapping[str, JsonValue] | None) -> None:
    """Check that a schema is valid.

    Raises:
        RowSchemaError: Rows cannot be checked against it.
    """
    if schema is not None:
        text = json.dumps(schema, ensure_ascii=False)
        if problem := text_problem(text, len(text)):
            raise RowSchemaError(problem)
        if problem := problem_of_schema(schema):
            raise RowSchemaError(problem[:_MAX_REASON])


def count_rows(content: bytes, schema: Mapping[str, JsonValue] | None) -> int:
    """Check that each row is an object and matches the schema; return the number of rows.

    Models write both schemas and rows, so both are treated as untrusted.

    Raises:
        RowInvalidError: A row does not match, or the last line has no end.
        RowSchemaError: Rows cannot be checked against the schema.
    """
    lines = content.split(b"\n")
    if lines.pop():
        raise RowInvalidError(len(lines), "its line has no end")
    for start in range(0, len(lines), _TOGETHER):
        rows = [
            _read_row(start + number, line) for number, line in enumerate(lines[start : start + _TOGETHER])
        ]
        if schema is not None:
            _check_rows(rows, schema, start)
    return len(lines)


def _read_row(number: int, line: bytes) -> dict[str, JsonValue]:
    try:
        row: JsonValue = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise RowInvalidError(number, "it is not JSON") from error
    if not isinstance(row, dict):
        raise RowInvalidError(number, "it is not a JSON object")
    return row


def _check_rows(rows: list[dict[str, JsonValue]], schema: Mapping[str, JsonValue], first: int) -> None:
    try:
        violations = find_schema_violations(schema, rows)
    except SchemaUnfitError as error:
        raise RowSchemaError(str(error)[:_MAX_REASON]) from error
    for violation in violations:
        problem = f"{violation.json_path}: {violation.message[:_MAX_REASON]}"
        raise RowInvalidError(first + violation.value, problem)


def _encode(number: int, row: Mapping[str, JsonValue]) -> bytes:
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise RowInvalidError(number, "it is not JSON") from error

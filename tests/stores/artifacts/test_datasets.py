"""Datasets: rows are stored and read, each checked against a schema of any origin."""

import math
from collections.abc import Mapping, Sequence
from typing import cast
from uuid import uuid4

import pytest
from pydantic import JsonValue

from everloop.stores.artifacts.artifact_errors import RowInvalidError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Append, Create, NewPart, decode_rows, encode_rows
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from tests.support.doubling import while_checks_wait

SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "name": {"type": "string", "pattern": "^[a-z]+$"}},
    "required": ["n"],
    "additionalProperties": False,
}
Row = Mapping[str, JsonValue]


@pytest.fixture
def context_id() -> str:
    return f"owner:{uuid4()}"


async def make(
    artifacts: Artifacts, context_id: str, *rows: Row, schema: Row | None = None
) -> StoredArtifact:
    """Make an artifact of rows."""
    part = NewPart("rows", encode_rows(rows), row_schema=schema)
    return await artifacts.apply(context_id, "a", Create("t", (part,)))


async def append(
    artifacts: Artifacts, context_id: str, rows: Sequence[Row], *, is_last: bool = False
) -> StoredArtifact:
    """Append rows to the dataset."""
    change = Append(encode_rows(rows), rows=len(rows), last_chunk=is_last)
    return await artifacts.apply(context_id, "a", change)


async def rows_of(artifacts: Artifacts, context_id: str) -> list[dict[str, JsonValue]]:
    return [row async for row in decode_rows(artifacts.read_part(context_id, "a"))]


async def test_dataset_takes_batches(artifacts: Artifacts, context_id: str) -> None:
    """Rows are appended in batches, and counted."""
    made = await make(artifacts, context_id, {"n": 0}, schema=SCHEMA)
    assert made.parts[0].row_schema == SCHEMA
    for start in range(1, 301, 50):
        rows = [{"n": number, "name": "abc"} for number in range(start, start + 50)]
        artifact = await append(artifacts, context_id, rows, is_last=start > 250)
        assert artifact.parts[0].rows == start + 50
    assert [row["n"] for row in await rows_of(artifacts, context_id)] == list(range(301))
    assert (await artifacts.get_artifact(context_id, "a")).status is ArtifactStatus.COMPLETE


BAD_ROWS: list[Mapping[str, object]] = [
    *({"n": value} for value in ("1", math.inf, {1})),
    *({"n": 1, "name": name} for name in ("Abc", "\ud800")),
    {},
    {"n": 1, "more": 1},
]


async def test_bad_row_keeps_its_batch_out(artifacts: Artifacts, context_id: str) -> None:
    """A row that breaks the schema, or is not JSON, is named, and no row of its batch is written."""
    await make(artifacts, context_id, {"n": 0}, schema=SCHEMA)
    for row in BAD_ROWS:
        with pytest.raises(RowInvalidError, match="row 1"):
            await append(artifacts, context_id, [{"n": 1}, cast("Row", row), {"n": 3}])
    assert await rows_of(artifacts, context_id) == [{"n": 0}]


async def test_a_schema_of_rows_is_looked_at_apart(artifacts: Artifacts, context_id: str) -> None:
    """A schema of a model, and rows by it, are checked without blocking the worker."""
    schema: dict[str, JsonValue] = {"properties": {"x": {"pattern": "^(a+)+$"}}}

    await while_checks_wait(make(artifacts, context_id, schema=schema))
    await while_checks_wait(append(artifacts, context_id, [{"x": "a"}]))

    assert await rows_of(artifacts, context_id) == [{"x": "a"}]

"""Files, data and datasets: what comes in comes out, and each is read as what it is."""

import math
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from pydantic import JsonValue

from everloop.stores.artifacts.interface import (
    ArtifactClosedError,
    ArtifactKindError,
    Artifacts,
    ChunkIndexError,
    NewPart,
    PartIndexError,
    RowInvalidError,
    RowSchemaError,
)
from everloop.workflows.contract.artifacts import ArtifactStatus
from tests.support.doubling import doubling, while_checks_wait
from tests.support.memory.artifacts import MemoryArtifacts

SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "name": {"type": "string", "pattern": "^[a-z]+$"}},
    "required": ["n"],
    "additionalProperties": False,
}
VALUES: list[JsonValue] = [None, 0, "☃", [], {"a": [1, {"b": None}]}, "x" * 900]


@pytest.fixture
def context_id() -> str:
    return f"owner:{uuid4()}"


async def rows_of(
    artifacts: Artifacts, context_id: str, start: int = 0, limit: int | None = None
) -> list[dict[str, JsonValue]]:
    found = artifacts.get_dataset_rows(context_id, "a", start=start, limit=limit)
    return [row async for row in found]


async def test_text_file_is_written_in_chunks(artifacts: Artifacts, context_id: str) -> None:
    """A text file takes str and bytes, and is complete with its last chunk."""
    made = await artifacts.create_file_artifact(
        context_id, "a", "# ünï", task_id="t", mime_type="text/markdown", filename="x.md", name="Notes"
    )
    assert (made.name, made.parts[0].media_type, made.parts[0].filename) == ("Notes", "text/markdown", "x.md")
    await artifacts.append_file_chunk(context_id, "a", "☃" * 200, chunk_index=0)
    ended = await artifacts.append_file_chunk(context_id, "a", b"!", is_last_chunk=True)
    assert ended.status is ArtifactStatus.COMPLETE
    assert (await artifacts.get_file_content(context_id, "a")).decode() == "# ünï" + "☃" * 200 + "!"
    with pytest.raises(ArtifactClosedError):
        await artifacts.append_file_chunk(context_id, "a", "more")


async def test_binary_file_takes_base64(artifacts: Artifacts, context_id: str) -> None:
    """The chunks of a file made with base64 are base64, each by itself; what is none is refused."""
    first, second = b"\xff\x00", bytes(range(256)) * 3
    await artifacts.create_file_artifact(
        context_id, "a", b64encode(first).decode(), task_id="t", mime_type="image/png", encoding="base64"
    )
    await artifacts.append_file_chunk(context_id, "a", b64encode(second).decode())
    with pytest.raises(ArtifactKindError, match="base64"):
        await artifacts.append_file_chunk(context_id, "a", "no base64!")
    with pytest.raises(ChunkIndexError, match="expected chunk 1"):
        await artifacts.append_file_chunk(context_id, "a", b"x", chunk_index=5)
    assert await artifacts.get_file_content(context_id, "a") == first + second


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_data_are_written_whole(artifacts: Artifacts, context_id: str, value: JsonValue) -> None:
    """A JSON value is put in place of the one before, in one step, and comes back as it was."""
    await artifacts.create_data_artifact(context_id, "a", {"first": True}, task_id="t")
    await artifacts.write_data(context_id, "a", value, operation_id="o")
    assert await artifacts.get_data_content(context_id, "a") == value
    await artifacts.write_data(context_id, "a", "second", operation_id="o")
    assert await artifacts.get_data_content(context_id, "a") == value
    with pytest.raises(ArtifactKindError, match="no JSON"):
        await artifacts.write_data(context_id, "a", math.nan)


async def test_dataset_takes_batches(artifacts: Artifacts, context_id: str) -> None:
    """Rows are appended in batches, counted, and read from any row on."""
    made = await artifacts.create_dataset_artifact(context_id, "a", [{"n": 0}], task_id="t", schema=SCHEMA)
    assert made.parts[0].row_schema == SCHEMA
    for start in range(1, 301, 50):
        rows = [{"n": number, "name": "abc"} for number in range(start, start + 50)]
        artifact = await artifacts.append_dataset_batch(context_id, "a", rows, start > 250)
        assert artifact.parts[0].rows == start + 50
    assert [row["n"] for row in await rows_of(artifacts, context_id)] == list(range(301))
    assert [row["n"] for row in await rows_of(artifacts, context_id, 298)] == [298, 299, 300]
    assert await rows_of(artifacts, context_id, 99, 1) == [{"n": 99, "name": "abc"}]
    assert await rows_of(artifacts, context_id, 5, 0) == []


BAD_ROWS: list[Mapping[str, object]] = [
    {"n": "1"},
    {},
    {"n": 1, "more": 1},
    {"n": 1, "name": "Abc"},
    {"n": math.inf},
    {"n": {1}},
    {"n": 1, "name": "\ud800"},
]


@pytest.mark.parametrize("row", BAD_ROWS, ids=repr)
async def test_bad_row_keeps_its_batch_out(
    artifacts: Artifacts, context_id: str, row: Mapping[str, JsonValue]
) -> None:
    """One row that breaks the schema, or is no JSON, is named, and none of its batch is written."""
    await artifacts.create_dataset_artifact(context_id, "a", [{"n": 0}], task_id="t", schema=SCHEMA)
    with pytest.raises(RowInvalidError, match="row 1"):
        await artifacts.append_dataset_batch(context_id, "a", [{"n": 1}, row, {"n": 3}])
    assert await rows_of(artifacts, context_id) == [{"n": 0}]


BAD_SCHEMAS: list[dict[str, JsonValue]] = [
    {"properties": {"\ud800": {}}},
    {"type": "nothing"},
    {"properties": {"x": {"pattern": "("}}},
    {"items": [{"type": 3}], "allOf": [{"minimum": "3"}]},
]


@pytest.mark.parametrize("schema", BAD_SCHEMAS, ids=repr)
async def test_unusable_schema_is_refused(
    artifacts: Artifacts, context_id: str, schema: dict[str, JsonValue]
) -> None:
    """A dataset is not made with a schema that is wrong, or has a pattern that is none."""
    with pytest.raises(RowSchemaError):
        await artifacts.create_dataset_artifact(context_id, "a", task_id="t", schema=schema)
    assert await artifacts.list_artifacts(context_id) == []


@pytest.mark.parametrize("reference", ["https://127.0.0.1:1/schema.json", "#/$defs/none", "a file"])
async def test_no_schema_leads_outside(
    artifacts: Artifacts, context_id: str, reference: str, tmp_path: Path
) -> None:
    """A reference out of the schema is followed nowhere: no dataset is made with it."""
    (tmp_path / "schema.json").write_text("{}")
    address = (tmp_path / "schema.json").as_uri() if reference == "a file" else reference
    with pytest.raises(RowSchemaError):
        await artifacts.create_dataset_artifact(context_id, "a", task_id="t", schema={"$ref": address})


async def test_rows_that_take_too_long_to_check_are_refused(artifacts: Artifacts, context_id: str) -> None:
    """A schema whose parts refer to each other twice ends in an error, not in the process."""
    await artifacts.create_dataset_artifact(context_id, "a", task_id="t", schema=doubling())
    with pytest.raises(RowSchemaError, match="takes too long"):
        await artifacts.append_dataset_batch(context_id, "a", [{}])


async def test_other_dialect_checks_no_less(artifacts: Artifacts, context_id: str) -> None:
    """`$schema` chooses no other validator, neither at the head of a schema nor within."""
    inner: JsonValue = {"$schema": "http://json-schema.org/draft-04/schema#", "pattern": "^(a+)+$"}
    schema: dict[str, JsonValue] = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"x": inner, "$schema": {"type": "integer"}},
    }
    await artifacts.create_dataset_artifact(context_id, "a", task_id="t", schema=schema)
    await artifacts.append_dataset_batch(context_id, "a", [{"x": "aaa", "$schema": 1}])
    for row in ({"x": "a" * 40 + "b"}, {"$schema": "1"}):
        with pytest.raises(RowInvalidError):
            await artifacts.append_dataset_batch(context_id, "a", [cast("Mapping[str, JsonValue]", row)])


async def test_each_kind_is_read_as_what_it_is(artifacts: Artifacts, context_id: str) -> None:
    """Reading or writing a part as another kind is refused by that name."""
    await artifacts.create_file_artifact(context_id, "file", "x", task_id="t")
    await artifacts.create_data_artifact(context_id, "data", task_id="t")
    await artifacts.create_dataset_artifact(context_id, "rows", task_id="t")
    for call in (
        artifacts.get_data_content(context_id, "file"),
        artifacts.get_file_content(context_id, "data"),
        artifacts.write_data(context_id, "file", 1),
        artifacts.append_file_chunk(context_id, "data", b"x"),
        artifacts.append_dataset_batch(context_id, "file", [{}]),
    ):
        with pytest.raises(ArtifactKindError):
            await call
    with pytest.raises(ArtifactKindError):
        [row async for row in artifacts.get_dataset_rows(context_id, "file")]
    with pytest.raises(RowInvalidError):
        await artifacts.append_file_chunk(context_id, "rows", b"x")
    with pytest.raises(PartIndexError):
        await artifacts.get_file_content(context_id, "file", index=1)


async def test_part_is_replaced(artifacts: Artifacts, context_id: str) -> None:
    """A part may be replaced by one of another kind."""
    await artifacts.create_file_artifact(context_id, "a", "x", task_id="t")
    await artifacts.replace_part(context_id, "a", 0, NewPart("data", b'{"n": 1}'))
    assert await artifacts.get_data_content(context_id, "a") == {"n": 1}


async def test_a_schema_of_rows_is_looked_at_apart(artifacts: Artifacts, context_id: str) -> None:
    """A model wrote it: while it is checked, and rows by it, a worker goes on."""
    if isinstance(artifacts, MemoryArtifacts):
        pytest.skip("of one process, for tests")
    schema: dict[str, JsonValue] = {"properties": {"x": {"pattern": "^(a+)+$"}}}

    await while_checks_wait(artifacts.create_dataset_artifact(context_id, "a", task_id="t", schema=schema))
    await while_checks_wait(artifacts.append_dataset_batch(context_id, "a", [{"x": "a"}]))

    assert await rows_of(artifacts, context_id) == [{"x": "a"}]

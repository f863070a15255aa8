"""Datasets as CSV."""

import csv
import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from everloop.gateway.downloads.formats import csv_pieces

Row = Mapping[str, JsonValue]


class Content:
    """JSON lines in pieces; counts the reads."""

    def __init__(self, rows: Sequence[Row], size: int = 7) -> None:
        self.content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        self.size = size
        self.reads = 0

    async def read(self) -> AsyncIterator[bytes]:
        self.reads += 1
        for start in range(0, len(self.content), self.size):
            yield self.content[start : start + self.size]


async def as_csv(content: Content, schema: Mapping[str, JsonValue] | None = None) -> bytes:
    """Return all of it, with unchanged cells."""
    return b"".join([piece async for piece in csv_pieces(content.read, schema, keeps_formulas=True)])


@pytest.mark.parametrize(
    ("rows", "schema", "expected"),
    [
        ([{"b": 1, "a": "x"}, {"b": 2}], None, "b,a\r\n1,x\r\n2,\r\n"),
        ([{"a": 1}, {"a": 2, "late": 3}], None, "a,late\r\n1,\r\n2,3\r\n"),
        ([{"a": 1, "b": 2}], {"properties": {"b": {}, "a": {}}}, "b,a\r\n2,1\r\n"),
        ([{"a": 1, "c": 2}], {"properties": {"b": {}, "a": {}}}, "b,a,c\r\n,1,2\r\n"),
        ([], {"properties": {"b": {}, "a": {}}}, "b,a\r\n"),
        ([], None, ""),
        (
            [{"a": 'say "hi", you\nthere', "b": [1, {"c": None}], "d": True, "e": None, "f": 1.5}],
            None,
            'a,b,d,e,f\r\n"say ""hi"", you\nthere","[1,{""c"":null}]",true,,1.5\r\n',
        ),
        ([{"n": 12345678901234567890123456789}], None, "n\r\n12345678901234567890123456789\r\n"),
        ([{"größe": "ü€"}], None, "größe\r\nü€\r\n"),
    ],
)
async def test_rows_become_lines(
    rows: Sequence[Row], schema: Mapping[str, JsonValue] | None, expected: str
) -> None:
    """RFC 4180: the columns of the schema first, then all others; cells that are not text are JSON."""
    assert (await as_csv(Content(rows), schema)).decode() == expected


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '="a,b"'])
async def test_a_text_that_a_spreadsheet_would_calculate_is_marked_as_text(text: str) -> None:
    """Also in the name of a column; numbers stay numbers."""
    rows: list[Row] = [{text: text, "n": -1, "t": f"a{text}"}]
    written = b"".join([piece async for piece in csv_pieces(Content(rows).read, None)]).decode()
    assert list(csv.reader(io.StringIO(written, newline=""))) == [
        [f"'{text}", "n", "t"],
        [f"'{text}", "-1", f"a{text}"],
    ]


async def test_a_closed_schema_spares_a_look_at_all_rows() -> None:
    """If the schema allows no other columns, the rows are read once, otherwise twice."""
    properties: dict[str, JsonValue] = {"a": {}}
    closed, open_ = Content([{"a": 1}]), Content([{"a": 1}])
    await as_csv(closed, {"properties": properties, "additionalProperties": False})
    await as_csv(open_, {"properties": properties})
    assert (closed.reads, open_.reads) == (1, 2)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), TEXT, min_size=1), min_size=1), st.integers(1, 50))
async def test_what_is_read_back_is_what_was_written(rows: list[dict[str, str]], size: int) -> None:
    """For any texts, and any cuts between the pieces."""
    written = (await as_csv(Content(rows, size))).decode()
    read = list(csv.DictReader(io.StringIO(written, newline="")))
    assert [{key: row.get(key, "") for key in found} for found, row in zip(read, rows, strict=True)] == read
    assert all(set(row) <= set(found) for found, row in zip(read, rows, strict=True))

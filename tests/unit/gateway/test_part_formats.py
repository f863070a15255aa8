"""Format and file name of a downloaded part."""

import pytest

from everloop.gateway.downloads.formats import Format, choose_format, served
from everloop.workflows.contract.artifacts import ArtifactPart, PartKind


def part(kind: PartKind = "file", media_type: str = "", filename: str = "", index: int = 0) -> ArtifactPart:
    return ArtifactPart(index=index, kind=kind, media_type=media_type, filename=filename)


BYTES, CSV = "application/octet-stream", "text/csv; charset=utf-8"


@pytest.mark.parametrize(
    ("found", "format_", "media_type", "name"),
    [
        (part(filename="a.bin"), "stored", BYTES, '"a.bin"'),
        (part(media_type="image/png"), "stored", "image/png", '"art.png"'),
        (part("text"), "stored", "text/plain; charset=utf-8", '"art.txt"'),
        (part("text", index=1), "stored", "text/plain; charset=utf-8", '"art-1.txt"'),
        (part("text", "text/markdown"), "stored", "text/markdown; charset=utf-8", '"art.md"'),
        (part("text", "text/html;charset=UTF-8"), "stored", "text/html;charset=UTF-8", '"art.html"'),
        (part(media_type="text/plain"), "stored", "text/plain", '"art.txt"'),
        (part("data"), "stored", "application/json", '"art.json"'),
        (part("rows"), "stored", "application/x-ndjson", '"art.jsonl"'),
        (part("rows"), "csv", CSV, '"art.csv"'),
        (part("rows", filename="t.jsonl"), "csv", CSV, '"t.csv"'),
        (part("rows", filename="orders v1.2"), "csv", CSV, '"orders v1.2.csv"'),
        (part("rows", filename="orders.CSV"), "csv", CSV, '"orders.csv"'),
        (part(media_type="text/html\r\nX-Evil: 1"), "stored", BYTES, '"art.bin"'),
        (part(media_type="närrisch/é"), "stored", BYTES, '"art.bin"'),
        (part(filename="../../etc/pass\r\nwd"), "stored", BYTES, '"passwd"'),
        (part(filename='"x";y.txt'), "stored", BYTES, "\"_x__y.txt\"; filename*=UTF-8''%22x%22%3By.txt"),
        (
            part(filename="Größe €.txt"),
            "stored",
            BYTES,
            "\"Gr__e _.txt\"; filename*=UTF-8''Gr%C3%B6%C3%9Fe%20%E2%82%AC.txt",
        ),
        (part(filename="a\u202egnp.exe"), "stored", BYTES, '"agnp.exe"'),
        (part(filename=".."), "stored", BYTES, '"art.bin"'),
        (part(media_type="image/png", filename="art.png"), "stored", "image/png", '"art.png"'),
    ],
)
def test_a_part_has_a_type_and_a_name(
    found: ArtifactPart, format_: Format, media_type: str, name: str
) -> None:
    """It is an attachment with a name without folders; no foreign text breaks out of a header."""
    kind = served("art", found, format_)
    assert (kind.media_type, kind.disposition) == (media_type, f"attachment; filename={name}")


@pytest.mark.parametrize(
    ("asked", "accept", "expected"),
    [
        (None, "", "stored"),
        (None, "*/*", "stored"),
        (None, "text/csv", "csv"),
        (None, "text/csv, */*;q=0.1", "csv"),
        (None, "text/*", "csv"),
        (None, "application/x-ndjson, text/csv;q=0.9", "stored"),
        (None, "text/csv;q=0", "stored"),
        (None, "text/html,application/xml;q=0.9,*/*;q=0.8", "stored"),
        ("csv", "application/x-ndjson", "csv"),
        ("jsonl", "text/csv", "stored"),
    ],
)
def test_a_dataset_comes_as_asked(asked: str | None, accept: str, expected: Format) -> None:
    """The format in the query, or else the client's preferred one, or else JSON lines."""
    assert choose_format(part("rows"), asked, accept) == expected

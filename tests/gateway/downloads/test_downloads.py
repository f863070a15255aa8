"""The content of artifacts over HTTP: byte for byte, with complete headers."""

import pytest

from everloop.stores.artifacts.changes import Append, Complete, Fail, NewPart
from everloop.workflows.contract.artifacts import PartKind
from tests.gateway.downloads.site import CONTENT, ROWS, Site, check_error, file


async def test_a_part_is_downloaded_as_it_was_written(site: Site) -> None:
    """Byte for byte, with type, length and name, as an attachment that no browser runs."""
    await site.put(file(b"x"), file(filename="plöt.png"), artifact_id="a/b c")
    answer = await site.get(site.address("a/b c", 1))
    assert (answer.status_code, answer.content) == (200, CONTENT)
    headers = answer.headers
    assert headers["Content-Type"] == "image/png"
    assert headers["Content-Length"] == str(len(CONTENT))
    assert (
        headers["Content-Disposition"] == "attachment; filename=\"pl_t.png\"; filename*=UTF-8''pl%C3%B6t.png"
    )
    assert headers["Cache-Control"] == "private, no-cache"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "sandbox"
    assert headers["Accept-Ranges"] == "bytes"
    assert headers["Everloop-Artifact-Status"] == "complete"


@pytest.mark.parametrize("content", [b"", CONTENT])
async def test_head_tells_all_but_the_content(site: Site, content: bytes) -> None:
    """HEAD has the headers of GET, and reads nothing."""
    await site.put(file(content))
    get = await site.get()
    site.artifacts.failure, site.artifacts.pieces = AssertionError("read"), 0
    head = await site.head()
    ignored = {"date"}
    assert head.content == b""
    assert {k: v for k, v in head.headers.items() if k not in ignored} == {
        k: v for k, v in get.headers.items() if k not in ignored
    }


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=100-", 100, 2048),
        ("bytes=-10", 2038, 2048),
        ("bytes=2000-9999", 2000, 2048),
    ],
)
async def test_a_range_is_a_part_of_the_content(site: Site, asked: str, start: int, end: int) -> None:
    """206 with exactly these bytes and their position; HEAD ignores ranges."""
    await site.put(file())
    answer = await site.get(Range=asked)
    head = await site.head(Range=asked)
    assert (answer.status_code, answer.content) == (206, CONTENT[start:end])
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/2048"
    assert answer.headers["Content-Length"] == str(end - start)
    assert (head.status_code, head.headers["Content-Length"]) == (200, "2048")


async def test_a_range_behind_the_end_is_refused(site: Site) -> None:
    """416 has the length of the content."""
    await site.put(file())
    answer = await site.get(Range="bytes=2048-")
    assert answer.headers["Content-Range"] == "bytes */2048"
    check_error(answer, 416, "there are no such bytes: the part has 2048")


async def test_a_version_has_its_tag(site: Site) -> None:
    """If-None-Match, If-Match and If-Range compare it; a replaced artifact has another tag."""
    await site.put(file())
    tag = (await site.get()).headers["ETag"]
    unchanged = await site.get(If_None_Match=f'"other", W/{tag}', Range="bytes=0-1")
    assert (unchanged.status_code, unchanged.content, unchanged.headers["ETag"]) == (304, b"", tag)
    assert (await site.get(If_Match=tag)).status_code == 200
    check_error(await site.get(If_Match='"other"'), 412, f"it is {tag}")
    check_error(await site.get(If_Match=f"W/{tag}"), 412, "another version")
    assert (await site.get(If_Range=tag, Range="bytes=0-1")).content == CONTENT[:2]
    assert (await site.get(If_Range='"other"', Range="bytes=0-1")).content == CONTENT
    assert (await site.get(If_Range="Sat, 21 Nov 2026 08:00:00 GMT", Range="bytes=0-1")).content == CONTENT
    await site.put(file())
    assert (await site.get(If_None_Match=tag)).status_code == 200
    check_error(await site.get(If_Match=tag), 412, "another version")


async def test_an_artifact_that_was_removed_and_made_again_has_another_tag(site: Site) -> None:
    """Its versions count from one again; a client with the old content in its cache gets the new one."""
    await site.put(file())
    tag = (await site.get()).headers["ETag"]
    await site.artifacts.delete_artifact(site.key, "out")
    await site.put(file(b"other"))
    assert (await site.get(If_None_Match=tag)).text == "other"


async def test_what_is_being_written_is_downloaded_as_far_as_it_is(site: Site) -> None:
    """All bytes so far, without ranges and not cacheable; then more of it; then all."""
    await site.put(file(), complete=False)
    key = site.key
    building = await site.get(Range="bytes=0-1")
    await site.artifacts.apply(key, "out", Append(content=b"more"))
    longer = await site.get()
    await site.artifacts.apply(key, "out", Complete())
    whole = await site.get()
    assert (building.status_code, building.content) == (200, CONTENT)
    assert "Content-Range" not in building.headers
    assert building.headers["Accept-Ranges"] == "none"
    assert [a.headers["Cache-Control"] for a in (building, longer, whole)] == ["no-store"] * 2 + [
        "private, no-cache"
    ]
    assert longer.content == whole.content == CONTENT + b"more"
    tags = [answer.headers["ETag"] for answer in (building, longer, whole)]
    assert len(set(tags)) == 3
    assert longer.headers["Everloop-Artifact-Status"] == "building"


async def test_a_part_that_is_a_url_is_a_link(site: Site) -> None:
    """The content is external: a redirect would send the client's key to it."""
    url = "https://x.example/a.html?b=<é>"
    await site.put(NewPart("file", media_type="text/html", url=url))
    answer = await site.get()
    listed = await site.get(f"{site.path}/out")
    assert (answer.status_code, "Location" in answer.headers) == (300, False)
    assert answer.json() == {"url": url, "mediaType": "text/html", "filename": ""}
    assert (answer.headers["Link"], answer.headers["Cache-Control"]) == (
        '<https://x.example/a.html?b=%3C%C3%A9%3E>; rel="alternate"',
        "no-store",
    )
    assert [part["url"] for part in listed.json()["parts"]] == [url]


async def test_what_stayed_unfinished_says_so(site: Site) -> None:
    """A failed artifact changes no more, and is marked as incomplete."""
    await site.put(file(), complete=False)
    await site.artifacts.apply(site.key, "out", Fail())
    answer = await site.get(Range="bytes=0-1")
    assert (answer.content, answer.headers["Everloop-Artifact-Status"]) == (CONTENT[:2], "failed")


@pytest.mark.parametrize(
    ("query", "accept", "media_type", "content"),
    [
        ("", "", "application/x-ndjson", ROWS),
        ("?format=jsonl", "text/csv", "application/x-ndjson", ROWS),
        ("?format=csv", "", "text/csv; charset=utf-8", b'id,name,tags\r\n1,"a,b",\r\n2,,"[""x""]"\r\n'),
        ("", "text/csv", "text/csv; charset=utf-8", b'id,name,tags\r\n1,"a,b",\r\n2,,"[""x""]"\r\n'),
    ],
)
async def test_a_dataset_comes_as_json_lines_or_csv(
    site: Site, query: str, accept: str, media_type: str, content: bytes
) -> None:
    """By query or by Accept; the formats have tags of their own, and CSV has no ranges."""
    await site.put(NewPart(kind="rows", content=ROWS))
    answer = await site.get(site.address() + query, Accept=accept, Range="bytes=0-99")
    head = await site.head(site.address() + query, Accept=accept)
    assert answer.content == content
    is_csv = media_type.startswith("text/csv")
    assert (answer.status_code, answer.headers["Accept-Ranges"]) == (
        (200, "none") if is_csv else (206, "bytes")
    )
    assert ("Content-Length" in head.headers) == (not is_csv)
    assert answer.headers["ETag"].endswith('-csv"') == is_csv
    assert answer.headers.get("Vary") == (None if query else "Accept")


@pytest.mark.parametrize(
    ("kind", "query", "words"),
    [("rows", "?format=xlsx", "neither jsonl nor csv"), ("file", "?format=csv", "datasets only")],
)
async def test_an_unknown_format_is_refused(site: Site, kind: PartKind, query: str, words: str) -> None:
    """400 lists the formats."""
    await site.put(NewPart(kind=kind))
    check_error(await site.get(site.address() + query), 400, words)


async def test_formulas_are_text_in_a_csv(site: Site) -> None:
    """A spreadsheet would run them. A setting of the gateway keeps formulas."""
    await site.put(NewPart(kind="rows", content=b'{"name": "=1+1"}\n'))
    answer = await site.get(site.address() + "?format=csv")
    assert answer.content == b"name\r\n'=1+1\r\n"

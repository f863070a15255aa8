"""Failing downloads: an error before the first byte, or a connection that is cut."""

import asyncio

import httpx
import pytest
from temporalio.client import Client

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, BlobsUnavailableError
from everloop.stores.artifacts.changes import NewPart
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.artifacts import PartKind
from tests.gateway.downloads.site import MIB, FailingArtifacts, Site, check_error, file
from tests.gateway.harness import running_gateway, unique


@pytest.mark.parametrize(
    ("failure", "status", "words"),
    [
        (BlobCorruptError("secret-key"), 500, "part 0 of artifact 'out' is damaged: its checksum"),
        (BlobMissingError("secret-key"), 500, "part 0 of artifact 'out' is lost"),
        (BlobsUnavailableError("s3 at secret-key", "secret-key"), 503, "ask again in a few seconds"),
        (ConnectionRefusedError("secret-key"), 503, "ask again in a few seconds"),
        (ValueError("secret-key"), 500, "internal error, reference "),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_what_cannot_be_read_is_an_error_before_the_first_byte(
    site: Site, failure: Exception, status: int, words: str
) -> None:
    """The error names the part, not its storage location; an outage has Retry-After."""
    await site.put(file())
    site.artifacts.failure, site.artifacts.pieces = failure, 0
    answer = await site.get()
    check_error(answer, status, words)
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert site.artifacts.reading == 0


@pytest.mark.parametrize(
    ("kind", "query"), [("file", ""), ("rows", "?format=csv")], ids=["known length", "unknown length"]
)
async def test_what_fails_in_the_middle_never_looks_whole(site: Site, kind: PartKind, query: str) -> None:
    """The connection is cut: the client gets an error, not a short body that ended well."""
    content = b"x" * 3 * MIB if kind == "file" else b'{"a": 1}\n' * (MIB // 3)
    part = NewPart(
        kind=kind, content=content, row_schema={"properties": {"a": {}}, "additionalProperties": False}
    )
    await site.put(part if kind == "rows" else file(content))
    site.artifacts.failure = BlobCorruptError("secret-key")
    with pytest.raises(httpx.RemoteProtocolError):
        await site.get(site.address() + query)
    assert site.artifacts.reading == 0


@pytest.mark.parametrize("pieces", [0, 1])
async def test_what_is_shorter_than_it_should_be_never_looks_whole(site: Site, pieces: int) -> None:
    """The Content-Length promises more bytes than the store has: the connection is cut."""
    await site.put(file(b"x" * 3 * MIB))
    site.artifacts.ends_early, site.artifacts.pieces = True, pieces
    with pytest.raises(httpx.RemoteProtocolError):
        await site.get()


async def test_what_is_made_anew_while_a_download_begins_is_sent_with_its_own_headers(site: Site) -> None:
    """Tag and length are those of the bytes sent; after endless replacements the client gets Retry-After."""
    await site.put(file())
    site.artifacts.replaced = [b"other content"]
    answer = await site.get()
    again = await site.head()
    site.artifacts.replaced = [b"%d" % number for number in range(100)]
    restless = await site.get()
    site.artifacts.replaced = []
    assert answer.text == "other content"
    assert answer.headers["ETag"] == again.headers["ETag"]
    check_error(restless, 503, "ask again")
    assert site.artifacts.reading == 0


async def test_a_client_that_leaves_is_not_read_for(site: Site) -> None:
    """Reading the store ends with the connection, and is no faster than the client."""
    await site.put(file(b"x" * 64 * MIB))
    async with site.gateway.http.stream("GET", site.address()) as answer:
        assert answer.status_code == 200
        assert site.artifacts.reading == 1
    async with asyncio.timeout(20):
        while site.artifacts.reading:  # noqa: ASYNC110 -- a fact of another task, no event
            await asyncio.sleep(0.01)


async def test_a_download_that_the_gateway_does_not_wait_for_is_cut(
    client: Client, views: TaskViews, caplog: pytest.LogCaptureFixture
) -> None:
    """A download that outlives the grace period is cut, and is not logged as a defect."""
    artifacts = FailingArtifacts(views)
    async with running_gateway(client, views, queue="none", artifacts=artifacts) as gateway:
        site = Site(gateway, artifacts, unique("stop"))
        await site.put(file(b"x" * 64 * MIB))
        async with gateway.http.stream("GET", site.address()) as answer:
            gateway.server.stop()
            await gateway.serving
            with pytest.raises(httpx.RemoteProtocolError):
                await answer.aread()
    assert artifacts.reading == 0
    assert [record.message for record in caplog.records if record.exc_info] == []

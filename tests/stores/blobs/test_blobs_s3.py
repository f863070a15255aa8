"""Guarantees of blobs on S3 alone: multipart uploads, links for clients, detection of damaged transfers."""

import hashlib
import os
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import cast
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from everloop.runtime.blobs import (
    BlobCorruptError,
    BlobLinks,
    BlobMissingError,
    BlobsUnavailableError,
    LinkTerms,
)
from everloop.stores.blobs.s3_blobs import MULTIPART_ABOVE, SMALLEST_PART, S3Blobs
from tests.stores.blobs.blob_rig import PREFIX, new_key
from tests.support.servers.buckets import client_of, new_bucket, unfinished_uploads
from tests.support.servers.s3_relay import Relay, flipped, running_s3_relay, unchanged

LARGE = os.urandom(2 * MULTIPART_ABOVE + 77)
FULL = os.urandom(SMALLEST_PART)
SECONDS = 900
DISPOSITION = "attachment; filename=\"gr__e _x_.csv\"; filename*=UTF-8''gr%C3%B6%C3%9Fe%20%22x%22.csv"
TERMS = LinkTerms("text/plain", "attachment", 60)


@dataclass(frozen=True)
class Bucket:
    """A bucket, the relay between it and the store, and its address without the relay."""

    blobs: S3Blobs
    relay: Relay
    endpoint: str
    name: str

    @property
    def links(self) -> BlobLinks:
        assert self.blobs.links
        return self.blobs.links

    @property
    def unfinished(self) -> int:
        return unfinished_uploads(self.endpoint, self.name)


@pytest.fixture
def bucket(s3_endpoint: str) -> Generator[Bucket]:
    name = new_bucket(s3_endpoint)
    with (
        running_s3_relay(s3_endpoint) as relay,
        closing(S3Blobs(name, endpoint=relay.endpoint, prefix=PREFIX, presigned=SECONDS)) as blobs,
    ):
        yield Bucket(blobs, relay, s3_endpoint, name)


async def _download(url: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(url, headers=headers)


async def _content_of(links: BlobLinks, key: str) -> bytes:
    url = await links.url(key, TERMS)
    return (await _download(url)).raise_for_status().content


async def test_large_blob_goes_in_parts(bucket: Bucket) -> None:
    """Content over 8 MiB is sent in several requests; a repeated put sends nothing."""
    key = new_key()
    await bucket.blobs.put(key, LARGE)
    assert sum("partNumber=" in request for request in bucket.relay.requests) == 3
    bucket.relay.requests.clear()
    await bucket.blobs.put(key, LARGE)
    assert [request.split()[0] for request in bucket.relay.requests] == ["HEAD"]
    assert bucket.unfinished == 0


@pytest.mark.parametrize("fails", ["partNumber=1", "partNumber=2", "uploadId="])
async def test_upload_that_fails_leaves_nothing(bucket: Bucket, fails: str) -> None:
    """An upload that loses any request leaves neither parts nor a blob; the next put succeeds."""
    key = new_key()
    bucket.relay.loses = lambda request: fails in request and request.startswith(("PUT", "POST"))
    with pytest.raises(BlobsUnavailableError):
        await bucket.blobs.put(key, LARGE)
    assert bucket.unfinished == 0
    with pytest.raises(BlobMissingError):
        await bucket.blobs.get(key)
    bucket.relay.loses = lambda _: False
    await bucket.blobs.put(key, LARGE)
    assert await bucket.blobs.get(key) == LARGE


@pytest.mark.parametrize(("content", "requests"), [(FULL, 1), (LARGE, 3)], ids=["one request", "parts"])
async def test_the_sha256_goes_along_with_each_upload(bucket: Bucket, content: bytes, requests: int) -> None:
    """Each upload has its sha256, so that S3 refuses damaged ones."""
    await bucket.blobs.put(new_key(), content)

    announced = [checksum for checksum, _ in bucket.relay.uploads]
    assert announced == [hashlib.sha256(body).hexdigest() for _, body in bucket.relay.uploads]
    assert len(announced) == requests


async def test_answer_that_is_spoilt_on_the_way_is_noticed(bucket: Bucket) -> None:
    """A changed byte is a damaged blob; a truncated answer is an outage, and is read again."""
    key = new_key()
    await bucket.blobs.put(key, LARGE)
    bucket.relay.answered = flipped
    with pytest.raises(BlobCorruptError):
        await bucket.blobs.get(key)
    bucket.relay.answered = lambda content: content[: len(content) // 2]
    with pytest.raises(BlobsUnavailableError):
        await bucket.blobs.get(key)


async def test_join_puts_sources_in_order_and_keeps_them(bucket: Bucket) -> None:
    """Sources of any length are joined into one blob, which its URL serves; a repeated join is the same."""
    sources = {new_key(): content for content in (b"head", FULL, FULL[::-1], b"", b"between", LARGE, b"tail")}
    for source, content in sources.items():
        await bucket.blobs.put(source, content)
    key = new_key()
    for _ in range(2):
        await bucket.links.join(key, list(sources))
        assert await _content_of(bucket.links, key) == b"".join(sources.values())
    for source, content in sources.items():
        assert await bucket.blobs.get(source) == content
    assert bucket.unfinished == 0


async def test_long_sources_are_copied_by_the_server(bucket: Bucket) -> None:
    """Segments of 5 MiB are copied by the server; only the last, shorter one is sent."""
    contents = [FULL, FULL[::-1], b"tail"]
    sources = [new_key() for _ in contents]
    for source, content in zip(sources, contents, strict=True):
        await bucket.blobs.put(source, content)
    bucket.relay.requests.clear()
    sent: list[bytes] = []
    bucket.relay.sent = lambda content: sent.append(content) or content
    key = new_key()
    await bucket.links.join(key, sources)
    assert sum(request.startswith("GET ") for request in bucket.relay.requests) == 1
    assert sum(map(len, sent)) < 10_000
    assert await _content_of(bucket.links, key) == b"".join(contents)


async def test_join_that_fails_leaves_nothing(bucket: Bucket) -> None:
    """A join that loses its server leaves no parts, and can be repeated."""
    source, key = new_key(), new_key()
    await bucket.blobs.put(source, FULL)
    bucket.relay.loses = lambda request: "partNumber=2" in request
    with pytest.raises(BlobsUnavailableError):
        await bucket.links.join(key, [source, source])
    assert bucket.unfinished == 0
    bucket.relay.loses = lambda _: False
    await bucket.links.join(key, [source, source])
    assert await _content_of(bucket.links, key) == FULL * 2


async def test_join_of_a_lost_or_damaged_source_makes_nothing(bucket: Bucket) -> None:
    """A missing or damaged source is named, and neither blob nor upload stays."""
    there, lost, short, key = (new_key() for _ in range(4))
    await bucket.blobs.put(there, FULL)
    await bucket.blobs.put(short, b"content")
    with pytest.raises(BlobMissingError, match=lost):
        await bucket.links.join(key, [there, lost])
    bucket.relay.answered = flipped
    with pytest.raises(BlobCorruptError, match=short):
        await bucket.links.join(key, [short])
    bucket.relay.answered = unchanged
    with pytest.raises(BlobMissingError):
        await bucket.blobs.get(key)
    assert bucket.unfinished == 0


async def test_url_serves_a_download(bucket: Bucket) -> None:
    """A URL serves the bytes, or a range, as a file of this name and type, until it expires."""
    key = new_key()
    await bucket.blobs.put(key, FULL)
    url = await bucket.links.url(key, LinkTerms("text/csv; header=present", DISPOSITION, 77))
    answer, piece = await _download(url), await _download(url, Range="bytes=100-199")
    assert answer.content == FULL
    assert answer.headers["content-disposition"] == DISPOSITION
    assert answer.headers["content-type"].replace(" ", "") == "text/csv;header=present"
    assert (piece.status_code, piece.content) == (206, FULL[100:200])
    assert parse_qs(urlsplit(url).query)["X-Amz-Expires"] == ["77"]


@pytest.mark.parametrize(("sse", "key_id"), [("AES256", ""), ("aws:kms", "alias/everloop"), ("", "")])
async def test_s3_is_told_how_to_encrypt(s3_endpoint: str, sse: str, key_id: str) -> None:
    """Each new object, also a multipart or joined one, has the encryption setting.

    Without one the bucket decides.
    """
    bucket, small, large, joined = new_bucket(s3_endpoint), new_key(), new_key(), new_key()
    sealed = S3Blobs(bucket, endpoint=s3_endpoint, presigned=60, sse=sse, sse_key_id=key_id)
    with closing(sealed) as blobs:
        await blobs.put(small, FULL)
        await blobs.put(large, LARGE)
        assert blobs.links
        await blobs.links.join(joined, [small, small])
    for key in (small, large, joined):
        head = cast("Mapping[str, str]", client_of(s3_endpoint).head_object(Bucket=bucket, Key=key))
        assert (head.get("ServerSideEncryption", ""), head.get("SSEKMSKeyId", "")) == (sse, key_id)

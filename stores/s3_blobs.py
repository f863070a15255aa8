"""Blobs in a bucket of S3, or of a server that speaks its protocol."""

import asyncio
import base64
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypedDict, TypeVar, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from stores.blobs import (
    BlobCorruptError,
    BlobMissingError,
    Blobs,
    BlobsUnavailableError,
    BlobsUnfitError,
    check_key,
    sha256,
)

THREADS = 16
"""How many requests of one process are under way at once."""

CONNECT_TIMEOUT = 2.0
READ_TIMEOUT = 5.0
"""Seconds that the server may be silent: one attempt ends before Temporal gives a workflow task up (10 s)."""

_DIGEST = "sha256"
_ACCESS = "access is denied; allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket"
_REASONS = {
    "NoSuchBucket": "there is no such bucket; create it, or correct EVERLOOP_S3_BUCKET",
    "InvalidBucketName": "this is no name of a bucket; correct EVERLOOP_S3_BUCKET",
    "AccessDenied": _ACCESS,
    "403": _ACCESS,
    "InvalidAccessKeyId": "the access key is unknown; correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret is wrong; correct AWS_SECRET_ACCESS_KEY",
    "PermanentRedirect": "the bucket is in another region; correct AWS_DEFAULT_REGION",
}
_MISSING = frozenset({"NoSuchKey", "404"})
"""How GET and HEAD say that there is no object; HEAD of a missing bucket says the same."""

T = TypeVar("T")


class _Body(Protocol):
    def read(self) -> bytes: ...


class _Head(TypedDict):
    ContentLength: int
    Metadata: Mapping[str, str]


class _Object(_Head):
    Body: _Body


class S3Client(Protocol):
    """What we use of boto3's client, which has no types of its own."""

    def head_object(self, *, Bucket: str, Key: str) -> _Head: ...  # noqa: N803 -- boto3's name

    def get_object(self, *, Bucket: str, Key: str) -> _Object: ...  # noqa: N803 -- boto3's name

    def put_object(
        self,
        *,
        Bucket: str,  # noqa: N803 -- boto3's name
        Key: str,  # noqa: N803 -- boto3's name
        Body: bytes,  # noqa: N803 -- boto3's name
        ChecksumSHA256: str,  # noqa: N803 -- boto3's name
        Metadata: Mapping[str, str],  # noqa: N803 -- boto3's name
    ) -> object: ...

    def delete_object(self, *, Bucket: str, Key: str) -> object: ...  # noqa: N803 -- boto3's name

    def close(self) -> None: ...


class S3Blobs(Blobs):
    """Objects `prefix` + key. The sha256 goes along: the server checks the upload, and keeps it as metadata.

    boto3 finds credentials and region as always (the AWS_ variables). Nothing is tried twice here: Temporal
    does that. Close it with `close`.
    """

    def __init__(self, bucket: str, *, endpoint: str = "", prefix: str = "") -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._endpoint = endpoint
        self._client = _connect(endpoint)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    @property
    def place(self) -> str:
        return f"the S3 bucket {self._bucket}" + (f" at {self._endpoint}" if self._endpoint else "")

    def close(self) -> None:
        """Begin no more requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def put(self, key: str, content: bytes) -> None:
        await self._in_thread(key, lambda name: self._put(name, content))

    async def get(self, key: str) -> bytes:
        found = await self._in_thread(key, self._get)
        if found is None:
            raise BlobMissingError(key)
        content, is_whole = found
        if not is_whole:
            raise BlobCorruptError(key)
        return content

    async def delete(self, key: str) -> None:
        await self._in_thread(key, lambda name: self._client.delete_object(Bucket=self._bucket, Key=name))

    async def _in_thread(self, key: str, work: Callable[[str], T]) -> T:
        name = self._prefix + check_key(key)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, name)
        except ClientError as error:
            reason = _REASONS.get(_code(error), error)
            raise BlobsUnavailableError(self.place, reason) from error
        except (OSError, BotoCoreError) as error:
            raise BlobsUnavailableError(self.place, error) from error

    def _put(self, name: str, content: bytes) -> None:
        digest = hashlib.sha256(content)
        if self._holds(name, len(content), digest.hexdigest()):
            return
        self._client.put_object(
            Bucket=self._bucket,
            Key=name,
            Body=content,
            ChecksumSHA256=base64.b64encode(digest.digest()).decode(),
            Metadata={_DIGEST: digest.hexdigest()},
        )

    def _holds(self, name: str, length: int, digest: str) -> bool:
        """Whether the object is there: a workflow that is replayed puts all of its payloads again."""
        try:
            head = self._client.head_object(Bucket=self._bucket, Key=name)
        except ClientError as error:
            if _code(error) in _MISSING:
                return False
            raise
        return head["ContentLength"] == length and head["Metadata"].get(_DIGEST) == digest

    def _get(self, name: str) -> tuple[bytes, bool] | None:
        """Return the content of an object and whether it has its checksum, or None if there is none."""
        try:
            found = self._client.get_object(Bucket=self._bucket, Key=name)
        except ClientError as error:
            if _code(error) in _MISSING:
                return None
            raise
        content = found["Body"].read()
        return content, sha256(content) == found["Metadata"].get(_DIGEST)


def _connect(endpoint: str) -> S3Client:
    config = Config(
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        max_pool_connections=THREADS,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Our own sha256 goes along; other servers than Amazon's do not know the checksums of newer clients.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint else None,
    )
    connect = cast("Callable[..., S3Client]", boto3.client)
    try:
        return connect("s3", endpoint_url=endpoint or None, config=config)
    except (ValueError, BotoCoreError) as error:
        raise BlobsUnfitError(f"S3 cannot be used: {error}; correct EVERLOOP_S3_ENDPOINT or AWS_…") from error


def _code(error: ClientError) -> str:
    response = cast("Mapping[str, Mapping[str, str]]", error.response)
    return response.get("Error", {}).get("Code", "")

"""Blobs in a bucket of S3, or of a server that speaks its protocol."""

import asyncio
import base64
import contextlib
import hashlib
import io
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from everloop.runtime.blobs import (
    BlobCorruptError,
    BlobLinks,
    BlobMissingError,
    BlobPage,
    Blobs,
    BlobsUnavailableError,
    BlobsUnfitError,
    LinkTerms,
    check_key,
    is_key,
)

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import CompletedPartTypeDef, HeadObjectOutputTypeDef

THREADS = 16
"""How many requests of one process are under way at once."""

TIMEOUTS = (2.0, 5.0)
"""Seconds until a connection stands, and that the server may be silent: one attempt ends before Temporal
gives a workflow task up (10 s)."""

LONG_TIMEOUTS = (10.0, 60.0)
"""The same where the server has more to do at once: it copies, or puts parts together."""

# Objects of one bucket: how blobs become requests. Every call here waits; it belongs into a thread.

MIB = 1 << 20

MULTIPART_ABOVE = 8 * MIB
"""Longer content is put in parts, each of which has its own time to arrive."""

PART_BYTES = 8 * MIB

SMALLEST_PART = 5 * MIB
"""S3 takes no shorter part, except as the last one."""

LISTED = 1000
"""Objects on a page of a list."""

RENEWED_AFTER = timedelta(hours=12)
"""An object that is older is put again, if it is to be put: less than the shortest time to live."""

_PIECE = MIB
_DIGEST = "sha256"

_MISSING = frozenset({"NoSuchKey", "404"})
"""How GET and HEAD say that there is no object; HEAD of a missing bucket says the same."""


class S3Objects:
    """Objects `prefix` + key. The sha256 goes along: the server checks each upload, and keeps it as metadata.

    An upload in parts that a killed process began stays unfinished, seen by nobody; a rule of the bucket
    (AbortIncompleteMultipartUpload) removes it.
    """

    def __init__(self, bucket: str, endpoint: str, prefix: str, encryption: Mapping[str, Any]) -> None:
        self._bucket = bucket
        self._encryption = encryption
        self._prefix = prefix
        self._client = _connect(endpoint, *TIMEOUTS)
        self._slow_client = _connect(endpoint, *LONG_TIMEOUTS)

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()
        self._slow_client.close()

    def put(self, key: str, content: bytes) -> None:
        """Keep content as one object, unless it is there already, and was put less than 12 hours ago."""
        digest = hashlib.sha256(content)
        metadata = {_DIGEST: digest.hexdigest()}
        if self._holds(key, len(content), digest.hexdigest()):
            return
        if len(content) > MULTIPART_ABOVE:
            with self._upload(key, metadata) as upload:
                for start in range(0, len(content), PART_BYTES):
                    upload.add(content[start : start + PART_BYTES])
            return
        self._client.put_object(
            Bucket=self._bucket,
            Key=self._name(key),
            Body=content,
            ChecksumSHA256=base64.b64encode(digest.digest()).decode(),
            Metadata=metadata,
            **self._encryption,
        )

    def get(self, key: str) -> bytes:
        """Return the content of an object.

        Raises:
            BlobMissingError: there is none.
            BlobCorruptError: it has another sha256 than its metadata says.
        """
        try:
            found = self._client.get_object(Bucket=self._bucket, Key=self._name(key))
        except ClientError as error:
            if _code_of(error) in _MISSING:
                raise BlobMissingError(key) from None
            raise
        digest, content = hashlib.sha256(), io.BytesIO()
        while piece := found["Body"].read(_PIECE):
            digest.update(piece)
            content.write(piece)
        if digest.hexdigest() != found["Metadata"].get(_DIGEST):
            raise BlobCorruptError(key)
        return content.getvalue()  # hands the buffer over, and copies nothing

    def delete(self, key: str) -> None:
        """Remove an object if there is one."""
        self._client.delete_object(Bucket=self._bucket, Key=self._name(key))

    def list_old(self, folder: str, before: datetime, cursor: str) -> BlobPage:
        """Return the objects of a page that were put before a time, and where the next page begins."""
        listed = self._client.list_objects_v2(
            Bucket=self._bucket,
            Prefix=self._name(folder) + "/",
            StartAfter=self._prefix + (cursor or folder + "/"),
            MaxKeys=LISTED,
        )
        found = [
            (each.get("Key", "").removeprefix(self._prefix), each.get("LastModified"))
            for each in listed.get("Contents", ())
        ]
        keys = tuple(key for key, put_at in found if is_key(key) and put_at and put_at <= before)
        return BlobPage(keys, found[-1][0] if listed["IsTruncated"] else "")

    def delete_old(self, key: str, before: datetime) -> bool:
        """Remove an object that was put before a time; return whether it was.

        S3 does not do this in one step. Whoever puts it in between does so because a task that is long gone
        was begun anew with the same message.
        """
        head = self._head(key)
        if head is None or head["LastModified"] > before:
            return False
        self.delete(key)
        return True

    def join(self, key: str, sources: Sequence[str]) -> None:
        """Make one object of several. The server copies what is long enough for a part of its own.

        Raises:
            BlobMissingError: there is no such source.
            BlobCorruptError: a source that is too short for a part is damaged.
        """
        lengths = [self._length(source) for source in sources]
        if sum(lengths) < SMALLEST_PART:
            self.put(key, b"".join(self.get(source) for source in sources))
            return
        rest = b""
        with self._upload(key, {}) as upload:
            for source, length in zip(sources, lengths, strict=True):
                if length >= SMALLEST_PART and not rest:
                    upload.copy(self._name(source))
                    continue
                rest += self.get(source)
                if len(rest) >= SMALLEST_PART:
                    upload.add(rest)
                    rest = b""
            if rest:
                upload.add(rest)

    def url(self, key: str, terms: LinkTerms) -> str:
        """Return a signed address of an object. Nothing is sent, but credentials may have to be fetched."""
        wanted = {"ResponseContentDisposition": terms.disposition, "ResponseContentType": terms.media_type}
        return self._client.generate_presigned_url(
            "get_object",
            Params={"Bucket": self._bucket, "Key": self._name(key), **wanted},
            ExpiresIn=terms.seconds,
        )

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _head(self, key: str) -> "HeadObjectOutputTypeDef | None":
        try:
            return self._client.head_object(Bucket=self._bucket, Key=self._name(key))
        except ClientError as error:
            if _code_of(error) in _MISSING:
                return None
            raise

    def _holds(self, key: str, length: int, digest: str) -> bool:
        """Whether the object is there: a workflow that is replayed puts all of its payloads again.

        An old one is put again, so that the housekeeping takes it for new.
        """
        head = self._head(key)
        if head is None or datetime.now(UTC) - head["LastModified"] > RENEWED_AFTER:
            return False
        return (head["ContentLength"], head["Metadata"].get(_DIGEST)) == (length, digest)

    def _length(self, key: str) -> int:
        head = self._head(key)
        # GET knows a missing object from a missing bucket, HEAD does not.
        return head["ContentLength"] if head else len(self.get(key))

    @contextmanager
    def _upload(self, key: str, metadata: Mapping[str, str]) -> Generator["_Upload"]:
        """Make an object of the parts that are added; if anything goes wrong, nothing of it stays."""
        name, client = self._name(key), self._slow_client
        begun = client.create_multipart_upload(
            Bucket=self._bucket, Key=name, Metadata=metadata, **self._encryption
        )
        upload = _Upload(client, self._bucket, name, begun["UploadId"])
        try:
            yield upload
            upload.complete()
        except BaseException:
            # What went wrong first is raised; if the server is away, the rule of the bucket cleans up.
            with contextlib.suppress(OSError, BotoCoreError, ClientError):
                upload.abort()
            raise


class _Upload:
    """An upload in parts."""

    def __init__(self, client: "S3Client", bucket: str, name: str, upload_id: str) -> None:
        self._client = client
        self._bucket = bucket
        self._name = name
        self._id = upload_id
        self._parts: list[CompletedPartTypeDef] = []

    def add(self, content: bytes) -> None:
        """Send the next part."""
        number = len(self._parts) + 1
        sent = self._client.upload_part(
            Bucket=self._bucket, Key=self._name, UploadId=self._id, PartNumber=number, Body=content
        )
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})

    def copy(self, source: str) -> None:
        """Let the server copy an object of the same bucket as the next part."""
        number = len(self._parts) + 1
        copied = self._client.upload_part_copy(
            Bucket=self._bucket,
            Key=self._name,
            UploadId=self._id,
            PartNumber=number,
            CopySource={"Bucket": self._bucket, "Key": source},
        )
        self._parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"].get("ETag", "")})

    def complete(self) -> None:
        """Put the parts together: from now on the object is there."""
        self._client.complete_multipart_upload(
            Bucket=self._bucket, Key=self._name, UploadId=self._id, MultipartUpload={"Parts": self._parts}
        )

    def abort(self) -> None:
        """Forget the parts."""
        self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._name, UploadId=self._id)


_ACCESS = (
    "access is denied; allow s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload and "
    "s3:ListBucket"
)
_REASONS = {
    "NoSuchBucket": "there is no such bucket; create it, or correct EVERLOOP_S3_BUCKET",
    "InvalidBucketName": "this is no name of a bucket; correct EVERLOOP_S3_BUCKET",
    "AccessDenied": _ACCESS,
    "403": _ACCESS,
    "InvalidAccessKeyId": "the access key is unknown; correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret is wrong; correct AWS_SECRET_ACCESS_KEY",
    "RequestTimeTooSkewed": "its clock and that of this machine differ; let both follow NTP",
    "PermanentRedirect": "the bucket is in another region; correct AWS_DEFAULT_REGION",
}

T = TypeVar("T")


class S3Blobs(Blobs, BlobLinks):
    """Objects `prefix` + key, which carry their sha256. Links last `presigned` seconds (0: there are none).

    `sse` and `sse_key_id`: how S3 itself encrypts a new object; empty: as the bucket says. Objects are
    listed by the time when they were put; their server's clock and ours are taken for the same. boto3 finds
    credentials and region as always (the AWS_ variables). Nothing is tried twice here: Temporal does that.
    Links lead to the endpoint, which clients must reach under the name that this process uses. Close it with
    `close`.

    Raises:
        BlobsUnfitError: the endpoint or the AWS_ variables are wrong.
    """

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        bucket: str,
        *,
        endpoint: str = "",
        prefix: str = "",
        presigned: int = 0,
        sse: str = "",
        sse_key_id: str = "",
    ) -> None:
        wanted = {"ServerSideEncryption": sse, "SSEKMSKeyId": sse_key_id}
        encryption = {name: value for name, value in wanted.items() if value}
        self._objects = S3Objects(bucket, endpoint, prefix, encryption)
        self.location = f"the S3 bucket {bucket}" + (f" at {endpoint}" if endpoint else "")
        self.seconds = presigned
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    @property
    def links(self) -> BlobLinks | None:
        return self if self.seconds else None

    def close(self) -> None:
        """Begin no more requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._objects.close()

    async def put(self, key: str, content: bytes) -> None:
        await self._in_thread(lambda: self._objects.put(key, content))

    async def get(self, key: str) -> bytes:
        return await self._in_thread(lambda: self._objects.get(key))

    async def delete(self, key: str) -> None:
        await self._in_thread(lambda: self._objects.delete(key))

    async def join(self, key: str, sources: Sequence[str]) -> None:
        await self._in_thread(lambda: self._objects.join(key, sources))

    async def url(self, key: str, terms: LinkTerms) -> str:
        return await self._in_thread(lambda: self._objects.url(key, terms))

    async def list_old(self, folder: str, age: timedelta, cursor: str) -> BlobPage:
        return await self._in_thread(lambda: self._objects.list_old(folder, datetime.now(UTC) - age, cursor))

    async def remove(self, key: str, age: timedelta) -> bool:
        return await self._in_thread(lambda: self._objects.delete_old(key, datetime.now(UTC) - age))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except ClientError as error:
            raise BlobsUnavailableError(self.location, _REASONS.get(_code_of(error), error)) from error
        except (OSError, BotoCoreError) as error:
            raise BlobsUnavailableError(self.location, error) from error


def _connect(endpoint: str, connect_timeout: float, read_timeout: float) -> "S3Client":
    """Return a client for this endpoint ("": Amazon's). Nothing is sent yet."""
    config = Config(
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_pool_connections=THREADS,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Our own sha256 goes along; other servers than Amazon's do not know the checksums of newer clients.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version="s3v4",
        s3={
            # Each body goes along with its sha256 as part of the signature, which every server checks.
            "payload_signing_enabled": True,
            "addressing_style": "path" if endpoint else "auto",
        },
    )
    try:
        return boto3.client("s3", endpoint_url=endpoint or None, config=config)
    except (ValueError, BotoCoreError) as error:
        raise BlobsUnfitError(f"S3 cannot be used: {error}; correct EVERLOOP_S3_ENDPOINT or AWS_…") from error


def _code_of(error: ClientError) -> str:
    """Return the server's name of an error, "" if it gave none."""
    return error.response.get("Error", {}).get("Code", "")

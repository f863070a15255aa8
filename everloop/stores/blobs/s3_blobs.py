"""Blobs in a bucket of S3, or of a server with its protocol."""

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
"""Limit of concurrent requests of one process."""

TIMEOUTS = (2.0, 5.0)
"""Seconds for a connection, and for silence of the server: one attempt ends before Temporal's timeout of a
workflow task (10 s)."""

LONG_TIMEOUTS = (10.0, 60.0)
"""The same for requests that take the server longer: copies and joins of parts."""

# Objects of one bucket: requests for blobs. Every call blocks, so it runs in a thread.

MIB = 1 << 20

MULTIPART_ABOVE = 8 * MIB
"""Longer content is uploaded in parts, each with a timeout of its own."""

PART_BYTES = 8 * MIB

SMALLEST_PART = 5 * MIB
"""S3 refuses shorter parts, except for the last one."""

LISTED = 1000
"""Objects on a page of a list."""

RENEWED_AFTER = timedelta(hours=12)
"""Age after which an existing object is put again on a put: less than the shortest time to live."""

_PIECE = MIB
_DIGEST = "sha256"

_MISSING = frozenset({"NoSuchKey", "404"})
"""Codes of GET and HEAD for a missing object. HEAD of a missing bucket returns the same."""


class S3Objects:
    """Objects `prefix` + key, with their sha256: the server checks each upload, and stores it as metadata.

    An upload in parts by a killed process stays unfinished and invisible. A rule of the bucket
    (AbortIncompleteMultipartUpload) removes it.
    """

    def __init__(self, bucket: str, endpoint: str, prefix: str, encryption: Mapping[str, Any]) -> None:
        self._bucket = bucket
        self._encryption = encryption
        self._prefix = prefix
        self._client = _connect(endpoint, *TIMEOUTS)
        self._slow_client = _connect(endpoint, *LONG_TIMEOUTS)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._slow_client.close()

    def put(self, key: str, content: bytes) -> None:
        """Store content as one object, unless it exists and was put less than 12 hours ago."""
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
            BlobMissingError: The object does not exist.
            BlobCorruptError: Its sha256 differs from its metadata.
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
        return content.getvalue()  # shares the buffer, without a copy

    def delete(self, key: str) -> None:
        """Remove an object if it exists."""
        self._client.delete_object(Bucket=self._bucket, Key=self._name(key))

    def list_old(self, folder: str, before: datetime, cursor: str) -> BlobPage:
        """Return a page of the objects that were put before a time, with the cursor of the next page."""
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

        S3 does not do this atomically. A concurrent put is unlikely: it takes a new task with the same
        message as one that was deleted long ago.
        """
        head = self._head(key)
        if head is None or head["LastModified"] > before:
            return False
        self.delete(key)
        return True

    def join(self, key: str, sources: Sequence[str]) -> None:
        """Join several objects into one. The server copies the sources that are large enough for a part.

        Raises:
            BlobMissingError: A source does not exist.
            BlobCorruptError: A source that is too short for a part is damaged.
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
        """Return a signed URL of an object. Sends no request, except for credentials."""
        parameters = {
            "ResponseContentDisposition": terms.disposition,
            "ResponseContentType": terms.media_type,
        }
        return self._client.generate_presigned_url(
            "get_object",
            Params={"Bucket": self._bucket, "Key": self._name(key), **parameters},
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
        """True if the object exists and is not old: replay of a workflow puts all of its payloads again.

        An old one is put again, so that the housekeeping treats it as new.
        """
        head = self._head(key)
        if head is None or datetime.now(UTC) - head["LastModified"] > RENEWED_AFTER:
            return False
        return (head["ContentLength"], head["Metadata"].get(_DIGEST)) == (length, digest)

    def _length(self, key: str) -> int:
        head = self._head(key)
        # GET distinguishes a missing object from a missing bucket, HEAD does not.
        return head["ContentLength"] if head else len(self.get(key))

    @contextmanager
    def _upload(self, key: str, metadata: Mapping[str, str]) -> Generator["_Upload"]:
        """Create an object of the parts that are added. On an error, abort the upload."""
        name, client = self._name(key), self._slow_client
        begun = client.create_multipart_upload(
            Bucket=self._bucket, Key=name, Metadata=metadata, **self._encryption
        )
        upload = _Upload(client, self._bucket, name, begun["UploadId"])
        try:
            yield upload
            upload.complete()
        except BaseException:
            # The first error is raised. If the server does not answer, the rule of the bucket cleans up.
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
        """Copy an object of the same bucket on the server as the next part."""
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
        """Join the parts: the object exists from now on."""
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
    "InvalidBucketName": "this is not a name of a bucket; correct EVERLOOP_S3_BUCKET",
    "AccessDenied": _ACCESS,
    "403": _ACCESS,
    "InvalidAccessKeyId": "the access key is unknown; correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret is wrong; correct AWS_SECRET_ACCESS_KEY",
    "RequestTimeTooSkewed": "its clock and that of this machine differ; let both follow NTP",
    "PermanentRedirect": "the bucket is in another region; correct AWS_DEFAULT_REGION",
}

T = TypeVar("T")


class S3Blobs(Blobs, BlobLinks):
    """Objects `prefix` + key with their sha256. Links last `presigned` seconds (0: no links).

    `sse` and `sse_key_id`: S3's encryption of new objects; empty: as set for the bucket. Objects are listed
    by the time of their last put; the clocks of their server and this machine are assumed equal. boto3 finds
    credentials and region as usual (the AWS_ variables). Requests are not retried here: Temporal does that.
    Links contain the endpoint, which clients must reach under the name that this process uses. Close it with
    `close`.

    Raises:
        BlobsUnfitError: The endpoint or the AWS_ variables are invalid.
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
        parameters = {"ServerSideEncryption": sse, "SSEKMSKeyId": sse_key_id}
        encryption = {name: value for name, value in parameters.items() if value}
        self._objects = S3Objects(bucket, endpoint, prefix, encryption)
        self.location = f"the S3 bucket {bucket}" + (f" at {endpoint}" if endpoint else "")
        self.seconds = presigned
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    @property
    def links(self) -> BlobLinks | None:
        return self if self.seconds else None

    def close(self) -> None:
        """Start no more requests."""
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
    """Return a client for this endpoint ("": Amazon's), without sending anything."""
    config = Config(
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_pool_connections=THREADS,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # We send our own sha256: servers other than Amazon's do not support the checksums of newer clients.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version="s3v4",
        s3={
            # The signature includes the sha256 of each body, which every server checks.
            "payload_signing_enabled": True,
            "addressing_style": "path" if endpoint else "auto",
        },
    )
    try:
        return boto3.client("s3", endpoint_url=endpoint or None, config=config)
    except (ValueError, BotoCoreError) as error:
        raise BlobsUnfitError(f"S3 cannot be used: {error}; correct EVERLOOP_S3_ENDPOINT or AWS_…") from error


def _code_of(error: ClientError) -> str:
    """Return the server's code of an error, or an empty string."""
    return error.response.get("Error", {}).get("Code", "")

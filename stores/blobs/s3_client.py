"""boto3's client, as far as we use it: it has no types of its own."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NotRequired, Protocol, TypedDict, Unpack, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from everloop.runtime.blobs import BlobsUnfitError

THREADS = 16
"""How many requests of one process are under way at once."""

CONNECT_TIMEOUT = 2.0
READ_TIMEOUT = 5.0
"""Seconds that the server may be silent: one attempt ends before Temporal gives a workflow task up (10 s)."""

PATIENT_CONNECT_TIMEOUT = 10.0
PATIENT_READ_TIMEOUT = 60.0
"""The same where the server has more to do at once: it copies, or puts parts together."""

_MISSING = frozenset({"NoSuchKey", "404"})
"""How GET and HEAD say that there is no object; HEAD of a missing bucket says the same."""


class _Body(Protocol):
    def read(self, amt: int | None = None) -> bytes: ...


class Head(TypedDict):
    """What is known of an object."""

    ContentLength: int
    Metadata: Mapping[str, str]
    LastModified: datetime


class ListedObject(TypedDict):
    """An object on a page of a list."""

    Key: str
    LastModified: datetime


class ObjectPage(TypedDict):
    """A page of a list; an empty one has no contents."""

    Contents: NotRequired[Sequence[ListedObject]]
    IsTruncated: bool


class FoundObject(Head):
    """An object that is read."""

    Body: _Body


class CreatedUpload(TypedDict):
    """An upload in parts that has begun."""

    UploadId: str


class UploadedPart(TypedDict):
    """A part that has arrived."""

    ETag: str


class CopiedPart(TypedDict):
    """A part that was copied from another object."""

    CopyPartResult: UploadedPart


class PartName(TypedDict):
    """Which part belongs into the whole."""

    PartNumber: int
    ETag: str


class Source(TypedDict):
    """An object to copy from."""

    Bucket: str
    Key: str


class ServerEncryption(TypedDict, total=False):
    """How S3 itself encrypts a new object; what is left out is the bucket's own setting."""

    ServerSideEncryption: str
    SSEKMSKeyId: str


class S3Client(Protocol):
    """What we use of boto3's client."""

    # The names of all arguments are boto3's.
    # ruff: disable[N803]

    def head_object(self, *, Bucket: str, Key: str) -> Head: ...

    def get_object(self, *, Bucket: str, Key: str) -> FoundObject: ...

    def put_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Body: bytes,
        ChecksumSHA256: str,
        Metadata: Mapping[str, str],
        **encryption: Unpack[ServerEncryption],
    ) -> object: ...

    def list_objects_v2(self, *, Bucket: str, Prefix: str, StartAfter: str, MaxKeys: int) -> ObjectPage: ...

    def delete_object(self, *, Bucket: str, Key: str) -> object: ...

    def create_multipart_upload(
        self,
        *,
        Bucket: str,
        Key: str,
        Metadata: Mapping[str, str],
        **encryption: Unpack[ServerEncryption],
    ) -> CreatedUpload: ...

    def upload_part(
        self, *, Bucket: str, Key: str, UploadId: str, PartNumber: int, Body: bytes
    ) -> UploadedPart: ...

    def upload_part_copy(
        self, *, Bucket: str, Key: str, UploadId: str, PartNumber: int, CopySource: Source
    ) -> CopiedPart: ...

    def complete_multipart_upload(
        self, *, Bucket: str, Key: str, UploadId: str, MultipartUpload: Mapping[str, Sequence[PartName]]
    ) -> object: ...

    def abort_multipart_upload(self, *, Bucket: str, Key: str, UploadId: str) -> object: ...

    def generate_presigned_url(
        self, ClientMethod: str, *, Params: Mapping[str, str], ExpiresIn: int
    ) -> str: ...

    def close(self) -> None: ...

    # ruff: enable[N803]


def server_encryption(sse: str, key_id: str) -> ServerEncryption:
    """Return how S3 encrypts, by the settings; empty: as the bucket says."""
    encryption = ServerEncryption()
    if sse:
        encryption["ServerSideEncryption"] = sse
    if key_id:
        encryption["SSEKMSKeyId"] = key_id
    return encryption


def connect_s3(endpoint: str, *, is_patient: bool) -> S3Client:
    """Return a client for this endpoint ("": Amazon's). Nothing is sent yet.

    Raises:
        BlobsUnfitError: the endpoint or the AWS_ variables are wrong.
    """
    config = Config(
        connect_timeout=PATIENT_CONNECT_TIMEOUT if is_patient else CONNECT_TIMEOUT,
        read_timeout=PATIENT_READ_TIMEOUT if is_patient else READ_TIMEOUT,
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
    connect = cast("Callable[..., S3Client]", boto3.client)
    try:
        return connect("s3", endpoint_url=endpoint or None, config=config)
    except (ValueError, BotoCoreError) as error:
        raise BlobsUnfitError(f"S3 cannot be used: {error}; correct EVERLOOP_S3_ENDPOINT or AWS_…") from error


def error_code(error: ClientError) -> str:
    """Return the server's name of an error, "" if it gave none."""
    response = cast("Mapping[str, Mapping[str, str]]", error.response)
    return response.get("Error", {}).get("Code", "")


def is_missing(error: ClientError) -> bool:
    """Whether the server says that there is no such object."""
    return error_code(error) in _MISSING

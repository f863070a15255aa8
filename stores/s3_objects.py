"""Objects of one bucket: how blobs become requests. Every call here waits; it belongs into a thread."""

import base64
import contextlib
import hashlib
import io
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from botocore.exceptions import BotoCoreError, ClientError

from everloop.stores.blobs import BlobCorruptError, BlobMissingError, BlobPage, LinkTerms, check_key, is_key
from everloop.stores.s3_client import Head, PartName, S3Client, ServerEncryption, connect_s3, is_missing

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


class S3Objects:
    """Objects `prefix` + key. The sha256 goes along: the server checks each upload, and keeps it as metadata.

    An upload in parts that a killed process began stays unfinished, seen by nobody; a rule of the bucket
    (AbortIncompleteMultipartUpload) removes it.
    """

    def __init__(
        self, bucket: str, *, endpoint: str, prefix: str, encryption: ServerEncryption | None = None
    ) -> None:
        self._bucket = bucket
        self._encryption = encryption or ServerEncryption()
        self._prefix = prefix
        self._client = connect_s3(endpoint, is_patient=False)
        self._patient = connect_s3(endpoint, is_patient=True)

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()
        self._patient.close()

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
            if is_missing(error):
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

    def old(self, folder: str, before: datetime, cursor: str) -> BlobPage:
        """Return the objects of a page that were put before a time, and where the next page begins."""
        listed = self._client.list_objects_v2(
            Bucket=self._bucket,
            Prefix=self._name(folder) + "/",
            StartAfter=self._prefix + (cursor or folder + "/"),
            MaxKeys=LISTED,
        )
        found = list(listed.get("Contents", ()))
        old = (each["Key"].removeprefix(self._prefix) for each in found if each["LastModified"] <= before)
        keys = tuple(filter(is_key, old))
        return BlobPage(keys, found[-1]["Key"].removeprefix(self._prefix) if listed["IsTruncated"] else "")

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
        wanted = {
            "ResponseContentDisposition": terms.disposition,
            "ResponseContentType": terms.media_type,
        }
        return self._client.generate_presigned_url(
            "get_object",
            Params={"Bucket": self._bucket, "Key": self._name(key), **wanted},
            ExpiresIn=terms.seconds,
        )

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _head(self, key: str) -> Head | None:
        try:
            return self._client.head_object(Bucket=self._bucket, Key=self._name(key))
        except ClientError as error:
            if is_missing(error):
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
        name, client = self._name(key), self._patient
        begun = client.create_multipart_upload(
            Bucket=self._bucket, Key=name, Metadata=metadata, **self._encryption
        )
        upload = _Upload(client, self._bucket, name, begun["UploadId"])
        try:
            yield upload
            upload.complete()
        except BaseException:
            # What went wrong first is told; if the server is away, the rule of the bucket cleans up.
            with contextlib.suppress(OSError, BotoCoreError, ClientError):
                upload.abort()
            raise


class _Upload:
    """An upload in parts."""

    def __init__(self, client: S3Client, bucket: str, name: str, upload_id: str) -> None:
        self._client = client
        self._bucket = bucket
        self._name = name
        self._id = upload_id
        self._parts: list[PartName] = []

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
        self._parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})

    def complete(self) -> None:
        """Put the parts together: from now on the object is there."""
        self._client.complete_multipart_upload(
            Bucket=self._bucket,
            Key=self._name,
            UploadId=self._id,
            MultipartUpload={"Parts": self._parts},
        )

    def abort(self) -> None:
        """Forget the parts."""
        self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._name, UploadId=self._id)

"""Blobs in a bucket of S3, or of a server that speaks its protocol."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from everloop.stores.blobs import BlobLinks, BlobPage, Blobs, BlobStock, BlobsUnavailableError, LinkTerms
from everloop.stores.s3_client import THREADS, ServerEncryption, error_code
from everloop.stores.s3_objects import S3Objects

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
    "PermanentRedirect": "the bucket is in another region; correct AWS_DEFAULT_REGION",
}

T = TypeVar("T")


class S3Blobs(Blobs):
    """Objects `prefix` + key, which carry their sha256. It has links that last `presigned` seconds (0: none).

    boto3 finds credentials and region as always (the AWS_ variables). Nothing is tried twice here: Temporal
    does that. Close it with `close`.
    """

    def __init__(
        self,
        bucket: str,
        *,
        endpoint: str = "",
        prefix: str = "",
        presigned: int = 0,
        encryption: ServerEncryption | None = None,
    ) -> None:
        self._objects = S3Objects(bucket, endpoint=endpoint, prefix=prefix, encryption=encryption)
        self._threads = _Threads(f"the S3 bucket {bucket}" + (f" at {endpoint}" if endpoint else ""))
        self._links = S3Links(self._objects, self._threads, presigned) if presigned else None

    @property
    def place(self) -> str:
        return self._threads.place

    @property
    def links(self) -> BlobLinks | None:
        return self._links

    @property
    def stock(self) -> BlobStock:
        return S3Stock(self._objects, self._threads)

    def close(self) -> None:
        """Begin no more requests."""
        self._threads.close()
        self._objects.close()

    async def put(self, key: str, content: bytes) -> None:
        await self._threads.do(lambda: self._objects.put(key, content))

    async def get(self, key: str) -> bytes:
        return await self._threads.do(lambda: self._objects.get(key))

    async def delete(self, key: str) -> None:
        await self._threads.do(lambda: self._objects.delete(key))


class S3Links(BlobLinks):
    """Presigned addresses. Clients must reach the endpoint under the name that this process uses."""

    def __init__(self, objects: S3Objects, threads: "_Threads", seconds: int) -> None:
        self._objects = objects
        self._threads = threads
        self._seconds = seconds

    @property
    def seconds(self) -> int:
        return self._seconds

    async def join(self, key: str, sources: Sequence[str]) -> None:
        await self._threads.do(lambda: self._objects.join(key, sources))

    async def url(self, key: str, terms: LinkTerms) -> str:
        return await self._threads.do(lambda: self._objects.url(key, terms))


class S3Stock(BlobStock):
    """Objects by the time when they were put. Their server's clock and ours are taken for the same."""

    def __init__(self, objects: S3Objects, threads: "_Threads") -> None:
        self._objects = objects
        self._threads = threads

    @property
    def expires(self) -> bool:
        return False

    async def old(self, folder: str, age: timedelta, cursor: str) -> BlobPage:
        return await self._threads.do(lambda: self._objects.old(folder, datetime.now(UTC) - age, cursor))

    async def remove(self, key: str, age: timedelta) -> bool:
        return await self._threads.do(lambda: self._objects.delete_old(key, datetime.now(UTC) - age))

    async def renew(self, key: str) -> None:
        """Do nothing: there is no time to live."""

    async def remove_unfinished(self, age: timedelta) -> int:
        """Do nothing: uploads that were not finished are for a rule of the bucket."""
        return 0


class _Threads:
    """Does what waits elsewhere than on the event loop, and names the errors."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except ClientError as error:
            reason = _REASONS.get(error_code(error), error)
            raise BlobsUnavailableError(self.place, reason) from error
        except (OSError, BotoCoreError) as error:
            raise BlobsUnavailableError(self.place, error) from error

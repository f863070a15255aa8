"""Selects and checks the blob store of a process."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeVar, cast

from pydantic import Field, ValidationInfo, field_validator
from redis.asyncio import Redis
from redis.exceptions import RedisError

from everloop.runtime.blobs import (
    PROBE_KEY,
    BlobError,
    BlobMissingError,
    Blobs,
    BlobsUnavailableError,
    BlobsUnfitError,
)
from everloop.runtime.environment import Settings
from everloop.runtime.redis import cipher_of
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.blobs.redis_blobs import BLOB_TTL, RedisBlobs
from everloop.stores.keys import DIRECTORY_KEY, LOCK_KEY, STORE_ID_KEY
from everloop.stores.lifetimes import MAX_TTL_DAYS

# The check at start: is this the blob store of this deployment, and does it work?
#
# The probe in the store holds a random id of the store. Redis, which workers and gateways share, stores the
# id in use. So an empty directory in place of a mounted volume, or another bucket, is found before any task
# finds its blobs missing. If Redis was emptied, the id in the store is used again.

ELECTION_TIMEOUT = 15.0
"""Seconds that one process may take to choose the id. The lock lasts longer."""

_LOCK_TIMEOUT = ELECTION_TIMEOUT + 5
_NEW_EACH_TIME = "probe-written"
_NEVER_PUT = "probe-missing"


async def check_blobs(blobs: Blobs, redis: Redis) -> None:
    """Check that this is the store in use, that it accepts blobs, and that it reports missing ones.

    Raises:
        BlobsUnfitError: It is another store, or it does not work.
    """
    try:
        await _check_id(blobs, redis)
        await _try_out(blobs)
    except BlobsUnfitError:
        raise
    except BlobsUnavailableError as error:
        raise BlobsUnfitError(str(error)) from error
    except BlobError as error:
        raise BlobsUnfitError(f"{blobs.location} cannot be used: {error}") from error
    except RedisError as error:
        raise BlobsUnfitError(
            f"Redis does not answer which blob store is in use: {error}; try again"
        ) from error


async def _check_id(blobs: Blobs, redis: Redis) -> None:
    in_use = await _id_in_use(redis) or await _elect_id(blobs, redis)
    # Read after the id in Redis: a new id is put into the store first.
    found = await _id_of(blobs)
    if found != in_use:
        raise BlobsUnfitError(
            f"{blobs.location} is not the blob store of this deployment: "
            f"{f'its id is {found}' if found else 'it has no id'}, and {in_use} is in use. Start this "
            f"process with {await _settings_in_use(redis)}, mount the right directory, or give it a Redis of "
            "its own (EVERLOOP_REDIS_URL) if it is another deployment"
        )


async def _settings_in_use(redis: Redis) -> str:
    directory = cast("str | None", await redis.get(DIRECTORY_KEY))
    where = f" (local: EVERLOOP_BLOB_DIRECTORY={directory})" if directory else ""
    return f"the EVERLOOP_BLOBS of the other workers and gateways{where}"


async def find_directory(given: Path, redis: Redis) -> Path:
    """Return the local directory in use, wherever this process was started; by default the given one.

    Only for a process without EVERLOOP_BLOB_DIRECTORY: a worker beside `everloop up`, started in another
    working directory.
    """
    try:
        named = cast("str | None", await redis.get(DIRECTORY_KEY))
        in_use = await _id_in_use(redis)
    except RedisError:
        return given  # the check reports the problem
    if not named or not in_use:
        return given
    with closing(LocalBlobs(Path(named))) as blobs, contextlib.suppress(BlobError):
        if await _id_of(blobs) == in_use:
            return blobs.directory
    return given


async def note_directory(blobs: LocalBlobs, redis: Redis) -> None:
    """Publish the path of the directory in use, after its check.

    Raises:
        BlobsUnfitError: Redis does not store it.
    """
    try:
        await redis.set(DIRECTORY_KEY, str(blobs.directory))
    except RedisError as error:
        raise BlobsUnfitError(f"Redis does not keep where the blob store is: {error}; try again") from error


async def _elect_id(blobs: Blobs, redis: Redis) -> str:
    """Put the id of the store, by default a new one, into Redis, unless another process just did.

    One process at a time does this. If it dies in between, the next one finds no id at all, or the one in the
    store.
    """
    async with redis.lock(LOCK_KEY, timeout=_LOCK_TIMEOUT, blocking_timeout=2 * _LOCK_TIMEOUT):
        try:
            async with asyncio.timeout(ELECTION_TIMEOUT):
                if in_use := await _id_in_use(redis):
                    return in_use
                store_id = await _id_of(blobs) or await _put_new_id(blobs)
                await redis.set(STORE_ID_KEY, store_id)
                return store_id
        except TimeoutError as error:
            reason = f"it did not answer within {ELECTION_TIMEOUT:.0f} s"
            raise BlobsUnavailableError(blobs.location, reason) from error


async def _id_in_use(redis: Redis) -> str | None:
    return cast("str | None", await redis.get(STORE_ID_KEY))


async def _id_of(blobs: Blobs) -> str | None:
    try:
        return (await blobs.get(PROBE_KEY)).decode(errors="replace")
    except BlobMissingError:
        return None


async def _put_new_id(blobs: Blobs) -> str:
    store_id = uuid.uuid4().hex
    await blobs.put(PROBE_KEY, store_id.encode())
    return store_id


async def _try_out(blobs: Blobs) -> None:
    # A new blob, because stores do not write existing ones.
    await blobs.put(_NEW_EACH_TIME, uuid.uuid4().bytes)
    await blobs.get(_NEW_EACH_TIME)
    with contextlib.suppress(BlobMissingError):
        await blobs.get(_NEVER_PUT)


MAX_PRESIGNED_SECONDS = 604_800
"""S3's limit: a week."""

_SCHEMES = ("http://", "https://")

T = TypeVar("T", str, int)


class BlobSettings(Settings):
    """Storage of payloads too large for Temporal's history: the same for all workers and gateways."""

    blobs: Literal["local", "redis", "s3"] = "local"
    """Storage of payloads of 256 KB and more, and of large parts of artifacts: `local`, `redis` or `s3`."""
    blob_directory: Path = Path(".everloop/blobs")
    """With `local`: a folder shared by all processes. Unset: the one in use on this machine."""
    blob_ttl_days: int = Field(default=BLOB_TTL.days, ge=1, le=MAX_TTL_DAYS)
    """Days that a payload is stored after it was last put (in Redis: used), and after that as long as
    Temporal stores its task. See docs/operation/housekeeping.md."""
    s3_bucket: str = Field(default="", validate_default=True)
    """With `s3`: an existing bucket. Give it a rule that ends incomplete multipart uploads after a day: a
    killed process may leave one."""
    s3_endpoint: str = ""
    """With `s3`: the address of another server than Amazon's."""
    s3_prefix: str = ""
    """With `s3`: the prefix of each key."""
    s3_presigned: int = Field(default=0, ge=0, le=MAX_PRESIGNED_SECONDS)
    """With `s3`: lifetime, in seconds, of the links to which the gateway redirects downloads of large
    artifacts. Clients have to reach the endpoint. Refused together with encryption. 0: no links."""
    s3_sse: Literal["", "AES256", "aws:kms"] = ""
    """With `s3`: S3's encryption of new objects, `AES256` or `aws:kms`. Unset: as set for the bucket."""
    s3_sse_key_id: str = ""
    """With `aws:kms`: the key. Unset: Amazon's."""

    @property
    def blob_ttl(self) -> timedelta:
        return timedelta(days=self.blob_ttl_days)

    @field_validator("s3_bucket")
    @classmethod
    def validate_bucket(cls, bucket: str, info: ValidationInfo) -> str:
        if info.data.get("blobs") == "s3" and not bucket:
            raise ValueError("expected the name of a bucket, because EVERLOOP_BLOBS is s3; set it")
        return bucket

    @field_validator("s3_sse_key_id")
    @classmethod
    def validate_key_id(cls, key_id: str, info: ValidationInfo) -> str:
        if key_id and info.data.get("s3_sse") in {"", "AES256"}:
            raise ValueError(
                "EVERLOOP_S3_SSE_KEY_ID names a key, but EVERLOOP_S3_SSE is not aws:kms; correct one"
            )
        return key_id

    @field_validator("s3_bucket", "s3_endpoint", "s3_prefix", "s3_presigned", "s3_sse", "s3_sse_key_id")
    @classmethod
    def validate_use(cls, value: T, info: ValidationInfo) -> T:
        kind, variable = info.data.get("blobs"), f"EVERLOOP_{str(info.field_name).upper()}"
        if kind in {"local", "redis"} and value:
            raise ValueError(
                f"{variable} is set, but EVERLOOP_BLOBS is {kind}; set EVERLOOP_BLOBS=s3, or unset it"
            )
        return value

    @field_validator("s3_endpoint")
    @classmethod
    def validate_endpoint(cls, endpoint: str) -> str:
        if endpoint and not endpoint.startswith(_SCHEMES):
            raise ValueError("expected http:// or https://; correct it")
        return endpoint


@asynccontextmanager
async def opened_blobs(settings: BlobSettings, redis: Redis) -> AsyncGenerator[Blobs]:
    """Yield the store of these settings, checked. `redis` stores the id in use, and stays open.

    Raises:
        BlobsUnfitError: It does not work, or another one is in use.
    """
    if settings.s3_presigned and cipher_of(redis).is_on:
        raise BlobsUnfitError(
            "EVERLOOP_S3_PRESIGNED is set, and so is EVERLOOP_ENCRYPTION_KEYS_FILE: clients could not read "
            "what they fetch from S3 themselves; unset EVERLOOP_S3_PRESIGNED, and the gateway serves it"
        )
    if settings.blobs == "s3":
        # boto3 takes 15 MiB, so it is only loaded for S3.
        from everloop.stores.blobs.s3_blobs import S3Blobs  # noqa: PLC0415 -- see above

        s3 = S3Blobs(
            settings.s3_bucket,
            endpoint=settings.s3_endpoint,
            prefix=settings.s3_prefix,
            presigned=settings.s3_presigned,
            sse=settings.s3_sse,
            sse_key_id=settings.s3_sse_key_id,
        )
        with closing(s3):
            await check_blobs(s3, redis)
            yield s3
    elif settings.blobs == "redis":
        in_redis = RedisBlobs(redis, ttl=settings.blob_ttl)
        await check_blobs(in_redis, redis)
        yield in_redis
    else:
        directory = settings.blob_directory
        if "blob_directory" not in settings.model_fields_set:
            directory = await find_directory(directory, redis)
        with closing(LocalBlobs(directory)) as local:
            await check_blobs(local, redis)
            await note_directory(local, redis)
            yield local

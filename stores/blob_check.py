"""The check at start: is this the blob store of this deployment, and does it work?

The probe in the store holds a random id of the store. Redis, which workers and gateways share, names the id
in use. So an empty directory where a volume should be mounted, or another bucket, is found out before any
task reads there and is told that its blobs are lost. If Redis was emptied, the id in the store counts again.
"""

import asyncio
import contextlib
import uuid
from contextlib import closing
from pathlib import Path
from typing import cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from everloop.stores.blobs import (
    PROBE_KEY,
    BlobError,
    BlobMissingError,
    Blobs,
    BlobsUnavailableError,
    BlobsUnfitError,
)
from everloop.stores.local_blobs import LocalBlobs

STORE_ID_KEY = "everloop:blob-store"
"""Redis string: id of the blob store in use. It has no time to live."""

DIRECTORY_KEY = "everloop:blob-store:directory"
"""Redis string: where a process last found the directory in use, for others of its machine."""

LOCK_KEY = "everloop:blob-store:lock"
"""Redis string: held by the process that settles the id."""

SETTLE_TIMEOUT = 15.0
"""Seconds that one process may take to settle the id; the lock lasts longer."""

_LOCK_TIMEOUT = SETTLE_TIMEOUT + 5
_NEW_EACH_TIME = "probe-written"
_NEVER_PUT = "probe-missing"


async def check_blobs(blobs: Blobs, redis: Redis) -> None:
    """Find out that this is the store in use, that it takes blobs, and that it tells when it has none.

    Raises:
        BlobsUnfitError: it is another one, or it does not work.
    """
    try:
        await _check_id(blobs, redis)
        await _try_out(blobs)
    except BlobsUnfitError:
        raise
    except BlobsUnavailableError as error:
        raise BlobsUnfitError(str(error)) from error
    except BlobError as error:
        raise BlobsUnfitError(f"{blobs.place} cannot be used: {error}") from error
    except RedisError as error:
        raise BlobsUnfitError(
            f"Redis does not tell which blob store is in use: {error}; try again"
        ) from error


async def _check_id(blobs: Blobs, redis: Redis) -> None:
    in_use = await _id_in_use(redis) or await _settle_id(blobs, redis)
    # Read after the one in Redis: whoever makes a new id puts it into the store first.
    found = await _id_of(blobs)
    if found != in_use:
        raise BlobsUnfitError(
            f"{blobs.place} is not the blob store of this deployment: "
            f"{f'its id is {found}' if found else 'it has no id'}, and {in_use} is in use. Start this "
            f"process with {await _settings_in_use(redis)}, mount the right directory, or give it a Redis of "
            "its own (EVERLOOP_REDIS_URL) if it is another deployment"
        )


async def _settings_in_use(redis: Redis) -> str:
    directory = cast("str | None", await redis.get(DIRECTORY_KEY))
    where = f" (local: EVERLOOP_BLOB_DIRECTORY={directory})" if directory else ""
    return f"the EVERLOOP_BLOBS of the other workers and gateways{where}"


async def find_directory(given: Path, redis: Redis) -> Path:
    """Return the local directory in use, wherever this process was started; the given one if none is found.

    Only for who was told no directory: a worker beside `everloop up`, started in another working directory.
    """
    try:
        named = cast("str | None", await redis.get(DIRECTORY_KEY))
        in_use = await _id_in_use(redis)
    except RedisError:
        return given  # the check says so
    if not named or not in_use:
        return given
    with closing(LocalBlobs(Path(named))) as blobs, contextlib.suppress(BlobError):
        if await _id_of(blobs) == in_use:
            return blobs.directory
    return given


async def note_directory(blobs: LocalBlobs, redis: Redis) -> None:
    """Tell others where the directory in use is, once it was found to be that.

    Raises:
        BlobsUnfitError: Redis does not take it.
    """
    try:
        await redis.set(DIRECTORY_KEY, str(blobs.directory))
    except RedisError as error:
        raise BlobsUnfitError(f"Redis does not keep where the blob store is: {error}; try again") from error


async def _settle_id(blobs: Blobs, redis: Redis) -> str:
    """Put the id of the store, a new one if it has none, into Redis, unless another process just did.

    Of processes that start together one at a time does this. If it dies in between, the next one finds no id
    at all, or the one in the store.
    """
    async with redis.lock(LOCK_KEY, timeout=_LOCK_TIMEOUT, blocking_timeout=2 * _LOCK_TIMEOUT):
        try:
            async with asyncio.timeout(SETTLE_TIMEOUT):
                if in_use := await _id_in_use(redis):
                    return in_use
                store_id = await _id_of(blobs) or await _put_new_id(blobs)
                await redis.set(STORE_ID_KEY, store_id)
                return store_id
        except TimeoutError as error:
            reason = f"it did not answer within {SETTLE_TIMEOUT:.0f} s"
            raise BlobsUnavailableError(blobs.place, reason) from error


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
    # Something new, because stores write nothing that they hold already.
    await blobs.put(_NEW_EACH_TIME, uuid.uuid4().bytes)
    await blobs.get(_NEW_EACH_TIME)
    with contextlib.suppress(BlobMissingError):
        await blobs.get(_NEVER_PUT)

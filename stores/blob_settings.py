"""Which blob store a process uses."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from redis.asyncio import Redis

from everloop.stores.blob_check import check_blobs, find_directory, note_directory
from everloop.stores.blobs import Blobs, BlobsUnfitError
from everloop.stores.local_blobs import LocalBlobs
from everloop.stores.redis_blobs import BLOB_TTL, RedisBlobs
from everloop.stores.redis_connection import cipher_of

MAX_TTL_DAYS = 36_500

MAX_PRESIGNED_SECONDS = 604_800
"""What S3 allows: a week."""

_SCHEMES = ("http://", "https://")

T = TypeVar("T", str, int)


class BlobSettings(BaseSettings):
    """Where payloads too large for Temporal's history live: the same for all workers and gateways.

    EVERLOOP_BLOBS: `local` (default), `redis` or `s3`. EVERLOOP_BLOB_DIRECTORY, of `local`: default the
    directory that others of this machine use, or else `.everloop/blobs`. EVERLOOP_BLOB_TTL_DAYS: how long a
    payload is kept after it was last put (in Redis: used), and for as long as Temporal knows its task;
    default 30, at most 36,500. Of `s3`, and only
    with it: EVERLOOP_S3_BUCKET, which must exist; EVERLOOP_S3_ENDPOINT, default Amazon's;
    EVERLOOP_S3_PREFIX, before each key, default none; EVERLOOP_S3_PRESIGNED, seconds that a link to an
    artifact lasts, at which clients fetch it from S3 itself, at most 604,800, default 0: no links.
    EVERLOOP_S3_SSE, `AES256` or `aws:kms`: S3 encrypts new objects so; EVERLOOP_S3_SSE_KEY_ID, with
    `aws:kms` only: with this key; default: as the bucket says.
    Credentials and region of S3: the AWS_ variables that boto3 reads. An empty variable counts as not set.
    """

    model_config = SettingsConfigDict(
        env_prefix="EVERLOOP_", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    blobs: Literal["local", "redis", "s3"] = "local"
    blob_directory: Path = Path(".everloop/blobs")
    blob_ttl_days: int = Field(default=BLOB_TTL.days, ge=1, le=MAX_TTL_DAYS)
    s3_bucket: str = Field(default="", validate_default=True)
    s3_endpoint: str = ""
    s3_prefix: str = ""
    s3_presigned: int = Field(default=0, ge=0, le=MAX_PRESIGNED_SECONDS)
    s3_sse: Literal["", "AES256", "aws:kms"] = ""
    s3_sse_key_id: str = ""

    @property
    def blob_ttl(self) -> timedelta:
        return timedelta(days=self.blob_ttl_days)

    @field_validator("s3_bucket")
    @classmethod
    def validate_bucket(cls, bucket: str, info: ValidationInfo) -> str:
        if info.data.get("blobs") == "s3" and not bucket:
            raise ValueError(
                "EVERLOOP_S3_BUCKET: expected the name of a bucket, because EVERLOOP_BLOBS is s3; set it"
            )
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
            raise ValueError("EVERLOOP_S3_ENDPOINT: expected http:// or https://; correct it")
        return endpoint


@asynccontextmanager
async def opened_blobs(settings: BlobSettings, redis: Redis) -> AsyncGenerator[Blobs]:
    """Yield the store of these settings, checked; `redis` names the one in use, and stays open.

    Raises:
        BlobsUnfitError: it cannot be worked with, or another one is in use.
    """
    if settings.s3_presigned and cipher_of(redis).is_on:
        raise BlobsUnfitError(
            "EVERLOOP_S3_PRESIGNED is set, and so is EVERLOOP_ENCRYPTION_KEYS_FILE: clients could not read "
            "what they fetch from S3 themselves; unset EVERLOOP_S3_PRESIGNED, and the gateway serves it"
        )
    if settings.blobs == "s3":
        # boto3 takes 15 MiB, also where nobody needs it.
        from everloop.stores.s3_blobs import S3Blobs  # noqa: PLC0415 -- see above
        from everloop.stores.s3_client import server_encryption  # noqa: PLC0415 -- see above

        s3 = S3Blobs(
            settings.s3_bucket,
            endpoint=settings.s3_endpoint,
            prefix=settings.s3_prefix,
            presigned=settings.s3_presigned,
            encryption=server_encryption(settings.s3_sse, settings.s3_sse_key_id),
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

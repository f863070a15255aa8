"""The connection to Redis, and whether that Redis fits."""

import asyncio
from collections.abc import Mapping
from typing import TypeVar, cast
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError
from redis.maint_notifications import MaintNotificationsConfig

from everloop.runtime.encryption.cipher import NO_CIPHER, Cipher
from everloop.runtime.encryption.keys import EncryptionSettings
from everloop.runtime.settings import Settings, StartError

MINIMUM_VERSION = (6, 2)
SOCKET_TIMEOUT = 10.0
"""Seconds until a command that got no answer fails."""

LONGEST_BLOCK = SOCKET_TIMEOUT / 2
"""Seconds that a blocking read may wait, so that its silence is not taken for a dead connection."""

_CONNECTIONS = 50
_HEALTH_CHECK_INTERVAL = 30
_SCHEMES = ("redis", "rediss", "unix")


NOW = """
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
"""
"""A function for scripts: the time in milliseconds, by the clock of Redis: processes need not agree."""

RATE = """
local function take(used_up_to, now, cost, ahead)
  local begin = math.max(used_up_to, now)
  return math.max(begin - now - ahead, 0), begin + cost
end
"""
"""A function for scripts, the generic cell rate algorithm (ITU-T I.371): one number tells up to when a rate
is used up. Returns how long to wait for what uses up `cost`, and that number after it; `ahead` is how far the
use may run before the time."""


class RedisUnfitError(StartError):
    """This Redis cannot be worked with; the message says why and what to change."""


class StoreSettings(Settings):
    """Where task views, transcripts and tool records live.

    EVERLOOP_REDIS_URL: `redis://[user:password@]host:port/database` (`rediss` with TLS, `unix` for a
    socket). Default: the local server, database 0. Never shown, because it may hold a password.
    """

    redis_url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)

    @field_validator("redis_url")
    @classmethod
    def validate_url(cls, url: str) -> str:
        if url.partition("://")[0] not in _SCHEMES:
            raise ValueError("expected redis://, rediss:// or unix://; correct it")
        if not _is_readable(url):
            raise ValueError(
                "expected redis://[user:password@]host:port/database; correct it, and "
                "percent-encode signs such as / ? # @ in the password (/ is %2F)"
            )
        return url


def _is_readable(url: str) -> bool:
    """Whether the client can read the URL, and none of its password was taken for path, query or fragment.

    The parsers' own errors are not shown: they repeat what they take for the port.
    """
    try:
        parse_url(url)
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "unix" or "@" not in parts.path + parts.query + parts.fragment


class SealedRedis(Redis):
    """A client that knows how content is encrypted, as Temporal's client does: `cipher_of` tells stores."""

    cipher: Cipher = NO_CIPHER


def cipher_of(redis: Redis) -> Cipher:
    """Return what encrypts the content that stores keep by way of this client."""
    return redis.cipher if isinstance(redis, SealedRedis) else NO_CIPHER


def connect_redis(url: str, cipher: Cipher | None = None) -> Redis:
    """Return a client; it connects when it is first used. Close it with `aclose`.

    It retries nothing: Temporal retries activities, and the gateway reports the failure to its caller.
    More than 50 commands at once wait for one another instead of opening more connections. `cipher` encrypts
    what stores keep; default: the keys that EVERLOOP_ENCRYPTION_KEYS_FILE names, if it names any.

    Raises:
        ValidationError: the file of keys is wrong.
    """
    cipher = EncryptionSettings().cipher if cipher is None else cipher
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=_CONNECTIONS,
        timeout=SOCKET_TIMEOUT,
        decode_responses=True,
        health_check_interval=_HEALTH_CHECK_INTERVAL,
        socket_timeout=SOCKET_TIMEOUT,
        socket_connect_timeout=SOCKET_TIMEOUT / 2,
        retry=Retry(NoBackoff(), 0),
        # While it listens for notifications, the pool hands out connections that the server has closed.
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    client = SealedRedis(connection_pool=pool)
    client.auto_close_connection_pool = True  # as of a client that `from_pool` makes
    client.cipher = cipher
    return client


async def check_redis(redis: Redis) -> list[str]:
    """Return warnings about a Redis that can be worked with.

    Raises:
        RedisUnfitError: it does not answer, or refuses us; it is older than 6.2, a node of a cluster, or
            evicts keys when its memory is full.
    """
    try:
        await redis.ping()
        facts = cast("Mapping[str, str | int]", await redis.info())
    except NoPermissionError:
        return ["this Redis user may not run INFO: version, eviction and append-only file are unchecked"]
    except (OSError, RedisError) as error:
        raise RedisUnfitError(
            f"Redis at {_address(redis)} cannot be used: {error}; start it, or correct EVERLOOP_REDIS_URL"
        ) from error
    _require_version(facts)
    _refuse_cluster(facts)
    return [*_check_eviction(facts), *_check_durability(facts)]


def _address(redis: Redis) -> str:
    place = cast("Mapping[str, object]", redis.connection_pool.connection_kwargs)
    return str(place["path"]) if "path" in place else f"{place.get('host')}:{place.get('port', 6379)}"


def _require_version(facts: Mapping[str, str | int]) -> None:
    version = str(facts.get("redis_version", "0"))
    numbers = tuple(int(word) for word in version.split(".")[:2] if word.isdigit())
    if numbers < MINIMUM_VERSION:
        raise RedisUnfitError(f"Redis {version} is too old: expected 6.2 or newer; upgrade it")


def _refuse_cluster(facts: Mapping[str, str | int]) -> None:
    if facts.get("cluster_enabled"):
        raise RedisUnfitError(
            "this Redis is a node of a cluster, and scripts of Everloop use keys that a cluster keeps on "
            "several nodes: expected one server, with replicas if you like; set EVERLOOP_REDIS_URL to one"
        )


def _check_eviction(facts: Mapping[str, str | int]) -> list[str]:
    policy = facts.get("maxmemory_policy")
    if policy is None:
        return ["Redis does not tell its maxmemory-policy; make sure that it is noeviction"]
    if policy != "noeviction":
        raise RedisUnfitError(
            f"maxmemory-policy is {policy}: Redis would throw tool records away when its memory is full; "
            "expected noeviction; run CONFIG SET maxmemory-policy noeviction"
        )
    return []


def _check_durability(facts: Mapping[str, str | int]) -> list[str]:
    if facts.get("aof_enabled") == 1:
        return []
    lost = "tool records and conversations would be lost if Redis restarts"
    return [f"append-only file is off: {lost}; set appendonly yes"]


Result = TypeVar("Result")

RETRY_AFTER = 0.1
"""Seconds until a future that did not end is cancelled again."""


async def cancel(future: "asyncio.Future[Result]") -> None:
    """Cancel until it has ended.

    In Python 3.11 a cancellation may get lost in `asyncio.wait_for`, which the Redis client uses.
    """
    while not future.done():
        future.cancel()
        await asyncio.wait({future}, timeout=RETRY_AFTER)

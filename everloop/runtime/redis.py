"""Connect to Redis and check that the server is suitable."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import Field, field_validator
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig
from redis.typing import EncodableT

from everloop.runtime.cluster import ClusterRedis
from everloop.runtime.encryption.cipher import NO_CIPHER, Cipher
from everloop.runtime.encryption.key_file import EncryptionSettings
from everloop.runtime.environment import Settings, StartError

MINIMUM_VERSION = (6, 2)
SOCKET_TIMEOUT = 10.0
"""Seconds until an unanswered command fails."""

LONGEST_BLOCK = SOCKET_TIMEOUT / 2
"""Seconds that a blocking read may wait, so that its silence is not mistaken for a dead connection."""

_CONNECTIONS = 50
_HEALTH_CHECK_INTERVAL = 30
_UNSENT = 64 * 1024
"""Bytes that may wait to be sent before a command waits for them, as of asyncio's transports."""

_SCHEMES = ("redis", "rediss", "unix")

Result = TypeVar("Result")

_SPECIAL = re.compile(r"[*?\[\]\\^]")
_SCANNED = 1000


class RedisUnfitError(StartError):
    """This Redis cannot be used; the message gives the reason and the change to make."""


class StoreSettings(Settings):
    """Where task views, transcripts, tool records and artifacts live."""

    redis_url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)
    """Where Redis is: `redis://`, `rediss://` (TLS) or `unix://`. Of a cluster several nodes:
    `redis://a:6379,b:6379/0?cluster=true`. Never shown, because it may hold a password. See
    docs/operation/operation.md#a-cluster."""

    @field_validator("redis_url")
    @classmethod
    def validate_url(cls, url: str) -> str:
        if url.partition("://")[0] not in _SCHEMES:
            raise ValueError("expected redis://, rediss:// or unix://; correct it")
        if not _is_readable(url):
            raise ValueError(
                "expected redis://[user:password@]host:port/database, or of a cluster "
                "redis://host:port,host:port/database?cluster=true; correct it, or the names of its options, "
                "and percent-encode signs such as / ? # @ in the password (/ is %2F)"
            )
        return url


def _is_readable(url: str) -> bool:
    """Return whether the client can parse the URL, without taking its password for other parts.

    The parsers' own errors are not shown: they repeat the text that they read as the port.
    """
    try:
        for one in _each_server(url):
            pool = _pool(one)
            with suppress(RedisError):  # about the value of an option, which is said at the start
                pool.connection_class(**pool.connection_kwargs)
        parts = urlsplit(url)
    except (ValueError, TypeError):  # TypeError: no connection has an option of this name
        return False
    return parts.scheme == "unix" or "@" not in parts.path + parts.query + parts.fragment


def _each_server(url: str) -> list[str]:
    """Return the URL of each node that the URL of a cluster names; one URL for a single server.

    Raises:
        ValueError: the URL cannot be parsed, or names several servers without being a cluster's.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if options.pop("cluster", "").lower() not in {"true", "yes", "1"}:
        return [url]
    user, at, hosts = parts.netloc.rpartition("@")
    query = urlencode(options)
    return [
        parts._replace(netloc=f"{user}{at}{host}", query=query).geturl() for host in hosts.split(",") if host
    ]


class SealedRedis(Redis):
    """Client with the cipher of stored content, as Temporal's client; see `cipher_of`."""

    cipher: Cipher = NO_CIPHER


class SealedCluster(ClusterRedis, SealedRedis):
    """Cluster client with the cipher of stored content."""


def cipher_of(redis: Redis) -> Cipher:
    """Return the cipher of the content that stores keep through this client."""
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
    servers = _each_server(url)
    if servers == [url]:
        client = SealedRedis(connection_pool=_pool(url))
        client.auto_close_connection_pool = True  # as of a client that `from_pool` makes
    else:
        user, at, _ = urlsplit(servers[0]).netloc.rpartition("@")
        any_node = urlsplit(servers[0])
        client = SealedCluster(
            [urlsplit(server).netloc.rpartition("@")[2] for server in servers],
            lambda address: _pool(any_node._replace(netloc=f"{user}{at}{address}").geturl()),
        )
    client.cipher = cipher
    return client


class _Sending(AbstractConnection):
    """Connection whose sends take two thirds of the usual time and never swallow a cancellation.

    It copies a command once, and waits only when much is unsent. The client's own method sends in
    `asyncio.wait_for`, which can swallow a cancellation in Python 3.11.
    """

    def pack_command(self, *args: EncodableT) -> list[bytes]:
        encode = cast("Callable[[EncodableT], bytes]", self.encoder.encode)
        first = args[0]
        words = first.encode().split() if isinstance(first, str) else [first]  # `CONFIG GET` are two
        packed = [b"*%d\r\n" % (len(words) + len(args) - 1)]
        for word in chain(words, args[1:]):
            encoded = word.encode() if isinstance(word, str) else encode(word)
            packed += (b"$%d\r\n" % len(encoded), encoded, b"\r\n")
        return [b"".join(packed)]

    async def send_packed_command(
        self,
        command: bytes | str | Iterable[bytes],
        check_health: bool = True,  # noqa: FBT001, FBT002 -- as Redis has it
    ) -> None:
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if check_health:
            await self.check_health()
        writer = cast("asyncio.StreamWriter", self._writer)
        try:
            writer.writelines(cast("Iterable[bytes]", command))  # all that we send is of `pack_command`
            if writer.is_closing() or writer.transport.get_write_buffer_size() > _UNSENT:
                async with asyncio.timeout(self.socket_timeout):
                    await writer.drain()
        except OSError as error:  # of time, too
            await self.disconnect(nowait=True)
            what = str(error) or type(error).__name__
            raise RedisConnectionError(f"a command could not be sent: {what}") from None
        except BaseException:
            await self.disconnect(nowait=True)  # a part of it may have been sent
            raise


def _pool(url: str) -> BlockingConnectionPool:
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=_CONNECTIONS,
        timeout=SOCKET_TIMEOUT,
        decode_responses=True,
        encoding_errors="surrogateescape",  # compressed content is binary (`Cipher.unpack`)
        health_check_interval=_HEALTH_CHECK_INTERVAL,
        socket_timeout=SOCKET_TIMEOUT,
        socket_connect_timeout=SOCKET_TIMEOUT / 2,
        retry=Retry(NoBackoff(), 0),
        # While it listens for notifications, the pool hands out connections that the server has closed.
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    # One of three, by the scheme of the URL.
    pool.connection_class = type("SendingConnection", (_Sending, pool.connection_class), {})
    return pool


async def primaries(redis: Redis) -> list[Redis]:
    """Return a client of each server that holds keys; a single server is its own."""
    return await redis.primaries() if isinstance(redis, ClusterRedis) else [redis]


async def scan_page(
    redis: Redis, cursor: str, match: str, count: int, kind: str | None = None
) -> tuple[str, list[str]]:
    """Return a page of keys of all servers and the next cursor ("": the beginning, and the end).

    Keys whose slots move meanwhile may be left out, or come twice.
    """
    nodes = await primaries(redis)
    place, _, position = cursor.rpartition(":")
    at = min(int(place or 0), len(nodes) - 1)
    scan = nodes[at].scan(int(position or 0), match, count, _type=kind)
    following, keys = cast("tuple[int, list[str]]", await scan)
    if following or at + 1 < len(nodes):
        return f"{at if following else at + 1}:{following}", keys
    return "", keys


async def remove_matching(redis: Redis, match: str, is_meant: Callable[[str], bool] = bool) -> int:
    """Remove the keys that match a pattern and a predicate; return the number removed."""
    removed, cursor, is_last = 0, "", False
    while not is_last:
        cursor, keys = await scan_page(redis, cursor, match, _SCANNED)
        async with redis.pipeline(transaction=False) as pipeline:
            for key in filter(is_meant, keys):
                pipeline.unlink(key)
            removed += sum(cast("list[int]", await pipeline.execute()))
        is_last = not cursor
    return removed


async def members(redis: Redis, key: str, match: str) -> AsyncGenerator[str]:
    """Yield members of a sorted set that match a pattern; some may come twice."""
    position, is_last = 0, False
    while not is_last:
        scan = redis.zscan(key, position, match, _SCANNED)
        position, found = cast("tuple[int, list[tuple[str, float]]]", await scan)
        for name, _ in found:
            yield name
        is_last = not position


async def transact(redis: Redis, work: Callable[[Pipeline], Awaitable[Result]], *keys: str) -> Result:
    """Run `work`, which reads keys and then queues changes, and repeat it if the keys change meanwhile.

    It calls `multi` between the two. For keys of one slot that seldom change at the same time.
    """
    return cast("Result", await redis.transaction(work, *keys, value_from_callable=True))


def literal(text: str) -> str:
    """Return a pattern that matches only this text."""
    return _SPECIAL.sub(r"\\\g<0>", text)


async def check_redis(redis: Redis) -> list[str]:
    """Return warnings about a Redis that can be worked with.

    Raises:
        RedisUnfitError: it does not answer, or refuses us; it is older than 6.2, evicts keys when its memory
            is full, or is a node of a cluster that EVERLOOP_REDIS_URL does not call one, or the reverse. Of
            a cluster: one of its primaries.
    """
    try:
        servers = await primaries(redis)
        facts = {_address(server): await _facts(server) for server in servers}
    except NoPermissionError:
        return ["this Redis user may not run INFO: version, eviction and append-only file are unchecked"]
    except (OSError, RedisError) as error:
        reason = str(error).removesuffix(".")
        raise RedisUnfitError(
            f"Redis at {_address(redis)} cannot be used: {reason}; start it, or correct EVERLOOP_REDIS_URL"
        ) from error
    warnings: list[str] = []
    for address, each in facts.items():
        _require_version(each)
        _refuse_cluster(each, redis)
        found = [*_check_eviction(each), *_check_durability(each), *_check_replicas(each)]
        warnings += found if len(facts) == 1 else [f"{address}: {warning}" for warning in found]
    return warnings


async def _facts(server: Redis) -> Mapping[str, str | int]:
    await server.ping()
    facts = cast("Mapping[str, str | int]", await server.info())
    try:
        return {**facts, **cast("Mapping[str, str]", await server.config_get("appendfsync"))}
    except ResponseError:  # the operator of this Redis has disabled CONFIG
        return facts


async def server_name(redis: Redis) -> str:
    """Return kind and version of the server, such as `valkey 9.1.0`; empty if they are not available."""
    try:
        facts = cast("Mapping[str, str]", await (await primaries(redis))[0].info("server"))
    except (OSError, RedisError):
        return ""
    name = facts.get("server_name", "redis")
    return f"{name} {facts.get(f'{name}_version') or facts.get('redis_version', '')}".rstrip()


def _address(redis: Redis) -> str:
    place = cast("Mapping[str, object]", redis.connection_pool.connection_kwargs)
    return str(place["path"]) if "path" in place else f"{place.get('host')}:{place.get('port', 6379)}"


def _require_version(facts: Mapping[str, str | int]) -> None:
    version = str(facts.get("redis_version", "0"))
    numbers = tuple(int(word) for word in version.split(".")[:2] if word.isdigit())
    if numbers < MINIMUM_VERSION:
        raise RedisUnfitError(f"Redis {version} is too old: expected 6.2 or newer; upgrade it")


def _refuse_cluster(facts: Mapping[str, str | int], redis: Redis) -> None:
    if facts.get("cluster_enabled") and not isinstance(redis, ClusterRedis):
        raise RedisUnfitError(
            "this Redis is a node of a cluster: expected one server, or ?cluster=true at the end of "
            "EVERLOOP_REDIS_URL; add it"
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
        return _check_sync(facts.get("appendfsync", "always"))
    lost = "tool records and conversations would be lost if Redis restarts"
    return [f"append-only file is off: {lost}; set appendonly yes"]


def _check_sync(policy: str | int) -> list[str]:
    if policy == "always":
        return []
    lost = "a kill of Redis may lose claims of tool calls that it acknowledged, and the tools run twice"
    return [f"appendfsync is {policy}: {lost}; set appendfsync always"]


def _check_replicas(facts: Mapping[str, str | int]) -> list[str]:
    if not facts.get("cluster_enabled") or facts.get("connected_slaves"):
        return []
    return ["this primary has no replica: while it is away, tasks in its slots stand still; give it one"]


async def cancel(future: asyncio.Future[Any]) -> None:
    """Cancel a future, and wait until it has ended."""
    future.cancel()
    await asyncio.wait({future})

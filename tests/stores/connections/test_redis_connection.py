"""Requirements for Redis, and the messages about unsuitable ones."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
import pytest_asyncio
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.asyncio.connection import Connection

from everloop.local.servers import free_port
from everloop.runtime.environment import explain
from everloop.runtime.redis import RedisUnfitError, StoreSettings, check_redis, connect_redis
from tests.stores.all_stores import AllStores
from tests.stores.examples import new_id, said, submitted
from tests.support.servers.processes import running_valkey
from tests.support.servers.tls import certificate_files, running_tls_proxy

SECRET = "s3cret-word"

pytestmark = pytest.mark.one_server


async def test_a_server_without_append_only_file_is_warned_of(own_redis: Redis) -> None:
    """A server without the append-only file causes a warning with the risk and the setting."""
    await own_redis.config_set("appendonly", "no")

    (warning,) = await check_redis(own_redis)

    assert "tool records" in warning
    assert "set appendonly yes" in warning


@pytest.mark.parametrize("policy", ["everysec", "no"])
async def test_a_server_that_acknowledges_before_it_syncs_is_warned_of(own_redis: Redis, policy: str) -> None:
    """A server that acknowledges before it syncs causes a warning with the risk and the setting."""
    await own_redis.config_set("appendfsync", policy)

    (warning,) = await check_redis(own_redis)

    assert f"appendfsync is {policy}" in warning
    assert "set appendfsync always" in warning


async def test_a_server_that_evicts_keys_is_refused(own_redis: Redis) -> None:
    """A server that evicts keys is refused with its policy and the required one."""
    await own_redis.config_set("maxmemory-policy", "allkeys-lru")

    with pytest.raises(RedisUnfitError, match=r"allkeys-lru.*expected noeviction; run CONFIG SET"):
        await check_redis(own_redis)


async def test_a_node_of_a_cluster_is_refused(tmp_path: Path) -> None:
    """A node of a cluster is refused unless the URL names a cluster, before any write."""
    options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
    async with running_valkey(tmp_path, options=options) as (_, url), connect_redis(url) as redis:
        with pytest.raises(RedisUnfitError, match=r"node of a cluster.*cluster=true"):
            await check_redis(redis)


async def test_a_wrong_password_is_told_without_showing_it(own_redis: Redis) -> None:
    """A wrong password is an error with the server and the variable, without the password."""
    port = own_redis.connection_pool.connection_kwargs["port"]
    await own_redis.config_set("requirepass", "right")

    async with connect_redis(f"redis://app:{SECRET}@127.0.0.1:{port}/0") as redis:
        with pytest.raises(RedisUnfitError) as caught:
            await check_redis(redis)

    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "EVERLOOP_REDIS_URL" in str(caught.value)
    assert SECRET not in repr(caught.value) + repr(caught.value.__cause__)


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    """An unreachable server is an error with its address, of the same base class as unsuitable ones."""
    port = free_port()

    async with connect_redis(f"redis://127.0.0.1:{port}/0") as redis:
        with pytest.raises(RedisUnfitError, match=rf"127\.0\.0\.1:{port} cannot be used: .*; start it, or"):
            await check_redis(redis)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}/et@host:6379/0",
        f"redis://:{SECRET}#et@host:6379/0",
        f"rediss://user:12/{SECRET}@host:6379/0",
        f"redis://:12?{SECRET}@host:6379/0",
        f"redis://[{SECRET}/0",
        f"http://:{SECRET}@host/0",
        f"redis://:{SECRET}@a:6379,b:6379/0",
        f"redis://:{SECRET}/et@a:6379,b:6379/0?cluster=true",
        f"redis://:{SECRET}@a:6379/0?clutser=true",
        f"redis://:{SECRET}@a:6379/0?cluster=false",
    ],
)
def test_an_address_that_cannot_be_read_is_one_clear_error(url: str) -> None:
    """A URL with an unencoded character, which splits the password, is an error with neither half."""
    with pytest.raises(ValidationError, match="expected redis://") as caught:
        StoreSettings(redis_url=url)

    assert SECRET not in f"{caught.value}{explain(caught.value)}"


def test_settings_do_not_show_the_password() -> None:
    """The representation of settings, which may be logged, has no password."""
    settings = StoreSettings(redis_url=f"redis://:{SECRET}@example/0")
    assert SECRET not in repr(settings) + str(settings)


async def test_values_of_all_kinds_arrive(own_redis: Redis) -> None:
    """Values of all kinds arrive, alone or in a pipeline; the largest exceeds a connection's buffer."""
    port = own_redis.connection_pool.connection_kwargs["port"]
    large = "ä" * 4_000_000
    async with connect_redis(f"redis://127.0.0.1:{port}/0") as redis:
        await redis.rpush("list", "grüße", 7, 0.5, b"\x00\r\n", "", large)
        async with redis.pipeline(transaction=True) as pipeline:
            pipeline.lrange("list", 0, -2)
            pipeline.rpush("list", "last")
            kept, *_ = await pipeline.execute()
        found = await redis.lrange("list", -2, -1)
        set_to = await redis.config_get("maxmemory-policy")

    assert kept == ["grüße", "7", "0.5", "\x00\r\n", ""]
    assert found == [large, "last"]
    assert set_to == {"maxmemory-policy": "noeviction"}


async def test_a_connection_that_broke_between_two_commands_is_made_anew(own_redis: Redis) -> None:
    """A connection that the server closed is replaced, and the next command succeeds."""
    port = own_redis.connection_pool.connection_kwargs["port"]
    async with connect_redis(f"redis://127.0.0.1:{port}/0") as redis:
        await redis.set("name", "value")
        await own_redis.client_kill_filter(_type="normal", skipme=True)
        assert await redis.get("name") == "value"


@pytest.mark.parametrize("steps", range(6))
async def test_no_command_loses_its_cancellation(own_redis: Redis, steps: int) -> None:
    """A cancelled command is cancelled.

    Python 3.11 lost the cancellation of a long one right after its last byte was sent.
    """
    connection = cast("Connection", await own_redis.connection_pool.get_connection())
    await connection.send_command("PING")
    assert await connection.read_response() == "PONG"
    writer = connection._writer
    assert writer
    sending = asyncio.create_task(connection.send_command("SET", "key", "v" * 8_000_000))
    await asyncio.sleep(0)
    while writer.transport.get_write_buffer_size():  # noqa: ASYNC110 -- it has no event
        await asyncio.sleep(0)
    for _ in range(steps):
        await asyncio.sleep(0)

    if sending.cancel():
        with pytest.raises(asyncio.CancelledError):
            await sending
    await connection.disconnect()
    await own_redis.connection_pool.release(connection)


async def test_a_user_who_may_not_look_gets_a_warning(own_redis: Redis) -> None:
    """A managed Redis that refuses INFO causes a warning, not a refusal."""
    await own_redis.acl_setuser(
        "app", enabled=True, passwords=[f"+{SECRET}"], categories=["+@all"], commands=["-info"], keys=["*"]
    )
    port = own_redis.connection_pool.connection_kwargs["port"]

    async with connect_redis(f"redis://app:{SECRET}@127.0.0.1:{port}/0") as redis:
        (warning,) = await check_redis(redis)

    assert "may not run INFO" in warning


# Redis over TLS, for a user of its access control list.

PASSWORD = "p@ss/word"
QUOTED = "p%40ss%2Fword"


@dataclass(frozen=True)
class SafeRedis:
    """The URL of a TLS server, its authority, and a client's certificate."""

    address: str
    authority: Path
    client: Path


@pytest_asyncio.fixture(loop_scope="session")
async def safe_redis(redis: Redis, tmp_path: Path) -> AsyncGenerator[SafeRedis]:
    """Start a Redis that accepts clients with our certificates only, and has the user `app`."""
    user, ours, theirs = f"app-{uuid4()}", certificate_files("localhost", tmp_path), tmp_path / "client"
    theirs.mkdir()
    client = certificate_files("client", theirs)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client))
    context.load_cert_chain(ours)
    context.verify_mode = ssl.CERT_REQUIRED
    await redis.acl_setuser(
        user,
        enabled=True,
        passwords=[f"+{PASSWORD}"],
        categories=["+@all", "-@dangerous"],
        commands=["+info"],
        keys=["everloop:*"],
    )
    port = redis.connection_pool.connection_kwargs["port"]
    async with running_tls_proxy(port, context) as safe_port:
        yield SafeRedis(f"rediss://{user}:{QUOTED}@localhost:{safe_port}/1", ours, client)
    await redis.acl_deluser(user)


async def test_stores_work_over_tls(safe_redis: SafeRedis) -> None:
    """The URL has authority, certificate, user and password; the rights in the manual suffice."""
    url = (
        f"{safe_redis.address}?ssl_ca_certs={safe_redis.authority}"
        f"&ssl_certfile={safe_redis.client}&ssl_keyfile={safe_redis.client}"
    )
    word = new_id()
    task = submitted().model_copy(update={"history": (said("m1", word),)})
    async with connect_redis(StoreSettings(redis_url=url).redis_url) as redis:
        assert await check_redis(redis) == []
        stores = AllStores(redis, task, word)
        await stores.begin()
        await stores.go_on()
        await stores.check()


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        ("", "certificate verify failed"),
        ("?ssl_ca_certs=/nowhere/ca.pem", "No such file or directory"),
        ("?ssl_ca_certs={authority}", ""),
    ],
    ids=["unknown authority", "no file", "no certificate of the client"],
)
async def test_a_server_that_is_not_trusted_is_refused(
    safe_redis: SafeRedis, question: str, problem: str
) -> None:
    """An untrusted server, or one that refuses a client without certificate, is named without password."""
    url = safe_redis.address + question.format(authority=safe_redis.authority)
    async with connect_redis(url) as redis:
        with pytest.raises(RedisUnfitError) as caught:
            await check_redis(redis)
    told = str(caught.value)
    assert problem in told
    assert "Redis at localhost:" in told
    assert "EVERLOOP_REDIS_URL" in told
    assert PASSWORD not in told
    assert QUOTED not in told

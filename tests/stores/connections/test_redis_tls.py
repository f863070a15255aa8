"""Redis over TLS, for a user of its access control list."""

import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from everloop.runtime.redis import RedisUnfitError, StoreSettings, check_redis, connect_redis
from tests.stores.all_stores import AllStores
from tests.stores.examples import new_id, said, submitted
from tests.support.servers.tls import certificate_files, running_tls_proxy

PASSWORD = "p@ss/word"
QUOTED = "p%40ss%2Fword"


@dataclass(frozen=True)
class SafeRedis:
    """Where TLS is spoken, by whom it is signed, and a certificate of a client."""

    address: str
    authority: Path
    client: Path


@pytest_asyncio.fixture(loop_scope="session")
async def safe_redis(redis: Redis, tmp_path: Path) -> AsyncGenerator[SafeRedis]:
    """A Redis that takes clients with a certificate of ours only, and its user `app`."""
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
        yield SafeRedis(f"rediss://{user}:{QUOTED}@localhost:{safe_port}/0", ours, client)
    await redis.acl_deluser(user)


@pytest.mark.one_server  # it makes URLs of one
async def test_stores_work_over_tls(safe_redis: SafeRedis) -> None:
    """The URL names authority, certificate, user and password; the rights in our manual suffice."""
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
@pytest.mark.one_server  # it makes URLs of one
async def test_a_server_that_is_not_trusted_is_refused(
    safe_redis: SafeRedis, question: str, problem: str
) -> None:
    """So is a client that shows no certificate; the error names the server and not the password."""
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

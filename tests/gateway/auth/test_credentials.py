"""Authentication over real HTTP and gRPC: answers to clients, and trusted sources of identity."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.api_keys import add_key, new_key, remove_key
from everloop.gateway.auth.auth_settings import AuthSettings, make_authenticator
from everloop.stores.log.log_store import TaskViews
from tests.gateway.grpc_harness import GrpcGateway, running_grpc_gateway
from tests.support.servers.tokens import AUDIENCE, ISSUER, SigningKey, running_issuer
from tests.support.wires.wires import NAMES, Reply, all_wires

KEY = SigningKey()
JWT = {"auth": "jwt", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
SUBJECT = "X-Client-Subject"


class Site:
    """A gateway with authentication settings and all its bindings."""

    def __init__(self, served: GrpcGateway) -> None:
        self.http = served.http.http
        self._wires = all_wires(served.http.http, served.channel)

    async def get_task(self, wire: str = "JSON-RPC 1.0", **headers: str) -> Reply:
        """Request a task that does not exist; `X_API_Key` stands for X-API-Key."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._wires[wire].send("GetTask", {"id": str(uuid4())}, named)

    async def list_artifacts(self, headers: Sequence[tuple[str, str]]) -> httpx.Response:
        """Request the artifacts of a context that does not exist."""
        return await self.http.get(f"artifacts/{uuid4()}", headers=[*headers])


@asynccontextmanager
async def site(client: Client, views: TaskViews, **settings: str) -> AsyncGenerator[Site]:
    access = AccessControl(make_authenticator(AuthSettings.model_validate(settings), "127.0.0.1"))
    async with running_grpc_gateway(client, views, queue="none", access=access) as served:
        yield Site(served)


async def test_a_token_is_taken_or_refused_with_the_reason(
    client: Client, views: TaskViews, tmp_path: Path
) -> None:
    """RFC 6750 §3.1: 401 invalid_token, 403 insufficient_scope; for a valid token the task is looked up."""
    key = str(KEY.write(tmp_path / "key"))
    taken, expired, lacking = [
        {"Authorization": f"Bearer {token}"}
        for token in (KEY.token(scope="tasks:read"), KEY.token(exp=1), KEY.token(scope="tasks:write"))
    ]
    async with site(client, views, **JWT, jwt_public_key_file=key) as served:
        for wire in NAMES:
            assert b"no task" in (await served.get_task(wire, **taken)).body
            reply = await served.get_task(wire, **expired)
            assert reply.status in {401, "UNAUTHENTICATED"}
            assert b"the token has expired" in reply.body
            assert reply.headers["www-authenticate"] == (
                'Bearer realm="everloop", error="invalid_token", error_description="the token has expired"'
            )
            reply = await served.get_task(wire, **lacking)
            assert reply.status in {403, "PERMISSION_DENIED"}
            assert b"this takes the scope tasks:read" in reply.body
            assert reply.headers["www-authenticate"] == (
                'Bearer realm="everloop", error="insufficient_scope", scope="tasks:read"'
            )


async def test_what_is_meant_as_a_token_is_refused_as_one(
    client: Client, views: TaskViews, tmp_path: Path
) -> None:
    """A malformed or repeated token is refused as a token: no other scheme authenticates the call instead."""
    api_key, line = new_key("acme", ["tasks:read"], None)
    add_key(tmp_path / "keys", line)
    files = {"api_keys_file": str(tmp_path / "keys"), "jwt_public_key_file": str(KEY.write(tmp_path / "key"))}
    known, token = ("X-API-Key", api_key), f"Bearer {KEY.token(scope='tasks:read')}"
    async with site(client, views, **{**JWT, **files, "auth": "jwt,api-key"}) as served:
        for sent in ("Bearer", "Bearer a b", "bearer", "Bearer\ta", "Bearer ,", f"Basic YTpi, {token}"):
            refused = await served.list_artifacts([("Authorization", sent), known])
            assert refused.status_code == 401, sent
            assert "has to be Bearer and one token, and come once" in refused.text
        twice = await served.list_artifacts([("Authorization", token), ("Authorization", token), known])
        other = await served.list_artifacts([("Authorization", "Basic YTpi"), known])
    assert twice.status_code == 401
    assert other.status_code == 200


async def test_an_issuer_that_does_not_answer_is_an_outage(client: Client, views: TaskViews) -> None:
    """The answer is 503 with Retry-After on each binding: the client keeps its token, which may be valid."""
    with running_issuer(KEY) as issuer:
        issuer.status = 500
        async with site(client, views, **JWT, jwt_jwks_url=issuer.url) as served:
            token = f"Bearer {KEY.token()}"
            replies = [await served.get_task(wire, Authorization=token) for wire in NAMES]
    for reply in replies:
        assert reply.status in {503, "UNAVAILABLE"}, reply
        assert b"does not answer" in reply.body
        assert issuer.url.encode() not in reply.body
        assert "www-authenticate" not in reply.headers
        assert reply.status == "UNAVAILABLE" or int(reply.headers["retry-after"]) > 0


async def test_a_key_that_is_removed_is_refused_at_the_next_call(
    client: Client, views: TaskViews, tmp_path: Path
) -> None:
    """A key file is reloaded while the gateway runs: removed keys are refused, new ones accepted."""
    path = tmp_path / "keys"
    first, line = new_key("acme", ["tasks:read"], None)
    add_key(path, line)
    async with site(client, views, auth="api-key", api_keys_file=str(path)) as served:
        before = await served.get_task(X_API_Key=first)
        second, other = new_key("acme", ["tasks:read"], None)
        add_key(path, other)
        remove_key(path, line.id)
        after, new = await served.get_task(X_API_Key=first), await served.get_task(X_API_Key=second)
    assert b"no task" in before.body
    assert after.status == 401
    assert b"no task" in new.body


async def test_the_proxy_tells_who_calls(client: Client, views: TaskViews) -> None:
    """The proxy's header identifies the caller on every binding; without it the caller is unauthenticated."""
    async with site(client, views, auth="mtls", mtls_proxies="127.0.0.1") as served:
        for wire in NAMES:
            assert b"no task" in (await served.get_task(wire, **{SUBJECT: "CN=billing"})).body
            assert (await served.get_task(wire)).status in {401, "UNAUTHENTICATED"}


async def test_nobody_passes_for_the_proxy(client: Client, views: TaskViews) -> None:
    """Headers with a certificate or a client address are ignored unless the proxy sends them."""
    async with site(client, views, auth="mtls", mtls_proxies="192.0.2.7") as served:
        for wire in NAMES:
            for claim in ({}, {"X-Forwarded-For": "192.0.2.7"}, {"Forwarded": "for=192.0.2.7"}):
                reply = await served.get_task(wire, **{SUBJECT: "CN=billing", **claim})
                assert reply.status in {401, "UNAUTHENTICATED"}, (wire, claim, reply)


async def test_a_proxy_that_adds_its_header_does_not_pass_on_the_clients(
    client: Client, views: TaskViews
) -> None:
    """A request with two identity headers is unauthenticated."""
    async with site(client, views, auth="mtls", mtls_proxies="127.0.0.1") as served:
        twice = [(SUBJECT, "anonymous"), (SUBJECT, "CN=billing")]
        reply = await served.list_artifacts(twice)
        alone = await served.list_artifacts([(SUBJECT, "anonymous")])
    assert reply.status_code == 401
    assert alone.status_code == 401

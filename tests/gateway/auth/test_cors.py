"""Pages of origins that EVERLOOP_CORS_ORIGINS names may call a gateway; browsers keep others from it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.settings import GatewaySettings
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.http_extension import HTTP_BASE
from tests.gateway.harness import RunningGateway, key_scheme, running_gateway

PAGE, OTHER = "https://console.example", "https://evil.example"

SEND = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "none"}}

CALLS = [
    ("GET", "/.well-known/agent-card.json", 200),
    ("GET", "/agents", 200),
    ("POST", "/", 200),
    ("GET", "/tasks/none", 404),
    ("POST", "/tasks/none:cancel", 404),
    ("GET", "/tasks/none:subscribe", 404),
    ("GET", "/artifacts/none", 200),
    ("GET", f"{HTTP_BASE}/approvals", 403),
    ("GET", "/none/at/all", 404),
]
"""Cards, A2A by JSON-RPC and REST, streams, downloads, the extension, and an unknown address."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(client: Client, views: TaskViews) -> AsyncGenerator[RunningGateway]:
    """A gateway without authentication that a console may call; it has no worker."""
    async with running_gateway(client, views, queue="none", cors_origins=PAGE) as gateway:
        yield gateway


async def call(site: RunningGateway, method: str, address: str, **headers: str) -> httpx.Response:
    """Send a request as a browser does; `Sec_Fetch_Site` stands for Sec-Fetch-Site."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = SEND if address == "/" else None
    return await site.http.request(method, address, headers=named, json=body)


async def ask(site: RunningGateway, origin: str, method: str, *headers: str) -> httpx.Response:
    """Send the preflight request of a browser."""
    asked = {"Origin": origin, "Access-Control-Request-Method": method}
    return await site.http.options(
        "/tasks", headers={**asked, "Access-Control-Request-Headers": ",".join(headers)}
    )


@pytest.mark.parametrize(("method", "address", "status"), CALLS)
async def test_pages_that_are_listed_read_each_answer(
    site: RunningGateway, method: str, address: str, status: int
) -> None:
    """Pages of listed origins read errors too.

    Others get the same answer without permission, and Vary separates both in caches.
    """
    mine = await call(site, method, address, Origin=PAGE, Sec_Fetch_Site="cross-site")
    assert mine.status_code == status
    assert mine.headers["Access-Control-Allow-Origin"] == PAGE
    assert {"a2a-extensions", "retry-after", "www-authenticate", "etag"} <= {
        each.strip().lower() for each in mine.headers["Access-Control-Expose-Headers"].split(",")
    }
    others = [await call(site, method, address, Origin=OTHER), await call(site, method, address)]
    assert [each.status_code for each in others] == [403 if method == "POST" else status, status]
    for answer in (mine, *others):
        assert "origin" in answer.headers["Vary"].lower()
        assert "Access-Control-Allow-Credentials" not in answer.headers
    assert not any("Access-Control-Allow-Origin" in answer.headers for answer in others)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
async def test_browsers_are_told_what_pages_may_send(site: RunningGateway, method: str) -> None:
    """A preflight request lists all headers that the server reads, but none for an unlisted origin."""
    sent = ("a2a-version", "a2a-extensions", "authorization", "x-api-key", "content-type", "last-event-id")
    allowed = await ask(site, PAGE, method, *sent, "idempotency-key")
    assert allowed.status_code == 200
    assert allowed.headers["Access-Control-Allow-Origin"] == PAGE
    assert method in allowed.headers["Access-Control-Allow-Methods"]
    assert int(allowed.headers["Access-Control-Max-Age"]) > 0
    refused = await ask(site, OTHER, method)
    assert refused.status_code == 400
    assert "Access-Control-Allow-Origin" not in refused.headers


async def test_who_is_not_known_may_read_why(client: Client, views: TaskViews, tmp_path: Path) -> None:
    """A page can read that its key is missing; the preflight request needs no key."""
    scheme, _ = key_scheme(tmp_path / "keys", {"ann": ("ann", ["tasks:read"])})
    async with running_gateway(
        client, views, queue="none", cors_origins=PAGE, access=AccessControl(scheme)
    ) as gateway:
        assert (await ask(gateway, PAGE, "POST", "x-api-key")).status_code == 200
        for method, address in (("POST", "/"), ("GET", "/tasks/x"), ("GET", f"{HTTP_BASE}/approvals")):
            refused = await call(gateway, method, address, Origin=PAGE)
            assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (401, PAGE)
            assert refused.headers["WWW-Authenticate"]


async def test_all_pages_may_call_where_that_is_wanted(client: Client, views: TaskViews) -> None:
    """`*` allows all origins, also pages in files, but never with the user's cookies."""
    async with running_gateway(client, views, queue="none", cors_origins="*") as gateway:
        for origin in (OTHER, "null"):
            answer = await call(gateway, "POST", "/", Origin=origin, Sec_Fetch_Site="cross-site")
            assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (200, "*")
            assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_without_the_setting_no_page_gets_permission(gateway: RunningGateway) -> None:
    """Without the setting no answer has a CORS header."""
    answer = await call(gateway, "GET", "/agents", Origin=PAGE)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert (await ask(gateway, PAGE, "GET")).status_code == 405


@pytest.mark.parametrize(
    "origins", ["console.example", "https://x/", "https://x/path", "*,https://x", "null"]
)
def test_what_is_no_origin_ends_the_process_at_start(origins: str) -> None:
    """An origin with a trailing slash is refused: it never equals the origin of a page."""
    with pytest.raises(ValueError, match="expected origins such as"):
        GatewaySettings.model_validate({"cors_origins": origins})

"""Without authentication, foreign web pages reach nothing: by no foreign host name, and with no change."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.stores.log.log_store import TaskViews
from tests.gateway.harness import Named, RunningGateway, running_gateway, unique

PUBLIC = "agents.example.org"

ADDRESSES = [
    "/tasks",
    "/agents",
    "/.well-known/agent-card.json",
    "/healthz",
    "/readyz",
    "/artifacts/x",
    "/none",
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(client: Client, views: TaskViews) -> AsyncGenerator[RunningGateway]:
    """A gateway without authentication or worker."""
    url = f"https://{PUBLIC}:8443/base/"
    async with running_gateway(client, views, queue="none", public_url=url) as gateway:
        yield gateway


async def status(site: RunningGateway, method: str, address: str, **headers: str) -> int:
    """Return the status of an answer; `Sec_Fetch_Site` stands for Sec-Fetch-Site."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await site.http.request(method, address, headers=named)).status_code


@pytest.mark.parametrize("address", ADDRESSES)
async def test_a_name_that_is_not_ours_is_refused(site: RunningGateway, address: str) -> None:
    """421 at every address: DNS rebinding would let a page read the answers."""
    for host in (
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        f"x.{PUBLIC}",
        "127.0.0.1.nip.io",
    ):
        assert await status(site, "GET", address, Host=host) == 421, host


async def test_the_refusal_says_what_to_do(site: RunningGateway) -> None:
    """The error names the setting for operators of a gateway with a host name."""
    answer = await site.http.post("/", json={}, headers={"Host": "evil.example"})
    error = answer.json()["error"]
    assert (error["code"], error["details"][0]["reason"]) == (421, "MISDIRECTED")
    assert "this server is not called 'evil.example'" in error["message"]
    assert "EVERLOOP_PUBLIC_URL" in error["message"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST.:1", "127.0.0.1:9", "[::1]:8080", "10.1.2.3", PUBLIC, f"{PUBLIC.upper()}:443"],
)
async def test_our_names_are_taken(site: RunningGateway, host: str) -> None:
    """Own host names are accepted with any port, because a proxy may use another one.

    No foreign page can have them.
    """
    assert await status(site, "GET", "/tasks", Host=host) == 200
    assert await status(site, "GET", "/healthz", Host=host) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://192.0.2.7"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "cross-site", "Origin": "http://localhost:3000"},
    ],
)
async def test_pages_of_others_change_nothing(site: RunningGateway, headers: dict[str, str]) -> None:
    """403 for requests that browsers send without a preflight, such as those with an empty body."""
    task = unique("task")
    for method, address in (
        ("POST", f"/v1/tasks/{task}:cancel"),
        ("POST", f"/tasks/{task}:cancel"),
        ("POST", "/message:send"),
        ("DELETE", f"/tasks/{task}/pushNotificationConfigs/x"),
    ):
        assert await status(site, method, address, **headers) == 403, address
    assert await status(site, "GET", "/tasks", **headers) == 200  # it cannot read this


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": f"https://{PUBLIC}", "Sec_Fetch_Site": "same-origin"},
        {"Origin": "http://localhost:3000", "Sec_Fetch_Site": "same-site"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "http://10.1.2.3:8080", "Host": "10.1.2.3:8080"},
        {"Sec_Fetch_Site": "none"},
    ],
)
async def test_programs_and_our_own_pages_may_change_things(
    site: RunningGateway, headers: dict[str, str]
) -> None:
    """The task is looked for."""
    assert await status(site, "POST", f"/tasks/{unique('task')}:cancel", **headers) == 404


async def test_with_authentication_names_do_not_matter(client: Client, views: TaskViews) -> None:
    """No page has the credentials."""
    async with running_gateway(client, views, queue="none", access=AccessControl(Named())) as gateway:
        read = await status(gateway, "GET", "/healthz", Host="any.example", Origin="http://evil.example")
    assert read == 200

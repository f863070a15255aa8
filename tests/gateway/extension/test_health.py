"""Health checks of the servers behind /readyz, for any caller, at a limited rate."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import httpx
import pytest_asyncio
from starlette.applications import Starlette

from everloop.gateway.extension.health import ANSWER_HOLDS, health_routes


@dataclass
class Servers:
    """One server that is checked; the test sets the clock, in seconds, and controls the answer."""

    now: float = 100.0
    asked: int = 0
    is_up: bool = True
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def probe(self) -> None:
        self.asked += 1
        self.reached.set()
        await self.gate.wait()
        if not self.is_up:
            raise ConnectionError("secret")


@dataclass(frozen=True)
class Site:
    """An application with the probes and their checks."""

    servers: Servers
    http: httpx.AsyncClient

    async def status(self) -> int:
        return (await self.http.get("/readyz")).status_code


@pytest_asyncio.fixture
async def site() -> AsyncGenerator[Site]:
    servers = Servers()
    app = Starlette(routes=health_routes({"server": servers.probe}, lambda: servers.now))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as http:
        yield Site(servers, http)


async def test_all_who_ask_at_once_cause_one_question(site: Site) -> None:
    """Also callers that come while the check runs; one that leaves does not stop it for the others."""
    first = asyncio.create_task(site.status())
    await site.servers.reached.wait()
    others = [asyncio.create_task(site.status()) for _ in range(50)]
    first.cancel()
    site.servers.gate.set()
    assert await asyncio.gather(*others) == [200] * 50
    assert site.servers.asked == 1


async def test_an_answer_holds_for_a_second(site: Site) -> None:
    """Then the server is checked again; the answer reports the result without the error text."""
    site.servers.gate.set()
    assert await site.status() == 200
    site.servers.is_up = False
    site.servers.now += ANSWER_HOLDS / 2
    assert await site.status() == 200
    assert site.servers.asked == 1
    site.servers.now += ANSWER_HOLDS / 2
    answer = await site.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unavailable", "checks": {"server": "failed: ConnectionError"}}
    assert site.servers.asked == 2

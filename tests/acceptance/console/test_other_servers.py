"""The console before servers that do not serve it: foreign ones, and a gateway without pages."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from playwright.async_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from everloop.gateway.console.build import build
from everloop.gateway.console.console_routes import console_routes
from everloop.local.servers import LOOPBACK, free_port
from tests.acceptance.console.conftest import opening_tabs, say
from tests.support.rigs.deployment import Service
from tests.support.servers.peer_server import running_peer
from tests.support.servers.scripted_openai import QuietServer, Reply

pytestmark = pytest.mark.slow

_OF_THE_CONNECTION = {"host", "content-length", "transfer-encoding"}


async def test_a_server_of_others_is_talked_to_by_a2a_alone(browser: Browser) -> None:
    """Its one agent streams, asks and is listed, also after a lost connection; missing features are named."""
    await asyncio.to_thread(build)
    async with (
        running_peer() as peer,
        _pages_before(peer.url) as url,
        opening_tabs(url, browser) as open_tab,
    ):
        page = await open_tab()
        peer.cut = 2
        await say(page, "wait for it")
        await expect(page.locator(".message.agent")).to_contain_text("half done")
        await peer.until_called("SubscribeToTask")
        peer.gate.set()
        await expect(page.locator(".answer")).to_have_text("done for it")
        await page.get_by_role("link", name="New chat").click()
        await say(page, "write")
        await expect(page.locator(".artifact[open]").first).to_contain_text("A text.")
        await expect(page.locator(".message.agent")).to_contain_text("All is written.")

        await page.get_by_role("link", name="New chat").click()
        await say(page, "ask")
        await page.get_by_label("Your answer").fill("this one")
        await page.get_by_role("button", name="Answer").click()
        await expect(page.locator(".answer")).to_have_text("took this one")
        await page.get_by_role("link", name="Tasks").click()
        await page.get_by_role("link", name="wait for it").click()
        await expect(page.locator(".answer")).to_have_text("done for it")

        for path, what in {"/inbox": "inbox", "/contexts": "contexts", "/schedules": "schedules"}.items():
            await page.goto(f"{url}/console{path}")
            await _expect_only(page, f"No {what} on this server")


async def test_another_gateway_is_one_like_ours(service: Service, browser: Browser) -> None:
    """All pages work with a gateway that has the extension, whatever server they come from."""
    gateway = await service.everloop.add_gateway(EVERLOOP_CONSOLE="false")
    service.script([Reply(["Hello."])])
    async with _pages_before(gateway.url) as url, opening_tabs(url, browser) as open_tab:
        page = await open_tab()
        await page.goto(f"{url}/console/chat/studio")
        await say(page, "From elsewhere")
        await expect(page.locator(".answer")).to_have_text("Hello.")
        await page.get_by_role("link", name="Contexts").click()

        await expect(page.get_by_role("link", name="From elsewhere")).to_be_visible()


async def _expect_only(page: Page, title: str) -> None:
    await expect(page.get_by_role("heading", name=title)).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)


@asynccontextmanager
async def _pages_before(server: str) -> AsyncGenerator[str]:
    """Serve the console's pages, and proxy all other requests to a server."""
    async with httpx.AsyncClient(base_url=server, timeout=None) as client:  # noqa: S113 -- streams last

        async def forward(request: Request) -> StreamingResponse:
            url = f"{request.scope['raw_path'].decode()}?{request.url.query}"
            headers = {
                name: value for name, value in request.headers.items() if name not in _OF_THE_CONNECTION
            }
            asked = client.build_request(request.method, url, headers=headers, content=await request.body())
            answer = await client.send(asked, stream=True)
            return StreamingResponse(answer.aiter_raw(), answer.status_code, dict(answer.headers))

        anything = Route("/{path:path}", forward, methods=["GET", "POST", "PATCH", "DELETE"])
        app = Starlette(routes=[*console_routes("http://pages.example/"), anything])
        port = free_port()
        config = uvicorn.Config(app, host=LOOPBACK, port=port, log_config=None, lifespan="off")
        config.timeout_graceful_shutdown = 1  # a test that fails leaves streams open
        serving = QuietServer(config)
        running = asyncio.create_task(serving.serve())
        try:
            yield f"http://{LOOPBACK}:{port}"
        finally:
            serving.should_exit = True
            await running

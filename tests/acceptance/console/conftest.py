"""Fixtures of the browser tests: agents on a gateway and a worker, and a tab without errors."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, expect

from everloop.gateway.console.build import build
from tests.acceptance.console.agents import CONSOLE_AGENTS
from tests.acceptance.console.browser import running_browser
from tests.support.rigs.deployment import Service, running_service
from tests.support.rigs.people import PEOPLE_AGENT

TIMEOUT = 30_000
"""Timeout for the expected content of a page on a busy machine, in milliseconds."""

OpenTab = Callable[[], Awaitable[Page]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    await asyncio.to_thread(build)
    agents = f"{PEOPLE_AGENT},{CONSOLE_AGENTS}"
    async with running_service(tmp_path_factory.mktemp("console"), agents) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Browser]:
    async with running_browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def open_tab(service: Service, browser: Browser) -> AsyncGenerator[OpenTab]:
    """Open tabs; a violation of the console's content security policy, or an exception, fails the test."""
    async with opening_tabs(service.gateway.url, browser) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def page(open_tab: OpenTab) -> Page:
    """A new tab, at the beginning."""
    return await open_tab()


@asynccontextmanager
async def opening_tabs(url: str, browser: Browser) -> AsyncGenerator[OpenTab]:
    """Open tabs with a shared browser context, and close them."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    expect.set_options(timeout=TIMEOUT)
    problems: list[str] = []

    def note(said: ConsoleMessage) -> None:
        # Forbidden attempts of an agent's page in its frame are expected.
        if "Content Security Policy" in said.text and "/console/frame" not in said.location["url"]:
            problems.append(said.text)

    async def open_tab() -> Page:
        tab = await context.new_page()
        tab.set_default_timeout(TIMEOUT)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", note)
        await tab.goto(f"{url}/console")
        return tab

    yield open_tab
    await context.close()
    assert problems == []


async def say(page: Page, text: str) -> None:
    """Send a message in the chat of the tab."""
    written = page.get_by_role("textbox", name="Write a message")
    await written.fill(text)
    await expect(page.get_by_role("button", name="Send")).to_be_enabled()  # once the agents are loaded
    await written.press("Enter")

"""A browser, from a package of npm's, as a machine without one has it; Playwright drives it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from everloop.gateway.console import build

_PROGRAM = """
const { default: chromium } = await import("@sparticuz/chromium");
process.stdout.write(await chromium.executablePath());
"""
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@asynccontextmanager
async def running_browser(directory: Path) -> AsyncGenerator[Browser]:
    """Start one; what it keeps is kept in a directory."""
    await asyncio.to_thread(build.install)
    # It unpacks itself below TMPDIR, which two runs on one machine must not share.
    program = await asyncio.to_thread(
        build.node, "--input-type=module", "--eval", _PROGRAM, TMPDIR=str(directory)
    )
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()

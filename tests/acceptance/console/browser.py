"""Starts the browser for Playwright: one of npm on Linux, elsewhere the installed Chrome."""

import asyncio
import sys
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
    """Run a browser with its profile in `directory`."""
    program = await asyncio.to_thread(_unpacked, directory) if sys.platform == "linux" else None
    channel = None if program else "chrome"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, channel=channel, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


def _unpacked(directory: Path) -> str:
    build.install()
    # It unpacks itself below TMPDIR, which two runs on one machine must not share.
    return build.node("--input-type=module", "--eval", _PROGRAM, TMPDIR=str(directory))

"""Draws the console: `python -m tests.acceptance.console.picture FILE`, which is `make pictures`.

The demo runs on a stack of its own, a browser shows its task, and what stands on the page becomes an SVG:
rectangles and lines of text, small enough to stand in the repository.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import TypedDict

from playwright.async_api import Page, expect

from everloop.gateway.console.build import build
from tests.acceptance.console.browser import running_browser

WIDTH, HEIGHT = 1080, 675
REQUEST = "Look at the directory `docs/concepts`, take notes, and write a report"
PATIENCE = 120_000


class Shape(TypedDict):
    """A rectangle or a line of text, where it stands, in pixels."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str
    radius: float
    text: str
    size: float
    weight: str
    family: str


_SHAPES = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
"""What stands on the page, from the back to the front."""

_FAMILIES = {"mono": "ui-monospace,Menlo,Consolas,monospace", "sans": "system-ui,sans-serif"}


async def draw(page: Page) -> str:
    """Return what a tab shows as SVG."""
    shapes: list[Shape] = await page.evaluate(_SHAPES)
    size = page.viewport_size or {"width": WIDTH, "height": HEIGHT}
    width, height = size["width"], size["height"]
    drawn = "\n".join(map(_element, shapes))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="{_FAMILIES["sans"]}">\n<title>The console of Everloop</title>\n{drawn}\n'
        f'<path d="M.5.5h{width - 1}v{height - 1}h-{width - 1}z" fill="none" stroke="#ccd"/>\n</svg>\n'
    )


def _element(shape: Shape) -> str:
    x, y, width, height = (f"{shape[name]:.4g}" for name in ("x", "y", "width", "height"))
    if not shape["text"]:
        stroke = f' stroke="{shape["stroke"]}"' if shape["stroke"] else ""
        radius = f' rx="{min(shape["radius"], shape["height"] / 2):g}"' if shape["radius"] else ""
        place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        return f'<rect {place} fill="{shape["fill"]}"{stroke}{radius}/>'
    base = shape["y"] + shape["height"] / 2 + shape["size"] * 0.35
    weight = f' font-weight="{shape["weight"]}"' if shape["weight"] != "400" else ""
    family = f' font-family="{_FAMILIES["mono"]}"' if shape["family"] == "mono" else ""
    # As wide as here, whatever font there is.
    length = f' textLength="{width}" lengthAdjust="spacingAndGlyphs"' if shape["width"] > 30 else ""
    return (
        f'<text x="{x}" y="{base:.4g}" font-size="{shape["size"]:g}" fill="{shape["fill"]}"{weight}{family}'
        f"{length}>{escape(shape['text'])}</text>"
    )


@asynccontextmanager
async def _running_demo(directory: Path) -> AsyncGenerator[str]:
    """Run a stack of the demo, and yield the address of its console."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everloop", "up", "--json", "--directory", str(directory)),
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    try:
        printed = b""
        while not printed.rstrip().endswith(b"}"):
            printed += await asyncio.wait_for(process.stdout.readline(), PATIENCE / 1000)
        yield json.loads(printed)["console"]
    finally:
        process.terminate()
        await process.wait()


async def picture() -> str:
    """Run the demo, and return a picture of what the console shows of it."""
    await asyncio.to_thread(build)
    with tempfile.TemporaryDirectory() as kept:
        directory = Path(kept)
        async with _running_demo(directory / "stack") as url, running_browser(directory) as browser:
            page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.set_default_timeout(PATIENCE)
            await page.goto(url)
            await page.get_by_role("textbox", name="Write a message").fill(REQUEST)
            await page.keyboard.press("Enter")
            await expect(page.locator(".task-foot .badge")).to_have_text("completed", timeout=PATIENCE)
            await page.get_by_role("link", name="Details").click()
            await expect(page.locator(".answer")).to_be_visible(timeout=PATIENCE)
            await expect(page.locator(".facts")).to_contain_text("version", timeout=PATIENCE)
            await page.mouse.move(0, HEIGHT - 1)
            await page.evaluate("document.querySelector('.turns').scrollTo(0, 0)")
            return await draw(page)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(asyncio.run(picture()), encoding="utf-8")

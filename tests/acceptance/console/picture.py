"""Draws pages: `python -m tests.acceptance.console.picture FOLDER`, which is `make pictures` with docs.

The demo runs on a stack of its own, and agents whose tasks are stuck on another. A browser shows their tasks,
in the console and in Temporal's UI, and what stands on the page becomes an SVG: rectangles and lines of text,
small enough to stand in the repository.
"""

import asyncio
import json
import os
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
from tests.acceptance.console.agents import STUCK_AGENTS
from tests.acceptance.console.browser import running_browser
from tests.support.servers.scripted_openai import Refusal, Reply, ScriptedOpenAI, by_model, tool_call

WIDTH, HEIGHT = 1080, 675
REQUEST = "Look at the directory `docs/concepts`, take notes, and write a report"
TIMEOUT = 120_000

STUCK = {
    "bank": "What is on account DE-17?",
    "writer": "Write to the customer of order A-1002",
    "clerk": "File the invoices of last week",
}
"""The message to each of the agents whose tasks are stuck."""


class Shape(TypedDict):
    """A rectangle or a line of text, with its position in pixels."""

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
"""The shapes of a page, from the back to the front."""

_FAMILIES = {"mono": "ui-monospace,Menlo,Consolas,monospace", "sans": "system-ui,sans-serif"}


async def draw(page: Page, title: str) -> str:
    """Return the content of a tab as SVG."""
    shapes: list[Shape] = await page.evaluate(_SHAPES)
    for frame in page.frames[1:]:
        place = await (await frame.frame_element()).bounding_box()
        if place:
            inner: list[Shape] = await frame.evaluate(_SHAPES)
            for each in inner:
                each["x"] += place["x"]
                each["y"] += place["y"]
            shapes += inner
    size = page.viewport_size or {"width": WIDTH, "height": HEIGHT}
    width, height = size["width"], size["height"]
    drawn = "\n".join(map(_element, shapes))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="{_FAMILIES["sans"]}">\n<title>{title}</title>\n{drawn}\n'
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
    # The same width with every font.
    length = f' textLength="{width}" lengthAdjust="spacingAndGlyphs"' if shape["width"] > 30 else ""
    return (
        f'<text x="{x}" y="{base:.4g}" font-size="{shape["size"]:g}" fill="{shape["fill"]}"{weight}{family}'
        f"{length}>{escape(shape['text'])}</text>"
    )


@asynccontextmanager
async def _running(directory: Path, **environment: str) -> AsyncGenerator[dict[str, str]]:
    """Run a stack, by default of the demo, and yield its addresses."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everloop", "up", "--json", "--directory", str(directory)),
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    assert process.stdout
    try:
        printed = b""
        while not printed.rstrip().endswith(b"}"):
            printed += await asyncio.wait_for(process.stdout.readline(), TIMEOUT / 1000)
        yield json.loads(printed)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _page(directory: Path) -> AsyncGenerator[Page]:
    async with running_browser(directory) as browser:
        page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(TIMEOUT)
        expect.set_options(timeout=TIMEOUT)
        yield page


async def _say(page: Page, words: str) -> None:
    await page.get_by_role("textbox", name="Write a message").fill(words)
    await page.keyboard.press("Enter")


async def draw_demo(directory: Path) -> str:
    """Run the demo, and return a picture of it in the console."""
    async with _running(directory / "stack") as stack, _page(directory) as page:
        await page.goto(stack["console"])
        await _say(page, REQUEST)
        await expect(page.locator(".task-foot .badge")).to_have_text("completed")
        await page.get_by_role("link", name="Details").click()
        await expect(page.locator(".answer")).to_be_visible()
        await expect(page.locator(".facts")).to_contain_text("version")
        await page.mouse.move(0, HEIGHT - 1)
        await page.evaluate("document.querySelector('.turns').scrollTo(0, 0)")
        return await draw(page, "The console of Everloop")


async def draw_stuck(directory: Path) -> tuple[str, str]:
    """Return pictures of tasks that are stuck: in the console, and of one in Temporal's UI."""
    refusal = Refusal(401, message="no such key")
    hanging = Reply([tool_call("ask_bank", '{"account": "DE-17"}')])
    async with (
        ScriptedOpenAI(by_model(bank=[hanging], writer=[refusal], clerk=[refusal])) as model,
        _running(
            directory / "stack",
            EVERLOOP_AGENTS=STUCK_AGENTS,
            EVERLOOP_MODEL="bank",
            OPENAI_API_KEY="none",
            OPENAI_BASE_URL=model.base_url,
        ) as stack,
        _page(directory) as page,
    ):
        for agent, words in STUCK.items():
            await page.goto(f"{stack['console']}/chat/{agent}")
            await _say(page, words)
            await expect(page.locator(".task-foot .badge")).to_be_visible()
        await page.set_viewport_size({"width": WIDTH, "height": 480})
        await page.goto(f"{stack['console']}/operator")
        # A tool is reported when it has run for a minute.
        await expect(page.get_by_role("region", name="The task is stuck")).to_have_count(len(STUCK))
        console = await draw(page, "Tasks that are stuck, on the page Operator of the console")

        await page.set_viewport_size({"width": 1280, "height": 900})
        await page.goto(f"{stack['temporal_ui']}/namespaces/default/workflows")
        await page.get_by_role("link", name="bank-").click()
        await page.get_by_role("tab", name="User Metadata").click()
        details = page.frame_locator("#user-metadata-current-details")
        await expect(details.locator("body")).to_contain_text("skip_call")
        return console, await draw(page, "A task that is stuck, in Temporal's UI")


async def write_pictures(folder: Path) -> None:
    """Draw all pictures, and write them to the documents that show them."""
    await asyncio.to_thread(build)
    with tempfile.TemporaryDirectory() as demo, tempfile.TemporaryDirectory() as stuck:
        drawn = await draw_demo(Path(demo))
        operator, temporal = await draw_stuck(Path(stuck))
    for name, picture in (
        ("start/console", drawn),
        ("operation/stuck-in-the-console", operator),
        ("operation/stuck-in-temporal", temporal),
    ):
        (folder / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(write_pictures(Path(sys.argv[1])))

"""Artifacts of agents in a browser: shown by kind, and never run."""

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.console.agents import ROWS
from tests.acceptance.console.conftest import say
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.scripted_openai import Reply

pytestmark = pytest.mark.slow

PAGE_OF_AN_AGENT = """
<h1>A page</h1><style>h1 { color: rgb(0, 128, 128) }</style>
<script>parent.harmed = 1; top.harmed = 1</script>
<img src=x onerror="parent.harmed = 1">
<img id=spy src="/agents"><a href="/console">out</a>
<svg width="99" height="20"><a xlink:href="/console"><text y="15">picture</text></a></svg>
<svg width="99" height="20">
<a href="#"><set attributeName="href" to="/console"/><text y="15">turned</text></a></svg>
<meta http-equiv=refresh content="0;url=/console">
"""


async def publish(service: Service, page: Page, *artifacts: tuple[str, str, str]) -> None:
    """Script the agent to write artifacts (kind, name, content), and open the tab that shows them."""
    calls = [
        call("publish", {"kind": kind, "name": name, "content": content}, index)
        for index, (kind, name, content) in enumerate(artifacts)
    ]
    service.script([Reply(calls), Reply(["Written."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Write it")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    await page.get_by_role("link", name="Details").click()
    await page.get_by_role("button", name="artifacts").click()


async def test_a_dataset_is_a_table_with_pages(service: Service, page: Page) -> None:
    """A hundred rows a page; HTML in a cell is text."""
    await publish(service, page, ("rows", "cities", ""))

    await expect(page.locator(".rows-foot")).to_contain_text(f"Rows 1 to 100 of {ROWS}")
    await expect(page.get_by_role("cell", name="<b>bold</b>")).to_be_visible()
    await page.get_by_role("button", name="Next").click()
    await page.get_by_role("button", name="Next").click()
    await expect(page.get_by_role("cell", name=f"city {ROWS}", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Next")).to_be_disabled()


async def test_each_kind_is_shown_as_what_it_is(service: Service, page: Page) -> None:
    """Markdown is formatted, code coloured, JSON a tree, a picture drawn, other text is unchanged."""
    await publish(
        service,
        page,
        ("text/markdown", "report", "# Found\n\n- one\n\n```python\nreturn 1\n```"),
        ("data", "numbers", "in the tree"),
        ("picture", "dot", ""),
        ("pdf", "sheet", ""),
        ("text/plain", "plain", "# no heading"),
    )

    await expect(page.get_by_role("heading", name="Found")).to_be_visible()
    await expect(page.locator("pre .hl-keyword")).to_have_text("return")
    await expect(page.get_by_text('"in the tree"')).to_be_visible()
    await expect(page.get_by_role("img", name="dot.png")).to_be_visible()
    assert await page.get_by_role("img", name="dot.png").evaluate("image => image.naturalWidth") == 1
    await expect(page.get_by_text("# no heading")).to_be_visible()
    async with page.expect_download() as downloading:
        sheet = page.locator(".artifact", has_text="sheet.pdf")
        await sheet.get_by_role("button", name="Download").click()
    download = await downloading.value
    assert download.suggested_filename == "sheet.pdf"
    await page.get_by_role("link", name="Artifacts").click()
    await page.get_by_role("button", name="numbers").click()
    await expect(page.locator(".tree-string", has_text="in the tree")).to_be_visible()


async def test_a_page_of_an_agent_runs_nothing_and_reaches_nobody(service: Service, page: Page) -> None:
    """It is shown with its styles, in a frame of another origin, without scripts, pictures or links out."""
    reached: list[str] = []
    await publish(service, page, ("text/html", "site.html", PAGE_OF_AN_AGENT))
    page.on("response", lambda one: reached.append(one.url) if one.frame.parent_frame else None)
    await page.get_by_role("button", name="Hide").click()
    await page.get_by_role("button", name="Show").click()
    frame = page.frame_locator("iframe")

    await expect(frame.get_by_role("heading", name="A page")).to_have_css("color", "rgb(0, 128, 128)")
    for way in ("out", "picture", "turned"):
        await frame.get_by_text(way).click()
    await expect(frame.get_by_role("heading", name="A page")).to_be_visible()
    assert await page.evaluate("window.harmed") is None
    assert await page.evaluate("document.querySelector('iframe').contentDocument") is None
    assert {url.rpartition("/")[2] for url in reached} == {"frame"}
    await page.get_by_role("button", name="Source").click()
    await expect(page.get_by_text("parent.harmed = 1; top.harmed = 1")).to_be_visible()


async def test_names_and_pictures_of_agents_are_harmless(service: Service, page: Page) -> None:
    """Names of files are text, also in downloads; scripts of an SVG do not run."""
    evil = '<img src=x onerror="window.harmed=1">.svg'
    picture = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="top.harmed=1">'
        "<script>top.harmed=1</script><rect width='9' height='9'/></svg>"
    )
    await publish(service, page, ("image/svg+xml", evil, picture))

    await expect(page.get_by_role("img", name=evil)).to_be_visible()
    assert await page.get_by_role("img", name=evil).evaluate("image => image.naturalWidth") == 9
    assert await page.locator("img[src=x]").count() == 0
    assert await page.evaluate("window.harmed") is None

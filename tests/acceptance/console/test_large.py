"""Large tasks in a browser: content out of sight costs nothing."""

import re

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.console.conftest import say
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.scripted_openai import ReceivedRequest, Reply

pytestmark = pytest.mark.slow

CALLS = 50
ITERATIONS = 100
"""Two events for each call: with those of the model some 10,000."""

LONGEST = 1000
"""Limit of a frame on a busy machine, in milliseconds; an idle one takes a tenth."""

_LONGEST_FRAME = """() => new Promise(resolve => {
  const scroller = document.querySelector('.turns');
  let longest = 0, last = performance.now(), left = 60;
  const step = now => {
    longest = Math.max(longest, now - last);
    last = now;
    scroller.scrollTop += scroller.scrollHeight / 60;
    left-- ? requestAnimationFrame(step) : resolve(longest);
  };
  requestAnimationFrame(step);
})"""


def _many_calls(request: ReceivedRequest) -> Reply:
    if len(request.tool_results) >= CALLS * ITERATIONS:
        return Reply(["All is counted."])
    return Reply([call("many_lines", {"lines": 2}, index) for index in range(CALLS)])


@pytest.mark.timeout(600)
async def test_ten_thousand_events_are_smooth(service: Service, page: Page) -> None:
    """All are listed, some are drawn, and a scroll through all of them never stops for long."""
    service.script(_many_calls)
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Call a lot")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed", timeout=500_000)
    await page.get_by_role("link", name="Details").click()
    await page.get_by_role("button", name="events").click()

    row = page.locator(".event-list [role=listitem]").first
    await expect(row).to_be_visible()
    await expect(row).to_have_attribute("aria-setsize", re.compile(r"^1\d{4}$"), timeout=120_000)
    assert await page.locator(".event-list [role=listitem]").count() < 200
    longest = await page.evaluate(_LONGEST_FRAME)
    assert longest < LONGEST, f"a frame took {longest} ms"
    await page.get_by_role("button", name="timeline").click()
    await expect(page.locator(".timeline rect").first).to_be_visible()
    assert await page.locator(".timeline rect").count() < 200
    await page.get_by_role("button", name="conversation").click()
    await expect(page.locator(".answer")).to_have_text("All is counted.")


async def test_an_answer_of_five_megabytes_is_smooth(service: Service, page: Page) -> None:
    """It streams, is rendered to its end, and is not converted to HTML at once."""
    paragraph = (
        "## Part\n\nSome **bold** words, `code`, and [a link](https://example.org).\n\n- one\n- two\n\n" * 10
    )
    pieces = [paragraph * 60 for _ in range(100)]
    assert sum(map(len, pieces)) > 5_000_000
    service.script([Reply([*pieces, "## The end"])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")

    await say(page, "Write a lot")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed", timeout=120_000)
    await expect(page.get_by_role("heading", name="The end")).to_be_visible(timeout=60_000)

    assert await page.locator(".markdown *").count() < 60_000
    longest = await page.evaluate(_LONGEST_FRAME)
    assert longest < LONGEST, f"a frame took {longest} ms"

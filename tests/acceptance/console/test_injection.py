"""Foreign content in the console: it is text everywhere, and never runs."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.console.agents import EVIL
from tests.acceptance.console.conftest import say
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.scripted_openai import Reasoning, Reply, tool_call

pytestmark = pytest.mark.slow

LINKS = """
[script](javascript:window.harmed=1) [data](data:text/html,<script>window.harmed=1</script>)
[file](file:///etc/passwd) ![spy](https://example.org/pixel.png) [fine](https://example.org/page)

<a href="https://example.org" onclick="window.harmed=1" style="position:fixed;inset:0">over all</a>
<iframe src="https://example.org"></iframe><form action="/"><button>send</button></form>
"""


async def is_unharmed(page: Page) -> bool:
    """True if nothing ran, and no foreign element is on the page."""
    found = await page.locator("main script, main img[src=x], main iframe, main form[action]").count()
    return found == 0 and await page.evaluate("window.harmed") is None


async def test_names_of_tools_and_their_arguments_are_text(service: Service, page: Page) -> None:
    """Also invented ones of the model: in the card, the events, the timeline and the usage."""
    service.script([Reply([tool_call(EVIL, f'{{"a": "{"x" * 9}"}}')]), Reply(["There is none."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")

    await say(page, EVIL)
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    await page.locator(".call-head").first.click()
    await page.get_by_role("link", name="Details").click()
    for tab in ("timeline", "events", "artifacts", "usage", "conversation"):
        await page.locator(".tabs").get_by_role("button", name=tab).click()
        await expect(page.locator(".turns")).to_be_visible()
        assert await is_unharmed(page)
    await page.get_by_role("link", name="Tasks", exact=True).click()
    await expect(page.get_by_role("link", name=EVIL)).to_be_visible()
    assert await is_unharmed(page)


async def test_what_a_model_writes_leads_nowhere_but_apart(service: Service, page: Page) -> None:
    """Links to the web open in a tab without access to this one; other links are not active."""
    service.script([Reply([Reasoning(EVIL), LINKS])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")

    await say(page, "Write links")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")

    link = page.get_by_role("link", name="fine")
    assert await link.get_attribute("target") == "_blank"
    assert "noopener" in str(await link.get_attribute("rel"))
    assert await page.locator(".answer a[href]").count() == 1
    assert await is_unharmed(page)


async def test_an_agents_card_is_text(service: Service, page: Page) -> None:
    """Its name and description, in all lists and choices."""
    await page.get_by_role("link", name="Agents").click()

    await expect(page.get_by_role("heading", name=EVIL)).to_be_visible()
    assert await page.locator('a[href^="javascript"]').count() == 0
    await page.goto(f"{service.gateway.url}/console/chat/evil")
    await expect(page.get_by_role("heading", name=EVIL)).to_be_visible()
    assert await is_unharmed(page)


async def test_names_of_files_that_are_sent_are_text(service: Service, page: Page) -> None:
    """In the composer, and in the conversation; the file comes back byte for byte."""
    service.script([Reply(["Read."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    content = "<script>window.harmed=1</script>"

    await page.locator("input[type=file]").set_input_files(
        [{"name": f"{EVIL}.txt", "mimeType": "text/plain", "buffer": content.encode()}]
    )
    await expect(page.locator(".files li")).to_contain_text(EVIL)
    await say(page, "Read it")
    await expect(page.locator(".answer")).to_have_text("Read.")
    await page.reload()
    await page.get_by_role("button", name="Show").click()

    await expect(page.get_by_text(content, exact=True)).to_be_visible()
    assert await is_unharmed(page)


async def test_all_of_a_call_is_seen_before_it_is_approved(service: Service, page: Page) -> None:
    """At any length, with characters that are invisible or reorder the rest; a half-typed message stays."""
    to = "alice\u202ebob\u200b" + " " * 500 + "\n" * 50 + "and all others" + "x" * 3000
    goes_on = asyncio.Event()
    service.script([Reply(["One moment. ", goes_on, call("send_report", {"to": to})]), Reply(["Not sent."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Send it")
    await expect(page.get_by_text("One moment.")).to_be_visible()
    await page.get_by_role("textbox", name="Add to what it works on").fill("yes")
    goes_on.set()

    question = page.get_by_role("region", name="The task asks")
    await expect(question.get_by_text("Approve the call")).to_be_in_viewport()
    await expect(question).to_contain_text(r"alice\u202ebob\u200b")
    for words in (r"\n\nand all others", "x" * 3000):
        await expect(question).to_contain_text(words)
    call_shown = question.locator(".exact")
    assert await call_shown.evaluate(
        "e => [e.scrollHeight - e.clientHeight, e.scrollWidth - e.clientWidth]"
    ) == [0, 0]
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="It asks something")).to_have_value("yes")
    await question.get_by_role("button", name="Reject").click()
    await expect(page.locator(".answer")).to_have_text("Not sent.")
    assert "rejected by the user" in service.model.requests[-1].tool_results[-1]

"""The console in a browser, on a gateway and a worker of their own: what people see and do."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, expect

from everloop.gateway.console.build import WEB, build
from tests.acceptance.console.browser import running_browser
from tests.support.rigs.deployment import Service, running_service
from tests.support.rigs.people import PEOPLE_AGENT, call
from tests.support.servers.scripted_openai import Reply

PATIENCE = 30_000
"""Milliseconds until the page shows what is expected, on a busy machine."""

EVIL = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    await asyncio.to_thread(build)
    async with running_service(tmp_path_factory.mktemp("console"), PEOPLE_AGENT) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Browser]:
    async with running_browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def page(service: Service, browser: Browser) -> AsyncGenerator[Page]:
    """A new tab; what breaks the content security policy, or raises, fails the test."""
    context = await browser.new_context()
    tab = await context.new_page()
    tab.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    problems: list[str] = []

    def note(said: ConsoleMessage) -> None:
        if "Content Security Policy" in said.text:
            problems.append(said.text)

    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", note)
    await tab.goto(f"{service.gateway.url}/console")
    yield tab
    await context.close()
    assert problems == []


async def say(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Write a message").fill(text)
    await page.keyboard.press("Enter")


async def test_an_answer_streams_behind_the_calls_that_led_to_it(
    service: Service, page: Page, tmp_path: Path
) -> None:
    """The call is a card with arguments and result; the text is there before it is whole."""
    goes_on, ledger = asyncio.Event(), str(tmp_path / "ledger")
    payment = call("pay", {"amount": 1, "to": "Ada", "ledger": ledger})
    service.script([Reply([payment]), Reply(["It is ", goes_on, "**paid**."])])

    await say(page, "Pay Ada")
    await expect(page.locator(".answer")).to_have_text("It is")
    goes_on.set()
    await expect(page.locator(".answer strong")).to_have_text("paid")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    await page.locator(".call-head").click()

    await expect(page.locator(".call-name")).to_have_text("pay")
    await expect(page.locator(".call-body")).to_contain_text('"to": "Ada"')
    await expect(page.locator(".call-body")).to_contain_text("paid 1 to Ada")


async def test_a_call_waits_for_an_approval(service: Service, page: Page, tmp_path: Path) -> None:
    """The exact call is shown; it runs once somebody has said yes, and the reload shows how it went."""
    ledger = tmp_path / "ledger"
    service.script([Reply([call("wipe", {"disk": "C", "ledger": str(ledger)})]), Reply(["Wiped."])])

    await say(page, "Wipe C")
    await expect(page.get_by_role("region", name="The task asks")).to_contain_text('"disk": "C"')
    assert not ledger.exists()
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator(".answer")).to_have_text("Wiped.")
    await page.reload()

    await expect(page.locator(".answer")).to_have_text("Wiped.")
    assert [json.loads(line) for line in ledger.read_text().splitlines()] == ["C"]


async def test_a_killed_gateway_costs_nothing(service: Service, page: Page) -> None:
    """The page says that the connection is lost, and goes on from the last event; nothing comes twice."""
    goes_on = asyncio.Event()
    service.script([Reply(["one ", goes_on, "two"])])

    await say(page, "Count")
    await expect(page.locator(".answer")).to_have_text("one")
    service.gateway.process.kill()
    await expect(page.get_by_role("alert")).to_be_visible()
    goes_on.set()
    service.gateway.process.start()

    await expect(page.locator(".answer")).to_have_text("one two")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    assert await page.locator(".message.user").count() == 1


async def test_what_models_and_tools_say_is_never_run(service: Service, page: Page) -> None:
    """HTML is text, links of scripts are none, and no image is fetched."""
    service.script(
        [
            Reply([call("pay", {"amount": EVIL})]),
            Reply([f"{EVIL}\n\n[click](javascript:alert(1)) ![spy](https://example.org/x.png)\n\n`{EVIL}`"]),
        ]
    )

    await say(page, EVIL)
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    await page.locator(".call-head").first.click()

    assert await page.evaluate("window.harmed") is None
    assert await page.locator("main img, main script").count() == 0
    assert await page.locator('main a[href^="javascript"]').count() == 0


async def test_tasks_are_listed_and_found(service: Service, page: Page) -> None:
    """By their first words; the filters stand in the address, so that a link shows the same."""
    service.script([Reply(["Yes."])])
    await say(page, "Is the sky over Oslo blue?")
    await expect(page.locator(".answer")).to_have_text("Yes.")

    await page.get_by_role("link", name="Tasks").click()
    await page.get_by_role("searchbox").fill("oslo")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.goto(page.url)
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("link", name="Is the sky over Oslo blue?").click()
    await page.get_by_role("button", name="timeline").click()

    await expect(page.locator(".timeline rect").first).to_be_visible()


async def test_what_waits_is_in_the_inbox(service: Service, page: Page, tmp_path: Path) -> None:
    """Of all agents and tasks, with a count beside its name; it is answered there."""
    ledger = tmp_path / "ledger"
    service.script([Reply([call("wipe", {"disk": "D", "ledger": str(ledger)})]), Reply(["Wiped."])])
    await say(page, "Wipe D")
    await expect(page.get_by_role("region", name="The task asks")).to_be_visible()

    await page.get_by_role("link", name="Inbox").click()
    await expect(page.locator(".side .count")).to_have_text("1")
    await page.get_by_role("textbox", name="Note").fill("as agreed")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    await page.get_by_role("link", name="Tasks").click()
    await page.get_by_role("link", name="Wipe D").click()

    await expect(page.locator(".answer")).to_have_text("Wiped.")
    assert [json.loads(line) for line in ledger.read_text().splitlines()] == ["D"]


async def test_a_schedule_is_made_and_run(service: Service, page: Page) -> None:
    """The list says when it runs next, and what came of the last time."""
    service.script([Reply(["Good morning."])])

    await page.get_by_role("link", name="Schedules").click()
    await page.get_by_role("button", name="New schedule").click()
    await page.get_by_role("textbox", name="Message").fill("Greet")
    await page.get_by_label("When").select_option("every")
    await page.get_by_role("textbox", name="Interval").fill("12h")
    await page.get_by_role("textbox", name="Name").fill("greeting")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="Run now").click()
    await expect(page.locator("tbody .badge")).to_have_text("completed")
    await page.locator("tbody .badge").click()

    await expect(page.locator(".answer")).to_have_text("Good morning.")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_screen_readers_find_their_way(
    service: Service, page: Page, theme: Literal["light", "dark"]
) -> None:
    """On each page axe finds nothing that is serious, such as low contrast and fields without names."""
    await page.emulate_media(color_scheme=theme)
    service.script(
        [Reply([call("pay", {"amount": 1, "to": "Ada", "ledger": "x"})]), Reply(["# Paid\n\n`ok`"])]
    )
    await say(page, "Pay")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    axe = (WEB / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for name in ("", "Details", "Tasks", "Inbox", "Schedules", "Agents"):
        if name:
            await page.get_by_role("link", name=name, exact=True).click()
        await expect(page.get_by_role("heading").first).to_be_attached()
        await page.evaluate(axe)
        result = await page.evaluate("axe.run()")
        found[name] = [
            f"{each['id']}: {each['nodes'][0]['html']}"
            for each in result["violations"]
            if each["impact"] in {"serious", "critical"}
        ]

    assert found == {key: [] for key in found}

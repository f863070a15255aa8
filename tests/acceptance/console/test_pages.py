"""The pages of the console beside its chat: what stands there, and what can be done."""

import json
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from everloop.gateway.console.build import WEB
from tests.acceptance.console.conftest import say
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.scripted_openai import Reply

pytestmark = pytest.mark.slow


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

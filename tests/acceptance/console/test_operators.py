"""Pages and actions of operators in a browser: health, stuck tasks, and remedies."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from everloop.gateway.console.build import WEB
from tests.acceptance.console.conftest import say
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.processes import run_everloop
from tests.support.servers.scripted_openai import Refusal, Reply

pytestmark = pytest.mark.slow


async def test_the_system_page_says_who_works_on_what(service: Service, page: Page) -> None:
    """Health, queues, workers and versions; axe finds no serious problem."""
    await page.get_by_role("link", name="System").click()

    await expect(page.get_by_role("list", name="Health")).to_contain_text("temporal")
    await expect(page.get_by_role("region", name="Queues").get_by_role("row")).not_to_have_count(1)
    await expect(page.get_by_role("region", name="Workers").get_by_role("row")).to_have_count(2)
    await expect(page.get_by_text("temporal server")).to_be_visible()
    for name in ("System", "Operator"):
        await page.get_by_role("link", name=name).click()
        await page.evaluate((WEB / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
        found = (await page.evaluate("axe.run()"))["violations"]
        assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []


async def test_a_task_that_failed_is_reset(service: Service, page: Page) -> None:
    """The list has the reason; the button resets it, and the events name the action.

    The failed run is still counted, as a run.
    """
    service.script([Refusal(401, message="the key is wrong")])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Fail for want of a key")
    await expect(page.locator(".task-foot .badge")).to_have_text("failed")
    service.script([Reply(["Now it works."])])

    await page.get_by_role("link", name="Operator").click()
    await expect(page.get_by_role("link", name="Fail for want of a key")).to_be_visible()
    stuck = page.get_by_role("region", name="The task is stuck")
    await stuck.get_by_role("button", name="Reset").click()
    await page.get_by_role("dialog").get_by_role("button", name="Reset").click()
    await expect(page.get_by_text("the task goes on from before the failure")).to_be_visible()
    await page.get_by_role("link", name="Tasks").click()
    await page.get_by_role("link", name="Fail for want of a key").click()

    await expect(page.locator(".answer")).to_have_text("Now it works.")
    await page.locator(".tabs").get_by_role("button", name="events").click()
    await expect(page.locator(".event-list")).to_contain_text("reset by")
    await page.get_by_role("link", name="System").click()
    await expect(page.get_by_role("list", name="Runs of tasks")).to_contain_text("failed")


async def test_a_call_is_skipped(service: Service, page: Page, tmp_path: Path) -> None:
    """At its card, also after a reload, with a note for the model; the events name the operator."""
    gate = str(tmp_path / "never")
    hanging = call("count_lines", {"path": "c.md", "ledger": "", "gate": gate})
    service.script([Reply([hanging]), Reply(["It was skipped."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Count for ever")
    await expect(page.locator(".progress")).to_be_visible()
    await page.get_by_role("link", name="Details").click()
    await page.reload()  # after the reload the page has not seen the call begin
    await page.locator(".call-head").click()

    await page.get_by_role("button", name="Skip this call").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Skip")).to_be_disabled()
    await dialog.get_by_role("textbox").fill("there is no such file")
    await dialog.get_by_role("button", name="Skip").click()
    await expect(page.get_by_text(re.compile("^skip_call ends r00001c01"))).to_be_visible()

    await expect(page.locator(".answer")).to_have_text("It was skipped.")
    assert "there is no such file" in str(service.model.requests[-1].messages)
    await page.locator(".tabs").get_by_role("button", name="events").click()
    await expect(page.locator(".event-list")).to_contain_text("operator")


async def test_a_paused_task_goes_on(service: Service, page: Page, tmp_path: Path) -> None:
    """The page shows who paused it and why; Resume continues it, and the events name that."""
    gate = tmp_path / "gate"
    hanging = call("count_lines", {"path": "c.md", "ledger": "", "gate": str(gate)})
    service.script([Reply([hanging]), Reply(["It has 120."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Count the paused lines")
    await expect(page.locator(".progress")).to_be_visible()
    await page.get_by_role("link", name="Details").click()
    await expect(page.locator(".tabs")).to_be_visible()
    details = page.url
    pause = ("temporal", "workflow", "pause", "-w", details.rpartition("/")[2], "--reason", "a look")
    code, said = await run_everloop(service.everloop.environment, *pause)
    assert code == 0, said
    gate.touch()

    await page.get_by_role("link", name="Operator").click()
    await page.get_by_role("link", name="Count the paused lines").click()
    stuck = page.get_by_role("region", name="The task is stuck")
    await expect(stuck).to_contain_text("(a look)")
    await stuck.get_by_role("button", name="Resume").click()
    await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("the paused task goes on")).to_be_visible()
    await page.goto(details)

    await expect(page.locator(".answer")).to_have_text("It has 120.")

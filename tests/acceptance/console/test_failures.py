"""The console when things break: workers, gateways, networks, and two tabs at once."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.console.conftest import OpenTab, say
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import Reply

pytestmark = pytest.mark.slow


async def test_a_killed_worker_costs_nothing(service: Service, page: Page, tmp_path: Path) -> None:
    """The call runs again on the next worker; the page shows one call, one answer, and no error."""
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    counting = call("count_lines", {"path": "a.md", "ledger": str(ledger), "gate": str(gate)})
    service.script([Reply([counting]), Reply(["120 lines."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")

    await say(page, "Count")
    await expect(page.locator(".progress")).to_have_text("reading a.md")
    await until(ledger.exists)
    await service.replace_worker()
    gate.touch()

    await expect(page.locator(".answer")).to_have_text("120 lines.", timeout=60_000)
    assert await page.locator(".call").count() == 1
    assert await page.locator(".message.user").count() == 1


async def test_gateway_and_worker_are_killed_again_and_again(
    service: Service, page: Page, tmp_path: Path
) -> None:
    """Also while it waits for people: the question stays, and is answered once."""
    gate = tmp_path / "gate"
    counting = call("count_lines", {"path": "b.md", "ledger": "", "gate": str(gate)})
    sending = call("send_report", {"to": "Ada"})
    goes_on = asyncio.Event()
    service.script([Reply([counting]), Reply([sending]), Reply(["It is ", goes_on, "sent."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")

    await say(page, "Count and send")
    await expect(page.locator(".progress")).to_be_visible()
    await _restart_gateway(service, page)
    gate.touch()
    await expect(page.get_by_role("region", name="The task asks")).to_be_visible()
    await service.replace_worker()
    await _restart_gateway(service, page)
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator(".answer")).to_have_text("It is")
    await _restart_gateway(service, page)
    goes_on.set()

    await expect(page.locator(".answer")).to_have_text("It is sent.")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    assert await page.locator(".call-name").all_inner_texts() == ["count_lines", "send_report"]
    assert await page.locator(".message.user").first.inner_text() == "Count and send"


async def _restart_gateway(service: Service, page: Page) -> None:
    service.gateway.process.kill()
    await expect(page.get_by_role("alert").first).to_be_visible()
    service.gateway.process.start()
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_two_tabs_see_the_same(service: Service, open_tab: OpenTab, page: Page) -> None:
    """An answer in one tab appears in the other; an answer in both counts once."""
    service.script([Reply([call("send_report", {"to": "Bea"})]), Reply(["Sent to Bea."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Send it to Bea")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    other = await open_tab()
    await other.goto(page.url)
    await expect(other.get_by_role("button", name="Approve")).to_be_visible()

    await page.get_by_role("button", name="Approve").click()

    for tab in (page, other):
        await expect(tab.locator(".answer")).to_have_text("Sent to Bea.")
        await expect(tab.get_by_role("button", name="Approve")).to_have_count(0)
    assert len(service.model.requests) == 2


async def test_a_slow_network_delays_and_breaks_nothing(service: Service, page: Page) -> None:
    """With a round trip of half a second and a few KB a second, all of an answer comes, in order."""
    words = [f"word{number} " for number in range(200)]
    service.script([Reply(words)])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    session = await page.context.new_cdp_session(page)
    await session.send("Network.enable")
    slow = {"offline": False, "latency": 500, "downloadThroughput": 20_000, "uploadThroughput": 10_000}
    await session.send("Network.emulateNetworkConditions", slow)

    await say(page, "Count slowly")

    await expect(page.locator(".answer")).to_have_text("".join(words).strip(), timeout=90_000)
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")


async def test_a_gateway_that_is_away_is_said_and_waited_for(service: Service, page: Page) -> None:
    """Lists show the error, and come back by themselves."""
    await page.get_by_role("link", name="Tasks").click()
    await expect(page.get_by_role("heading", name="Tasks")).to_be_visible()
    service.gateway.process.kill()
    await expect(page.get_by_role("alert").first).to_contain_text("cannot be reached")
    service.gateway.process.start()

    await expect(page.get_by_role("alert")).to_have_count(0)

"""The console in a browser, in short: it talks, asks, and survives the end of a gateway."""

import asyncio
import gzip
import json
from pathlib import Path

import httpx
from playwright.async_api import Page, expect

from everloop.gateway.console.build import DIST
from tests.acceptance.console.conftest import say
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.scripted_openai import Reply

EVIL = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'


async def test_an_answer_streams_behind_the_calls_that_led_to_it(
    service: Service, page: Page, tmp_path: Path
) -> None:
    """The call is a card with arguments and result; the text appears before it is complete."""
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
    """The exact call is shown; it runs once after a yes, and a reload shows its result."""
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


async def test_a_double_click_decides_one_question(service: Service, page: Page, tmp_path: Path) -> None:
    """The next one moves up under the pointer: the second click does not answer it."""
    ledger = tmp_path / "ledger"
    wipes = [call("wipe", {"disk": disk, "ledger": str(ledger)}, n) for n, disk in enumerate("EF")]
    service.script([Reply(wipes), Reply(["Wiped."])])
    await say(page, "Wipe both")
    await expect(page.get_by_role("button", name="Approve")).to_have_count(2)
    await page.get_by_role("link", name="Inbox").click()
    await page.get_by_role("button", name="Approve").first.click(trial=True)
    await page.get_by_role("button", name="Approve").first.dblclick()

    await expect(page.get_by_role("button", name="Approve")).to_have_count(1)
    await page.get_by_role("button", name="Reject").click()
    await expect(page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    assert len(ledger.read_text().splitlines()) == 1


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
    """HTML is text, script links are not links, and no image is fetched."""
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


async def test_all_of_it_is_small(service: Service) -> None:
    """Scripts and styles have at most 250 KB together, compressed; those of few pages are loaded later."""
    files = [file for file in (DIST / "assets").iterdir() if file.suffix in {".js", ".css"}]
    async with httpx.AsyncClient(base_url=service.gateway.url) as client:
        served = [(await client.get(f"/console/assets/{file.name}")).content for file in files]

    assert files
    assert sum(len(gzip.compress(each)) for each in served) <= 250_000

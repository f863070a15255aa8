"""Conversations and artifacts in a browser: read, renamed, and deleted for good."""

import json
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.console.conftest import say
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.scripted_openai import Reply

pytestmark = pytest.mark.slow

DELETION = 120_000
"""Timeout of a deletion on a busy machine, in milliseconds: Temporal deletes with a delay."""


async def begin(service: Service, page: Page, words: str) -> None:
    """Script the agent to write an artifact in a new context, and open that."""
    artifact = {"kind": "text/markdown", "name": f"{words} notes", "content": f"# {words} in notes"}
    service.script([Reply([call("publish", artifact)]), Reply(["Noted."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, words)
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    await page.get_by_role("link", name="Contexts").click()
    await page.get_by_role("link", name=words).click()
    await expect(page.get_by_role("heading", name=words)).to_be_visible()


async def test_a_context_tells_all_that_was_said(service: Service, page: Page) -> None:
    """With its calls, its tasks and its artifacts; it is exported as one file."""
    await begin(service, page, "Walnut")

    await expect(page.locator(".call")).to_contain_text("publish")
    await expect(page.get_by_text("Noted.")).to_be_visible()
    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Export").click()
    whole = json.loads(Path(await (await downloading.value).path()).read_text(encoding="utf-8"))
    assert [each["role"] for each in whole["messages"]] == ["user", "assistant", "tool", "assistant"]
    await page.locator(".tabs").get_by_role("button", name="tasks").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.locator(".tabs").get_by_role("button", name="artifacts").click()
    await page.get_by_role("button", name="Walnut notes").click()
    await expect(page.get_by_role("heading", name="Walnut in notes")).to_be_visible()


async def test_a_context_is_renamed_and_kept_for_as_long_as_is_said(service: Service, page: Page) -> None:
    """An invalid retention is refused with a clear error."""
    await begin(service, page, "Hazel")
    await page.get_by_role("button", name="Change").click()
    await page.get_by_role("textbox", name="Title").fill("Hazel, renamed")
    await page.get_by_role("textbox", name="Kept").fill("some days")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("no length of time")

    await page.get_by_role("textbox", name="Kept").fill("30d")
    await page.get_by_role("button", name="Save").click()

    await expect(page.get_by_role("heading", name="Hazel, renamed")).to_be_visible()
    await page.reload()
    await expect(page.locator(".facts")).to_contain_text("kept for 30d")


async def test_artifacts_tasks_and_contexts_are_deleted(service: Service, page: Page) -> None:
    """After a confirmation; the page reports the end of the deletion."""
    await begin(service, page, "Poplar")
    await page.get_by_role("link", name="Artifacts").click()
    row = page.locator(".artifact", has_text="Poplar notes")
    await row.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("The artifact is deleted")).to_be_visible()
    await expect(row).to_have_count(0)

    await page.get_by_role("link", name="Tasks").click()
    await page.get_by_role("link", name="Poplar").click()
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("The task is deleted")).to_be_visible(timeout=DELETION)
    await expect(page.get_by_role("heading", name="Tasks", exact=True)).to_be_visible()
    await expect(page.get_by_role("link", name="Poplar")).to_have_count(0)

    await begin(service, page, "Willow")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("The context is deleted")).to_be_visible(timeout=DELETION)
    await expect(page.get_by_role("link", name="Willow")).to_have_count(0)

"""Access to the console: every caller that the gateway authenticates; no page if it is switched off."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from everloop.gateway.auth.api_keys import add_key, new_key
from everloop.gateway.auth.jwt import LEEWAY
from everloop.gateway.auth.scopes import READ, WRITE
from tests.acceptance.console.conftest import OpenTab, say
from tests.support.rigs.deployment import Service
from tests.support.seeded_secrets import seed_secret
from tests.support.servers.scripted_openai import Reply
from tests.support.servers.tokens import AUDIENCE, ISSUER, SigningKey

pytestmark = pytest.mark.slow


async def log_in(page: Page, secret: str) -> None:
    await page.get_by_label("API key or token").fill(secret)
    await page.get_by_role("button", name="Continue").click()


async def test_a_key_or_a_token_logs_in(service: Service, open_tab: OpenTab, tmp_path: Path) -> None:
    """For this tab alone, without cookies; each user sees the owner's tasks, and none after the logout."""
    key, kept = new_key("ada", (READ, WRITE), None)
    add_key(tmp_path / "keys", kept)
    signing = SigningKey()
    gateway = await service.everloop.add_gateway(
        EVERLOOP_AUTH="api-key,jwt",
        EVERLOOP_API_KEYS_FILE=str(tmp_path / "keys"),
        EVERLOOP_JWT_PUBLIC_KEY_FILE=str(signing.write(tmp_path / "public.pem")),
        EVERLOOP_JWT_ISSUER=ISSUER,
        EVERLOOP_JWT_AUDIENCE=AUDIENCE,
    )
    service.script([Reply(["Hello, Ada."])])
    ada, bea = await open_tab(), await open_tab()

    await ada.goto(f"{gateway.url}/console")
    await log_in(ada, "ek_wrong")
    await expect(ada.get_by_role("alert")).to_be_visible()
    await expect(ada.get_by_label("API key or token")).to_be_focused()
    await log_in(ada, seed_secret(key))
    await ada.goto(f"{gateway.url}/console/chat/studio")
    await say(ada, "It is me")
    await expect(ada.locator(".answer")).to_have_text("Hello, Ada.")
    await ada.get_by_role("link", name="Tasks").click()
    await expect(ada.get_by_role("link", name="It is me")).to_be_visible()
    assert await ada.context.cookies() == []
    assert await ada.get_by_role("link", name="Operator").count() == 0

    await bea.goto(f"{gateway.url}/console/tasks")
    await expect(bea.get_by_label("API key or token")).to_be_visible()
    await log_in(bea, seed_secret(signing.token(sub="bea", scope="tasks:read tasks:write")))
    await expect(bea.get_by_role("heading", name="No tasks yet")).to_be_visible()
    await ada.get_by_role("button", name="Log out").click()
    await expect(ada.get_by_label("API key or token")).to_be_visible()


async def test_a_login_that_ends_is_said_and_lost_is_nothing(
    service: Service, page: Page, tmp_path: Path
) -> None:
    """The page shows the gateway's reason; after the next login the task is there, and has gone on."""
    signing, goes_on = SigningKey(), asyncio.Event()
    gateway = await service.everloop.add_gateway(
        EVERLOOP_AUTH="jwt",
        EVERLOOP_JWT_PUBLIC_KEY_FILE=str(signing.write(tmp_path / "public.pem")),
        EVERLOOP_JWT_ISSUER=ISSUER,
        EVERLOOP_JWT_AUDIENCE=AUDIENCE,
    )
    service.script([Reply(["one ", goes_on, "two"])])
    scope, soon = "tasks:read tasks:write", int(time.time()) - LEEWAY + 15
    await page.goto(f"{gateway.url}/console/chat/studio")

    await log_in(page, seed_secret(signing.token(scope=scope, exp=soon)))
    await say(page, "Count")
    await expect(page.locator(".answer")).to_have_text("one")
    await expect(page.get_by_role("alert")).to_contain_text("the token has expired")
    goes_on.set()
    await log_in(page, seed_secret(signing.token(scope=scope)))

    await expect(page.locator(".answer")).to_have_text("one two")
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_it_can_be_switched_off(service: Service) -> None:
    """The page then does not exist; all other addresses do."""
    gateway = await service.everloop.add_gateway(EVERLOOP_CONSOLE="false")

    async with httpx.AsyncClient(base_url=gateway.url) as client:
        found = [(await client.get(path)).status_code for path in ("/console", "/console/frame", "/agents")]

    assert found == [404, 404, 200]

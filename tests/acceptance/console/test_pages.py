"""The pages of the console beside its chat: their content and their actions."""

import asyncio
import json
import re
from pathlib import Path
from typing import Literal
from uuid import uuid4
from xml.etree import ElementTree as ET

import httpx
import pytest
from playwright.async_api import Page, Route, expect

from everloop.gateway.console.build import WEB
from tests.acceptance.console.agents import EXAMPLE
from tests.acceptance.console.conftest import say
from tests.acceptance.console.picture import draw
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import call
from tests.support.servers.scripted_openai import Reply

pytestmark = pytest.mark.slow

PAGES = ("Tasks", "Inbox", "Contexts", "Artifacts", "Schedules", "Agents")


async def test_tasks_are_listed_and_found(service: Service, page: Page) -> None:
    """By their first words; the filters are in the address, so that a link shows the same list."""
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


async def test_older_tasks_are_found_too(service: Service, page: Page) -> None:
    """A request searches for tasks beyond the newest ones."""
    service.script(lambda _: Reply(["Yes."]))
    await say(page, "The needle")
    await expect(page.locator(".answer")).to_have_text("Yes.")
    async with httpx.AsyncClient(base_url=service.at("desk"), headers={"A2A-Version": "1.0"}) as client:
        for number in range(50):
            message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": f"Hay {number}"}]}
            assert (await client.post("/message:send", json={"message": message})).is_success

    await page.goto(f"{service.gateway.url}/console/tasks?q=needle")
    await expect(page.get_by_role("heading", name="No such tasks")).to_be_visible()
    await page.get_by_role("button", name="Search older ones").click()

    await expect(page.get_by_role("link", name="The needle")).to_be_visible()


async def test_what_waits_is_in_the_inbox(service: Service, page: Page, tmp_path: Path) -> None:
    """Of all agents and tasks, with a count beside its name; it is answered there."""
    ledger = tmp_path / "ledger"
    service.script([Reply([call("wipe", {"disk": "D", "ledger": str(ledger)})]), Reply(["Wiped."])])
    await say(page, "Wipe D")
    await expect(page.get_by_role("region", name="The task asks")).to_be_visible()

    await page.get_by_role("link", name="Inbox").click()
    await expect(page.locator(".side .count")).to_have_text("1")
    await expect(page).to_have_title("(1) Inbox · Everloop")
    await expect(page.get_by_role("link", name="Harness: Wipe D")).to_be_visible()
    await page.get_by_role("textbox", name="Note").fill("as agreed")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    await page.get_by_role("link", name="Tasks").click()
    await page.get_by_role("link", name="Wipe D").click()

    await expect(page.locator(".answer")).to_have_text("Wiped.")
    assert [json.loads(line) for line in ledger.read_text().splitlines()] == ["D"]


async def test_a_form_has_fields_and_json_for_what_fields_cannot_hold(service: Service, page: Page) -> None:
    """Expected values are beside the JSON; invalid JSON or data are reported before anything is lost."""
    service.script([Reply([call("plan_trip", {})]), Reply(["Booked."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Plan a trip")
    await page.get_by_label("Name").fill("North")
    await page.get_by_text("What fits").click()
    await expect(page.locator(".what-fits")).to_contain_text("nights")
    await page.get_by_label("Stops").fill('[{"city": "Oslo"')
    await page.get_by_role("button", name="Answer").click()
    assert "not JSON" in str(await page.get_by_label("Stops").evaluate("field => field.validationMessage"))
    await page.get_by_label("Stops").fill('[{"city": "Oslo", "nights": 0}]')
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_role("alert")).to_contain_text("$.stops[0].nights")
    await page.get_by_label("Stops").fill('[{"city": "Oslo", "nights": 2}]')
    await page.get_by_role("button", name="Answer").click()

    await expect(page.locator(".answer")).to_have_text("Booked.")
    trip = {"name": "North", "stops": [{"city": "Oslo", "nights": 2}]}
    assert service.model.requests[-1].tool_results == [json.dumps(trip)]


async def test_a_schedule_is_made_and_run(service: Service, page: Page) -> None:
    """The list has the next run, and the result of the last one."""
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


async def test_a_task_shows_what_it_may_do_and_is_exported(service: Service, page: Page) -> None:
    """The version and the limits of its agent; the export has the A2A task, events and usage."""
    service.script([Reply(["Yes."], usage=(100, 20))])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Is it exported?")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    await page.get_by_role("link", name="Details").click()

    await expect(page.locator(".facts")).to_contain_text("at most 2000 iterations")
    await expect(page.locator(".facts")).to_contain_text("version")
    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Export").click()
    whole = json.loads(Path(await (await downloading.value).path()).read_text(encoding="utf-8"))
    assert whole["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert whole["events"][0]["type"] == "taskCreated"
    assert whole["usage"]["total"]["inputTokens"] == 100


async def test_an_example_is_a_message(service: Service, page: Page) -> None:
    """An empty chat shows the examples of its agent's skills; a chosen one can be edited and sent."""
    service.script([Reply(["It has 120."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await page.get_by_role("button", name=EXAMPLE).click()
    await expect(page.get_by_role("textbox", name="Write a message")).to_have_value(EXAMPLE)
    await page.keyboard.press("Enter")

    await expect(page.locator(".answer")).to_have_text("It has 120.")
    assert EXAMPLE in str(service.model.requests[-1].messages)


async def test_the_last_message_is_edited(service: Service, page: Page) -> None:
    """The new message continues from before the old one: the model does not read the replaced message."""
    service.script([Reply(["One."]), Reply(["Wrong."]), Reply(["Right."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "First")
    await expect(page.locator(".answer")).to_have_text("One.")
    await say(page, "Wrnog")
    await expect(page.locator(".answer").last).to_have_text("Wrong.")
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_role("textbox", name="Rewrite the last message").fill("Wrong, mended")
    await page.keyboard.press("Enter")

    await expect(page.locator(".answer").last).to_have_text("Right.")
    assert await page.locator(".task").count() == 2
    said = str(service.model.requests[-1].messages)
    assert "First" in said
    assert "mended" in said
    assert "Wrnog" not in said


async def test_files_are_dropped_anywhere_and_pasted(service: Service, page: Page) -> None:
    """They are sent with the message; an edited message keeps them, except removed ones."""
    service.script([Reply(["Read."]), Reply(["Read again."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    assert await page.evaluate(_GIVE, [".turns", "drop", "one.txt"])
    assert await page.evaluate(_GIVE, [".composer textarea", "paste", "two.txt"])
    await expect(page.locator(".files li")).to_contain_text(["one.txt", "two.txt"])

    await say(page, "Read them")
    await expect(page.locator(".answer")).to_have_text("Read.")
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_role("button", name="Remove two.txt").click()
    await page.get_by_role("textbox", name="Rewrite the last message").fill("Read it")
    await page.keyboard.press("Enter")

    await expect(page.locator(".answer")).to_have_text("Read again.")
    await expect(page.locator(".message.user .file-name")).to_have_text("one.txt")
    assert "in one.txt" in str(service.model.requests[-1].messages)


_GIVE = """([place, kind, name]) => {
  const given = new DataTransfer();
  given.items.add(new File([`in ${name}`], name, { type: "text/plain" }));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent(kind, { ...options, clipboardData: given })
    : new DragEvent(kind, { ...options, dataTransfer: given });
  return !document.querySelector(place).dispatchEvent(event);
}"""
"""Returns true if the browser's default action, such as opening the file, was prevented."""


async def test_a_fork_begins_where_the_timeline_says(service: Service, page: Page) -> None:
    """At a call of the model: earlier steps stay, with their results, and another message goes on."""
    counting = call("many_lines", {"lines": 1})
    service.script([Reply([counting]), Reply(["It has one."]), Reply(["Forked."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Count once")
    await expect(page.locator(".answer")).to_have_text("It has one.")
    await page.get_by_role("link", name="Details").click()
    await page.locator(".tabs").get_by_role("button", name="timeline").click()
    await page.locator(".timeline-row").first.hover()
    await page.get_by_role("button", name="Fork here").first.click()
    await page.get_by_role("dialog").get_by_role("textbox", name="Message").fill("And once more")
    await page.get_by_role("dialog").get_by_role("button", name="Fork").click()

    await expect(page.locator(".answer")).to_have_text("Forked.")
    await expect(page.get_by_role("link", name="fork", exact=True)).to_be_visible()
    assert "It has one." not in str(service.model.requests[-1].messages)


async def test_what_a_sub_agent_did_stands_within_its_call(service: Service, page: Page) -> None:
    """During the call, and after a reload."""
    looking = call("count_lines", {"path": "d.md", "ledger": "", "gate": ""})
    asking = call("writer", {"request": "How long is it?"})
    service.script([Reply([asking]), Reply([looking]), Reply(["It has 120."]), Reply(["120 lines."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Ask the writer")
    await expect(page.locator(".answer")).to_have_text("120 lines.")
    await expect(page.locator(".inner .call-name")).to_have_text("count_lines")
    await expect(page.locator(".call-name")).to_have_text(["writer", "count_lines"])

    await page.reload()
    await page.locator(".call-head").first.click()
    await page.get_by_role("button", name="What Writer did").click()

    await expect(page.locator(".inner .call-name")).to_have_text("count_lines")
    await expect(page.locator(".inner")).to_contain_text("It has 120.")


async def test_a_sub_agent_that_works_is_found_by_who_comes_later(
    service: Service, page: Page, tmp_path: Path
) -> None:
    """Its earlier steps are within the call, and later ones follow."""
    gate = tmp_path / "gate"
    looking = call("count_lines", {"path": "e.md", "ledger": "", "gate": str(gate)})
    asking = call("writer", {"request": "How long is e.md?"})
    service.script([Reply([asking]), Reply([looking]), Reply(["It has 120."]), Reply(["120 lines."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Ask the writer slowly")
    await expect(page.locator(".progress")).to_have_text("reading e.md")

    await page.reload()
    await expect(page.locator(".inner .call-name")).to_have_text("count_lines")
    gate.touch()

    await expect(page.locator(".answer")).to_have_text("120 lines.")
    await expect(page.locator(".call-name")).to_have_text(["writer", "count_lines"])
    await expect(page.locator(".inner")).to_contain_text("It has 120.")


async def test_events_are_searched(service: Service, page: Page) -> None:
    """By type and words."""
    service.script([Reply([call("many_lines", {"lines": 1})]), Reply(["Done."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Search me")
    await expect(page.locator(".answer")).to_have_text("Done.")
    await page.get_by_role("link", name="Details").click()
    await page.locator(".tabs").get_by_role("button", name="events").click()
    await page.get_by_role("searchbox").fill("toolCall many")

    await expect(page.locator(".event")).to_have_count(1)


async def test_a_page_is_drawn_as_a_small_picture(service: Service, page: Page) -> None:
    """The picture of README is of this kind: well-formed, with the words of the page, and without scripts."""
    service.script([Reply(["Draw <this> & that."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "Be drawn")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")

    drawn = await draw(page, "A chat")

    assert ET.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 -- our own
    assert "Be drawn" in drawn
    assert "Draw &lt;this&gt; &amp; that." in drawn
    assert "<script" not in drawn
    assert len(drawn) < 60_000


async def test_everything_is_reached_by_keys(service: Service, page: Page) -> None:
    """`?` lists the keys; g and a letter open a page, / searches, j and Enter open an entry."""
    service.script([Reply(["Yes."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await say(page, "By keys")
    await expect(page.locator(".answer")).to_have_text("Yes.")
    await page.locator("main").focus()

    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.type("gt")
    await expect(page.get_by_role("heading", name="Tasks")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("By keys")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.keyboard.press("Tab")
    await page.evaluate("document.activeElement.blur()")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="By keys")).to_be_visible()
    await expect(page).to_have_title(re.compile("By keys · Tasks · Everloop$"))
    await page.keyboard.type("gx")
    await expect(page.get_by_role("link", name="Contexts")).to_have_attribute("aria-current", "page")


@pytest.mark.parametrize("width", [390, 768])
async def test_no_page_is_wider_than_its_window(service: Service, page: Page, width: int) -> None:
    """On a phone and a tablet; all pages and global actions are within reach."""
    await page.set_viewport_size({"width": width, "height": 800})
    wide: dict[str, int] = {}
    for name in (*PAGES, "Operator", "System"):
        await page.get_by_role("link", name=name, exact=True).click()
        await expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
        await expect(page.locator(".side [aria-current]")).to_be_in_viewport(ratio=1)
        wide[name] = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    await page.get_by_role("button", name="Shortcuts").click()

    await expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    assert wide == dict.fromkeys(wide, 0)


async def test_nothing_jumps_while_text_streams(service: Service, page: Page) -> None:
    """The browser reports no visible layout shift."""
    service.script([Reply([f"Line {number}, and some words.\n\n" for number in range(60)])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    await page.evaluate(_WATCH_SHIFTS)

    await say(page, "Write lines")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")

    assert await page.evaluate("window.shifted") < 0.1


_WATCH_SHIFTS = """() => {
  window.shifted = 0;
  new PerformanceObserver(list => {
    for (const entry of list.getEntries()) window.shifted += entry.value;
  }).observe({ type: "layout-shift", buffered: false });
}"""


async def test_the_first_paint_is_quick(service: Service, page: Page) -> None:
    """Within a second on this machine, from an empty cache."""
    await page.goto(f"{service.gateway.url}/console")
    await expect(page.get_by_role("heading").first).to_be_attached()

    painted = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")

    assert painted < 1000


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_screen_readers_find_their_way(
    service: Service, page: Page, tmp_path: Path, theme: Literal["light", "dark"]
) -> None:
    """On each page axe finds no serious problem, such as low contrast and fields without names."""
    await page.emulate_media(color_scheme=theme)
    service.script(
        [
            Reply([call("pay", {"amount": 1, "to": "Ada", "ledger": str(tmp_path / "ledger")})]),
            Reply(["# Paid\n\n`ok`"]),
        ]
    )
    await say(page, "Pay")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")
    axe = (WEB / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for name in ("", "Details", *PAGES):
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


async def test_text_runs_as_its_script_does(service: Service, page: Page) -> None:
    """Each block from right to left if its first letter does; a list and a quote as one block; code never."""
    text = "# שבת\n\nLeft\n\n> שבת\n\n- שבת\n\n  one\n\n```\nשבת\n```"
    service.script([Reply([text])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")

    await say(page, "שבת")
    await expect(page.locator(".task-foot .badge")).to_have_text("completed")

    ways = "each => each.map(one => `${one.localName} ${getComputedStyle(one).direction}`)"
    assert await page.locator(".said, .answer .block > *").evaluate_all(ways) == [
        *("div rtl", "h1 rtl", "p ltr", "blockquote rtl", "ul rtl", "pre ltr")
    ]


async def test_a_chat_shows_its_newest_turns_alone(service: Service, page: Page) -> None:
    """A link loads the earlier ones; a chat that was left disappears while the next one loads."""
    service.script([Reply(["One."]), Reply(["Two."])])
    await page.goto(f"{service.gateway.url}/console/chat/studio")
    for words, answer in (("First chat", "One."), ("Second chat", "Two.")):
        await page.get_by_role("link", name="New chat").click()
        await say(page, words)
        await expect(page.locator(".answer")).to_have_text(answer)
    is_read = asyncio.Event()

    async def read_slowly(route: Route) -> None:
        if "ListTasks" not in (route.request.post_data or ""):
            return await route.continue_()
        await is_read.wait()
        response = await route.fetch()
        listed = await response.json()
        listed["result"]["nextPageToken"] = "older"
        return await route.fulfill(response=response, json=listed)

    await page.route("**/agents/studio**", read_slowly)
    await page.go_back()
    await expect(page.locator(".answer")).to_have_count(0)
    await expect(page.get_by_role("link", name="Earlier messages")).to_have_count(0)
    is_read.set()
    await expect(page.locator(".answer")).to_have_text("One.")
    await page.get_by_role("link", name="Earlier messages").click()

    await expect(page.get_by_role("heading", name="First chat")).to_be_visible()

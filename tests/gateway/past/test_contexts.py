"""Contexts over HTTP: their readers, their conversations, and their changes."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from everloop.agents.agent import Agent
from everloop.gateway.auth.access import AccessControl
from everloop.stores.log.log_store import TaskViews
from tests.gateway.harness import key_scheme, running_gateway, unique
from tests.gateway.past.conftest import AGENT, PastSite, calling, saying
from tests.stores.examples import said, submitted

BASE = "/everloop/v1"


async def test_all_that_was_said_is_told_page_by_page(past: PastSite) -> None:
    """Of all tasks in order: messages, replies with their calls, results, each with its time and its task."""
    context = unique("context / é")
    past.model.say(calling("look"), saying("First."), saying("Second."))
    tasks = [(await past.send(text, contextId=context))["id"] for text in ("One?", "Two?")]
    address = f"{BASE}/contexts/{httpx.QueryParams({'x': context})}".replace("x=", "").replace("+", "%20")
    messages, token = list[dict[str, object]](), ""
    while True:
        query = {"pageSize": 2, "pageToken": token}
        page = (await past.gateway.http.get(f"{address}/messages", params=query)).json()
        messages += page["messages"]
        assert len(page["messages"]) == 2
        if not (token := page["nextPageToken"]):
            break
    shown = (await past.gateway.http.get(address)).json()["context"]

    assert [(each["taskId"], each["role"]) for each in messages] == [
        (tasks[0], "user"),
        (tasks[0], "assistant"),
        (tasks[0], "tool"),
        (tasks[0], "assistant"),
        (tasks[1], "user"),
        (tasks[1], "assistant"),
    ]
    assert [each["at"] for each in messages] == sorted(str(each["at"]) for each in messages)
    assert {each["agent"] for each in messages} == {AGENT.id}
    assert (messages[3]["text"], messages[1]["toolCalls"], messages[2]["name"]) == (
        "First.",
        [{"id": messages[2]["callId"], "name": "look", "arguments": '{"of": "look"}'}],
        "look",
    )
    assert (shown["id"], shown["title"], shown["tasks"], shown["agents"]) == (context, "One?", 2, [AGENT.id])
    assert shown["usage"] == {"inputTokens": 500, "outputTokens": 50, "cost": 1.25}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"retention": "1w"}, "retention is no length of time: send 12h or 30d"),
        ({"retention": "36501d"}, "retention is no length of time"),
        ({"title": " "}, "title is empty"),
        ({"title": "x" * 201}, "title has 201 characters; it may have 200"),
        ({"name": "x"}, "name does not fit"),
    ],
)
async def test_wrong_changes_are_refused_in_words(past: PastSite, body: dict[str, str], words: str) -> None:
    """The error names the field and the expected form."""
    view = submitted(owner="anonymous", agent_id=AGENT.id)
    await past.views.create(view)
    answered = await past.gateway.http.patch(f"{BASE}/contexts/{view.context_id}", json=body)

    assert (answered.status_code, words in answered.json()["error"]["message"]) == (400, True), answered.text


async def test_a_title_and_a_retention_can_be_changed_and_taken_back(past: PastSite) -> None:
    """Fields that are not named stay."""
    view = submitted(owner="anonymous", agent_id=AGENT.id)
    await past.views.create(view)
    address = f"{BASE}/contexts/{view.context_id}"
    bodies = [{"title": "New"}, {"retention": "48h"}, {"retention": None}]
    contexts = [(await past.gateway.http.patch(address, json=body)).json()["context"] for body in bodies]

    assert [(each["title"], each["retention"]) for each in contexts] == [
        ("New", None),
        ("New", "2d"),
        ("New", None),
    ]


KEYS = {
    "ann": ("ann", ["tasks:read", "tasks:write"]),
    "bob": ("bob", ["tasks:read", "tasks:write"]),
    "reader": ("ann", ["tasks:read"]),
    "bound": ("ann", ["tasks:read", "tasks:write", "agents:past"]),
    "elsewhere": ("ann", ["tasks:read", "tasks:write", "agents:other"]),
    "law": ("law", ["tasks:read", "tasks:write", "admin"]),
}


class Callers:
    """A gateway with authenticated callers, and two contexts of ann: one with another agent's task, too."""

    def __init__(self, http: httpx.AsyncClient, headers: dict[str, dict[str, str]], names: list[str]) -> None:
        self._http = http
        self._headers = headers
        self.mine, self.shared = names

    async def status(self, who: str, method: str, path: str, body: object = None) -> int:
        answered = await self._http.request(method, BASE + path, headers=self._headers[who], json=body)
        return answered.status_code


@pytest_asyncio.fixture(loop_scope="session")
async def callers(past: PastSite, views: TaskViews, tmp_path: Path) -> AsyncGenerator[Callers]:
    authenticator, headers = key_scheme(tmp_path / "keys", KEYS)
    other = Agent(id="other", name="Other", description="Another.", model="scripted/one")
    names = [unique("mine"), unique("shared")]
    for name, agent in ((names[0], "past"), (names[1], "past"), (names[1], "other")):
        view = submitted(owner="ann", agent_id=agent, context_id=name)
        await views.create(view.model_copy(update={"history": (said("m", "Hi"),)}))
    async with running_gateway(
        past.client,
        views,
        queue=unique("callers"),
        agents=(AGENT, other),
        access=AccessControl(authenticator),
    ) as gateway:
        yield Callers(gateway.http, {name: dict(each) for name, each in headers.items()}, names)


async def test_contexts_are_their_owners(callers: Callers) -> None:
    """Other owners do not find them; scopes of agents limit both the view and the deletion."""
    mine, shared = f"/contexts/{callers.mine}", f"/contexts/{callers.shared}"
    asked = {
        ("ann", "GET", mine): 200,
        ("bob", "GET", mine): 404,
        ("bob", "GET", f"{mine}/messages"): 404,
        ("bob", "DELETE", mine): 404,
        ("bob", "PATCH", mine): 404,
        ("bob", "DELETE", f"/artifacts/{callers.mine}/a"): 404,
        ("bob", "GET", f"/artifacts?contextId={callers.mine}"): 404,
        ("ann", "GET", "/deletions/none"): 404,
        ("reader", "DELETE", mine): 403,
        ("reader", "PATCH", mine): 403,
        ("bound", "GET", shared): 200,
        ("bound", "DELETE", shared): 403,
        ("bound", "DELETE", "/owner"): 403,
        ("elsewhere", "GET", mine): 404,
        ("elsewhere", "DELETE", mine): 404,
        ("law", "GET", f"{mine}?owner=ann"): 200,
        ("ann", "GET", f"{mine}?owner=bob"): 403,
        ("law", "PATCH", f"{mine}?owner=ann"): 400,
        ("ann", "POST", mine): 405,
    }

    assert {each: await callers.status(*each) for each in asked} == asked


async def test_who_may_not_delete_a_context_gives_it_no_end(callers: Callers) -> None:
    """The retention of a context deletes all of its tasks, also those of other agents."""
    shared = f"/contexts/{callers.shared}"
    bodies = [{"title": "New"}, {"retention": "1h"}, {"title": "New", "retention": None}]
    found = [await callers.status(who, "PATCH", shared, body) for who in ("bound", "ann") for body in bodies]

    assert found == [200, 403, 403, 200, 200, 200]

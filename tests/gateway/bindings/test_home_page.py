"""The page for browsers at the address of a gateway; other clients get JSON-RPC."""

import re
from html.parser import HTMLParser

import pytest
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.stores.log.log_store import TaskViews
from tests.gateway.harness import RunningGateway, running_gateway

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """The tags of a page, and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names = list[str]()
        self.links = list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]


async def test_a_browser_reads_what_this_is(client: Client, views: TaskViews) -> None:
    """It lists the agents with links to their cards; names of agents cannot inject a script."""
    agents = [
        Agent(id="writer", name="Writer", description="Writes & reads."),
        Agent(id="evil", name=EVIL, description=f'"{EVIL}'),
    ]
    async with running_gateway(client, views, queue="none", agents=agents) as gateway:
        page = await gateway.http.get("/", headers=BROWSER)
        head = await gateway.http.head("/", headers=BROWSER)
        tags = Tags(page.text)
        ours = [link for link in tags.links if link.startswith(gateway.url)]
        cards = [await gateway.http.get(link) for link in ours]
    assert (page.status_code, head.status_code, head.text) == (200, 200, "")
    assert head.headers["Content-Length"] == page.headers["Content-Length"]
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Vary"] == "Accept"
    assert re.match("default-src 'none'; style-src 'sha256-[^']+';", page.headers["Content-Security-Policy"])
    assert "Writes &amp; reads." in page.text
    assert not {"script", "img", "link", "iframe", "form"} & set(tags.names)
    assert {f"{gateway.url}.well-known/agent-card.json", f"{gateway.url}agents"} <= set(ours)
    assert f"{gateway.url}agents/evil/.well-known/agent-card.json" in ours
    assert {card.status_code for card in cards} == {200}


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/event-stream", ""])
async def test_programs_get_no_page(gateway: RunningGateway, accept: str) -> None:
    """The error says that JSON-RPC is at this address, by POST."""
    got = await gateway.http.get("/", headers={"Accept": accept})
    assert (got.status_code, got.headers["Allow"]) == (405, "POST")


async def test_json_rpc_is_where_it_was(gateway: RunningGateway) -> None:
    """JSON-RPC answers at this address, also for a client that accepts HTML."""
    answer = await gateway.call("GetTask", {"id": "none"}, **BROWSER)
    assert answer.json()["error"]["code"] == -32001

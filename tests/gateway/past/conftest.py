"""A gateway before the real workflow, with a model and tools that a test scripts."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest_asyncio
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.gateway.auth.access import AccessControl
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, Usage
from tests.gateway.harness import RunningGateway, running_gateway, unique, working
from tests.support.fakes.ports import CountingTools, Script, ScriptedModel

AGENT = Agent(id="past", name="Past", description="Says what its script says.", model="scripted/one")


class Replies(ScriptedModel):
    """The replies are written down as a test goes on."""

    def say(self, *replies: Script) -> None:
        self._script += replies


@dataclass(frozen=True)
class PastSite:
    """The gateway of a test, with its model and its tools."""

    gateway: RunningGateway
    model: Replies
    tools: CountingTools
    views: TaskViews
    client: Client

    async def send(self, text: str, **message: object) -> dict[str, Any]:
        """Send a message and wait for the end of its task, and of its workflow."""
        said = {"role": "ROLE_USER", "messageId": str(uuid4()), "parts": [{"text": text}], **message}
        answered = await self.gateway.call("SendMessage", {"message": said})
        task = answered.json()["result"]["task"]
        await self.client.get_workflow_handle(task["id"]).result()
        return task

    async def get(self, task_id: str, what: str, **query: str | int) -> dict[str, Any]:
        """Read something of a task's past."""
        answered = await self.gateway.http.get(f"/everloop/v1/tasks/{task_id}/{what}", params=dict(query))
        assert answered.status_code == 200, answered.text
        return answered.json()

    async def events(self, task_id: str, page_size: int = 100) -> list[dict[str, Any]]:
        """Read all events, page by page."""
        events, token = list[dict[str, Any]](), ""
        while True:
            page = await self.get(task_id, "events", pageSize=page_size, pageToken=token)
            events += page["events"]
            if not (token := page["nextPageToken"]):
                return events


def calling(*names: str, text: str = "") -> AssistantMessage:
    """A reply that asks for tools, at a price."""
    calls = tuple(
        ToolCall(id=f"{name}-{uuid4().hex[:4]}", name=name, arguments=f'{{"of": "{name}"}}') for name in names
    )
    used = Usage(input_tokens=100, output_tokens=10, cost=0.25)
    return AssistantMessage(
        text=text, tool_calls=calls, source="scripted/one", usage=used, finish_reason="tool_calls"
    )


def saying(text: str) -> AssistantMessage:
    """A reply that ends the task."""
    used = Usage(input_tokens=200, output_tokens=20, cost=0.5)
    return AssistantMessage(
        text=text, is_published=False, source="scripted/two", usage=used, finish_reason="stop"
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def past(client: Client, views: TaskViews) -> AsyncGenerator[PastSite]:
    queue, model, tools = unique("past"), Replies(), CountingTools()
    async with (
        working(client, views, queue, model, tools),
        running_gateway(client, views, queue=queue, agent=AGENT, access=AccessControl()) as gateway,
    ):
        yield PastSite(gateway, model, tools, views, client)

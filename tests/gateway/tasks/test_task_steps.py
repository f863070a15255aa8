"""GetTask shows the steps of a task to clients of the events extension."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.context import Caller
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.log.log_store import TaskViews
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from everloop.workflows.contract.messages import (
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.names import context_key, result_artifact
from everloop.workflows.contract.tasks import TaskView
from tests.gateway.harness import AGENT, Named, PromptModel, RunningGateway, a_view, running_gateway, unique
from tests.support.a2a_client import connected, request, send
from tests.support.stores import redis_of

EXTENDED = {"A2A-Extensions": EVENTS_EXTENSION}
CALL = ToolCall(id="c1", name="search", arguments='{"query": "x"}')


def said(message_id: str) -> UserMessage:
    return UserMessage(message_id=message_id, parts=(TextPart(text="Hi"),))


@pytest.fixture
def transcripts(views: TaskViews) -> Transcripts:
    return Transcripts(redis_of(views))


@pytest_asyncio.fixture(loop_scope="session")
async def served(
    client: Client, views: TaskViews, queue: str, model: PromptModel, transcripts: Transcripts
) -> AsyncGenerator[RunningGateway]:
    async with running_gateway(client, views, queue=queue, transcripts=transcripts) as gateway:
        yield gateway


async def ended(
    views: TaskViews, transcripts: Transcripts, messages: Sequence[TranscriptMessage]
) -> TaskView:
    """Return a task that has ended, with this transcript."""
    view = a_view(history=(said("mine"),))
    await views.restore(view)
    await transcripts.put(view.task_id, "run", 0, messages)
    return view


async def steps_of(gateway: RunningGateway, task_id: str) -> list[dict[str, Any]]:
    answer = (await gateway.call("GetTask", {"id": task_id}, **EXTENDED)).json()["result"]
    return answer["metadata"][EVENTS_EXTENSION]["steps"]


async def test_a_task_shows_its_steps_after_its_end(
    served: RunningGateway, views: TaskViews, transcripts: Transcripts
) -> None:
    """Replies, calls and results; neither steps of earlier tasks nor discarded replies."""
    usage = Usage(input_tokens=7, output_tokens=2, cost=0.5)
    asks = AssistantMessage(
        text="I look.",
        reasoning="Hm.",
        tool_calls=(CALL,),
        model="m",
        finish_reason="tool_calls",
        usage=usage,
    )
    found = ToolMessage(
        call_id="c1", name="search", content="ü" * 9_000, artifacts=("a",), raised_at="tools.py:3 search"
    )
    vetoed, last = AssistantMessage(text="no", refused="why"), AssistantMessage(text="Four.")
    told = [said("old"), AssistantMessage(text="long ago"), said("mine"), asks, found, vetoed, last]
    task = await ended(views, transcripts, told)
    first, second = await steps_of(served, task.task_id)
    (call,) = first.pop("calls")
    assert first == {
        "model": "m",
        "finish_reason": "tool_calls",
        "thought": "Hm.",
        "text": "I look.",
        "usage": Usage(input_tokens=7, output_tokens=2, cost=0.5).model_dump(),
    }
    assert call.pop("url").endswith("/c1")
    assert call == {
        "call_id": "c1",
        "name": "search",
        "arguments": '{"query": "x"}',
        "outcome": "ok",
        "result": "ü" * 8_000,
        "size": 18_000,
        "cut": True,
        "artifacts": ["a"],
        "raised_at": "tools.py:3 search",
    }
    assert (second["text"], second["calls"]) == ("Four.", [])


async def test_without_the_cache_the_workflow_tells(served: RunningGateway) -> None:
    """Also of a task that has ended: Redis was emptied."""
    async with connected(served.url, streaming=False) as a2a:
        task = await send(a2a, request(unique("steps")))
    (step,) = await steps_of(served, task.id)
    assert step["text"] == task.artifacts[0].parts[0].text


async def test_what_is_cut_can_be_read_whole(
    served: RunningGateway, views: TaskViews, transcripts: Transcripts
) -> None:
    """At the address in the step; a result of another owner's task, or of no call, is not found."""
    whole = "ü" * 9_000
    asks = AssistantMessage(text="I look.", tool_calls=(CALL,))
    told = [said("mine"), asks, ToolMessage(call_id="c1", name="search", content=whole)]
    mine = await ended(views, transcripts, told)
    other = mine.model_copy(update={"task_id": str(uuid4()), "owner": "another"})
    await views.restore(other)
    await transcripts.put(other.task_id, "run", 0, told)
    (step,) = await steps_of(served, mine.task_id)
    url: str = step["calls"][0]["url"]
    path = urlsplit(url).path
    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = await http.get(path)
        missing = [
            await http.get(each)
            for each in (path.replace("c1", "c2"), path.replace(mine.task_id, other.task_id), "/results/x/c1")
        ]
    assert (answer.status_code, answer.text) == (200, whole)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert [each.status_code for each in missing] == [404] * 3
    assert {each.json()["error"]["message"] for each in missing} == {
        "no result of call 'c1' here",
        "no result of call 'c2' here",
    }


async def test_what_the_model_read_the_beginning_of_can_be_read_whole(
    served: RunningGateway, views: TaskViews, transcripts: Transcripts
) -> None:
    """Also in part. Once it has expired the address returns nothing, rather than its beginning."""
    whole = "ü" * 2_000_000
    cut = ToolMessage(call_id="c1", name="search", content="üü\n[…]", whole=4_000_000, kept="r1-x")
    asks = AssistantMessage(text="I look.", tool_calls=(CALL,))
    task = await ended(views, transcripts, [said("mine"), asks, cut])
    address = context_key(task.owner, task.context_id), result_artifact(task.task_id, "r1-x")
    part = NewPart("file", whole.encode(), "text/plain; charset=utf-8", "search-c1.txt")
    await served.artifacts.apply(*address, Create(task.task_id, (part,), complete=True))
    (step,) = await steps_of(served, task.task_id)
    call: dict[str, Any] = step["calls"][0]
    path = urlsplit(str(call["url"])).path
    async with httpx.AsyncClient(base_url=served.url) as http:
        answer = await http.get(path)
        tail = await http.get(path, headers={"Range": "bytes=-4"})
        artifacts = await http.get(f"/artifacts/{task.context_id}")
        await served.artifacts.delete_artifact(*address)
        gone = await http.get(path)
    assert (call["size"], call["cut"]) == (4_000_000, True)
    assert (answer.status_code, answer.text) == (200, whole)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert 'filename="search-c1.txt"' in answer.headers["Content-Disposition"]
    assert (tail.status_code, tail.text) == (206, "üü")
    assert artifacts.json() == {"artifacts": []}
    assert (gone.status_code, gone.json()["error"]["message"]) == (404, "no result of call 'c1' here")


class BoundTo(Named):
    """Authenticates all callers as bound to one agent."""

    def __init__(self, agent_id: str) -> None:
        self._agent_id = agent_id

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        return Caller(scheme="apiKey", scopes=frozenset({"tasks:read", f"agents:{self._agent_id}"}))


@pytest.mark.parametrize(("agent_id", "status"), [(AGENT.id, 200), ("another", 404)])
async def test_a_result_is_for_callers_of_its_agent(
    client: Client, views: TaskViews, transcripts: Transcripts, agent_id: str, status: int
) -> None:
    """The same rule as for GetTask: scopes may name agents."""
    asks = AssistantMessage(text="I look.", tool_calls=(CALL,))
    told = [said("mine"), asks, ToolMessage(call_id="c1", name="search", content="x")]
    task = await ended(views, transcripts, told)
    access = AccessControl(BoundTo(agent_id))
    async with (
        running_gateway(client, views, queue="none", transcripts=transcripts, access=access) as gateway,
        httpx.AsyncClient(base_url=gateway.url) as http,
    ):
        answer = await http.get(f"/results/{task.task_id}/c1")
    assert answer.status_code == status

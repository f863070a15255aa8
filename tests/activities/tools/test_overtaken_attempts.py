"""Short calls, which hold no lease: the first attempt at one that goes on after the second writes nothing."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop import Agent, Plugin, sub_agent
from everloop.activities.conversation.memory import RememberedConversation
from everloop.activities.model.models import Models
from everloop.activities.tools.call import AgentTools
from everloop.activities.tools.catalogue import AgentCatalogue
from everloop.activities.transcripts import CachedTranscripts
from everloop.agents.hooks import HookContext
from everloop.agents.registry import AgentRegistry
from everloop.models.catalogue import Catalogue
from everloop.runtime.redis import connect_redis
from everloop.stores.conversations.store import Conversations
from everloop.stores.secrets import Secrets
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import (
    LoadAgentInput,
    LoadContextInput,
    PrepareTaskInput,
    StoreResultInput,
    StoreTranscriptInput,
)
from everloop.workflows.contract.messages import ToolCall, ToolMessage
from everloop.workflows.contract.tasks import TaskRef
from tests.stores.examples import new_id, said, submitted
from tests.support.memory.artifacts import MemoryArtifacts


class Broken(Plugin):
    """Lists nothing, and warns of it."""

    async def list_tools(self, context: HookContext) -> tuple[()]:
        return ()


@dataclass(frozen=True)
class Rig:
    """A task on Redis, and what works for it."""

    redis: Redis
    task: TaskRef
    agents: AgentCatalogue
    tools: AgentTools
    transcript: CachedTranscripts
    context: RememberedConversation

    async def kept(self) -> dict[str, object]:
        keys = cast("list[str]", await self.redis.keys(f"everloop:task:{{{self.task.task_id}}}:*"))
        return {key: await self.redis.dump(key) for key in keys if ":transcript:" in key or ":events" in key}


@pytest_asyncio.fixture
async def rig(redis_url: str) -> AsyncGenerator[Rig]:
    writer = Agent(id="writer", name="Writer", description="")
    agent = Agent(id="agent", name="Agent", description="", plugins=[sub_agent("writer"), Broken()])
    registry, task_id = AgentRegistry([agent, writer]), new_id()
    async with connect_redis(redis_url) as redis:
        views, transcripts, records = TaskViews(redis), Transcripts(redis), ToolRecords(redis)
        models = Models(Catalogue({}))
        await views.create(submitted(task_id))
        yield Rig(
            redis,
            TaskRef(task_id=task_id, run_id="run", context_id=new_id(), owner="o", agent_id="agent"),
            AgentCatalogue(registry, views, transcripts, records),
            AgentTools(
                registry,
                views,
                transcripts,
                records,
                Secrets(redis),
                MemoryArtifacts(views),
            ),
            CachedTranscripts(transcripts, records),
            RememberedConversation(Conversations(redis), transcripts, models, records),
        )


CALL = ToolCall(id="call", name="writer", arguments="{}")
RESULT = ToolMessage(call_id="call", name="writer", content="a poem")

CALLS: dict[str, Callable[[Rig], Awaitable[object]]] = {
    "load agent": lambda rig: rig.agents.load_agent(
        LoadAgentInput(task=rig.task, call=CALL, agent_id="writer", child="child")
    ),
    "prepare task": lambda rig: rig.agents.prepare_task(PrepareTaskInput(task=rig.task)),
    "store result": lambda rig: rig.tools.store_result(
        StoreResultInput(task=rig.task, position=1, result=RESULT)
    ),
    "store transcript": lambda rig: rig.transcript.store_transcript(
        StoreTranscriptInput(task=rig.task, start=0, messages=(said("m"),))
    ),
    "load context": lambda rig: rig.context.load_context(LoadContextInput(task=rig.task)),
}


async def _run(rig: Rig, name: str, number: int) -> None:
    async def call() -> None:
        await CALLS[name](rig)

    environment = ActivityEnvironment()
    begun = environment.info.scheduled_time + timedelta(seconds=number - 1)
    environment.info = replace(environment.info, attempt=number, current_attempt_scheduled_time=begun)
    await environment.run(call)


@pytest.mark.parametrize("name", CALLS)
async def test_a_first_attempt_writes_nothing_after_the_second(rig: Rig, name: str) -> None:
    """It was frozen; what the second one has written stays, and nothing is told again."""
    await _run(rig, name, 2)
    before = await rig.kept()
    with pytest.raises(ApplicationError) as overtaken:
        await _run(rig, name, 1)
    assert overtaken.value.type == failures.OVERTAKEN
    assert await rig.kept() == before

"""Short calls without a lease: a first attempt that resumes after the second writes nothing."""

from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
from redis.asyncio import Redis
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop import Agent, Plugin, sub_agent
from everloop.activities.cached_transcripts import CachedTranscripts
from everloop.activities.conversation.conversation_memory import RememberedConversation
from everloop.activities.model.models import Models
from everloop.activities.tools.agent_catalogue import AgentCatalogue
from everloop.activities.tools.tool_call import AgentTools
from everloop.agents.hooks import HookContext
from everloop.agents.registry import AgentRegistry
from everloop.models.catalogue import Catalogue
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.log.log_store import TaskViews
from everloop.stores.secrets import Secrets
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
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
from tests.support.stores import new_artifacts


class Broken(Plugin):
    """A plugin that lists no tools, and warns of it."""

    async def list_tools(self, context: HookContext) -> tuple[()]:
        return ()


CALL = ToolCall(id="call", name="writer", arguments="{}")
RESULT = ToolMessage(call_id="call", name="writer", content="a poem")


async def _call(redis: Redis, name: str, task: TaskRef) -> object:
    """Make a call of this name for a task on Redis."""
    writer = Agent(id="writer", name="Writer", description="")
    agent = Agent(id="agent", name="Agent", description="", plugins=[sub_agent("writer"), Broken()])
    agents, views, transcripts = AgentRegistry([agent, writer]), TaskViews(redis), Transcripts(redis)
    records = ToolRecords(redis)
    catalogue = AgentCatalogue(agents, views, transcripts, records)
    match name:
        case "load agent":
            asked = LoadAgentInput(task=task, call=CALL, agent_id="writer", child="child")
            return await catalogue.load_agent(asked)
        case "prepare task":
            return await catalogue.prepare_task(PrepareTaskInput(task=task))
        case "store result":
            stores = (views, transcripts, records, Secrets(redis), new_artifacts(views))
            result = StoreResultInput(task=task, position=1, result=RESULT)
            return await AgentTools(agents, *stores).store_result(result)
        case "store transcript":
            transcript = StoreTranscriptInput(task=task, start=0, messages=(said("m"),))
            return await CachedTranscripts(transcripts, records).store_transcript(transcript)
        case _:
            models, conversations = Models(Catalogue({})), Conversations(redis)
            context = RememberedConversation(conversations, transcripts, models, records)
            return await context.load_context(LoadContextInput(task=task))


async def _attempt(redis: Redis, name: str, task: TaskRef, number: int) -> None:
    environment = ActivityEnvironment()
    begun = environment.info.scheduled_time + timedelta(seconds=number - 1)
    environment.info = replace(environment.info, attempt=number, current_attempt_scheduled_time=begun)
    await environment.run(_call, redis, name, task)


async def _kept(redis: Redis, task: TaskRef) -> dict[str, object]:
    keys = cast("list[str]", await redis.keys(f"everloop:task:{{{task.task_id}}}:*"))
    return {key: await redis.dump(key) for key in keys if ":transcript:" in key or key.endswith(":log")}


@pytest.mark.parametrize(
    "name", ["load agent", "prepare task", "store result", "store transcript", "load context"]
)
async def test_a_first_attempt_writes_nothing_after_the_second(redis: Redis, name: str) -> None:
    """A first attempt that was suspended neither replaces the second one's writes nor publishes again."""
    task = TaskRef(task_id=new_id(), run_id="run", context_id=new_id(), owner="o", agent_id="agent")
    await TaskViews(redis).create(submitted(task.task_id))
    await _attempt(redis, name, task, 2)
    before = await _kept(redis, task)
    with pytest.raises(ApplicationError) as overtaken:
        await _attempt(redis, name, task, 1)
    assert overtaken.value.type == failures.OVERTAKEN
    assert await _kept(redis, task) == before

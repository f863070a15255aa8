"""Everything a model call needs besides its provider: an agent, stores, a transcript, an activity context."""

import dataclasses
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import uuid4

from openai import AsyncOpenAI
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.call import OpenAIModel
from everloop.activities.model.prices import Price, Prices
from everloop.activities.model.provider import ModelProvider
from everloop.agents.agent import Agent
from everloop.agents.plugins import prompt, tools
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import tool
from everloop.stores.artifacts.interface import Artifacts
from everloop.stores.transcripts import Transcripts
from everloop.stores.views.interface import START, TaskViews
from everloop.workflows.contract.calls import CallModelInput, CompactContextInput
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, StatusChanged, TaskEvent
from everloop.workflows.contract.messages import (
    AssistantMessage,
    Message,
    SummaryMessage,
    TextPart,
    UserMessage,
    text_of,
)
from everloop.workflows.contract.tasks import Artifact, TaskRef, TaskState, TaskStatus, TaskView
from tests.support.memory.artifacts import MemoryArtifacts
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.memory.transcripts import MemoryTranscripts
from tests.support.servers.scripted_openai import ScriptedOpenAI


@tool
def search(query: str) -> str:
    """Search the library."""
    return query


_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
AGENT = Agent(id="agent", name="Agent", description="", plugins=[prompt("Be brief."), tools(search)])
PRICE = Price(input=1000, output=100_000)
"""Of the model `priced-model`: a tenth of a cent and ten cents a token. No other model has a price."""
QUESTION = UserMessage(message_id="question", parts=(TextPart(text="Hi"),))


class ModelBench:
    """A task whose next step is a model call; the fold of what it publishes is at hand."""

    def __init__(
        self,
        client: AsyncOpenAI,
        views: TaskViews,
        transcripts: Transcripts,
        artifacts: Artifacts,
        agent: Agent = AGENT,
    ) -> None:
        self.task = TaskRef(
            task_id=str(uuid4()), run_id=str(uuid4()), context_id="c", owner="o", agent_id="agent"
        )
        self.views = views
        self.transcripts = transcripts
        self.artifacts = artifacts
        self.leases = MemoryToolRecords()
        provider = ModelProvider(client, "test-model", Prices({"priced-model": PRICE}))
        self.agent = agent
        self.port = self.port_to(provider)
        self.call = CallModelInput(
            task=self.task, iteration=1, model=None, length=1, new=(QUESTION,), version=1
        )
        self.position = START

    def port_to(self, provider: ModelProvider) -> OpenAIModel:
        """Return a port to a provider, on the stores of this bench."""
        agents = AgentRegistry([self.agent])
        return OpenAIModel(provider, agents, self.views, self.transcripts, self.artifacts, self.leases)

    async def run(
        self,
        call: CallModelInput | None = None,
        *,
        attempt: int = 1,
        failures: int = 0,
        environment: ActivityEnvironment | None = None,
    ) -> AssistantMessage:
        """Run one attempt of the call, after that many failures of the provider."""
        environment = _attempt(environment, attempt, failures)
        return await environment.run(self.port.call_model, call or self.call)

    async def compact(
        self,
        call: CompactContextInput,
        *,
        attempt: int = 1,
        failures: int = 0,
        environment: ActivityEnvironment | None = None,
    ) -> SummaryMessage:
        """Run one attempt to make room, after that many failures of the provider."""
        environment = _attempt(environment, attempt, failures)
        return await environment.run(self.port.compact_context, call)

    async def events(self) -> list[TaskEvent]:
        """Return everything that reached the stream."""
        return [e.event for e in await self.views.read({self.task.task_id: START}, wait=0, limit=10_000)]

    async def until(self, wanted: Callable[[TaskEvent], bool]) -> TaskEvent:
        """Wait for an event, after the one that was waited for last."""
        while True:
            for streamed in await self.views.read({self.task.task_id: self.position}, wait=1):
                self.position = streamed.position
                if wanted(streamed.event):
                    return streamed.event

    async def view(self) -> TaskView:
        """Return the folded view."""
        snapshot = await self.views.load(self.task.task_id)
        assert snapshot
        return snapshot.view

    async def response(self) -> Artifact | None:
        """Return the answer as a client sees it."""
        return next((a for a in (await self.view()).artifacts if a.artifact_id == RESPONSE_ARTIFACT), None)

    async def response_text(self) -> str:
        """Return the text of the answer, empty if there is none."""
        response = await self.response()
        return text_of(response.parts) if response else ""


@asynccontextmanager
async def model_bench(
    provider: ScriptedOpenAI,
    views: TaskViews | None = None,
    transcripts: Transcripts | None = None,
    artifacts: Artifacts | None = None,
    agent: Agent = AGENT,
) -> AsyncGenerator[ModelBench]:
    """Yield a bench on memory stores, unless others are given; its task is known and works."""
    async with AsyncOpenAI(api_key="sk-secret", base_url=provider.base_url, max_retries=0) as client:
        stores = (
            views or MemoryTaskViews(),
            transcripts or MemoryTranscripts(),
            artifacts or MemoryArtifacts(),
        )
        bench = ModelBench(client, *stores, agent)
        await bench.views.create(new_view(bench.task))
        yield bench


def _attempt(environment: ActivityEnvironment | None, attempt: int, failures: int) -> ActivityEnvironment:
    """Return the environment of an attempt, a new one unless it is given."""
    environment = environment or ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info, attempt=attempt, heartbeat_details=[{"failed": failures}] if failures else []
    )
    return environment


def follow_up(call: CallModelInput, reply: AssistantMessage) -> CallModelInput:
    """Return the call after a reply that did not ask for tools, when another message had come meanwhile."""
    assert not reply.tool_calls
    message = UserMessage(message_id="follow-up", parts=(TextPart(text="And?"),))
    return call.model_copy(update={"iteration": 2, "length": call.length + 2, "new": (message,)})


def working(version: int = 1) -> StatusChanged:
    """A status of the workflow."""
    return StatusChanged(version=version, state=TaskState.WORKING, at=_LONG_AGO)


def text(message: Message | None) -> str:
    """Return the text of a message that may be missing."""
    return text_of(message.parts) if message else ""


def new_view(task: TaskRef) -> TaskView:
    """Return the view that the gateway creates."""
    return TaskView(
        task_id=task.task_id,
        context_id=task.context_id,
        owner=task.owner,
        agent_id=task.agent_id,
        created_at=_LONG_AGO,
        status=TaskStatus(state=TaskState.SUBMITTED, at=_LONG_AGO),
    )

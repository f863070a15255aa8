"""All parts of a model call besides its provider: an agent, stores, a transcript, an activity context."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.clients import Clients
from everloop.activities.model.model_call import ModelCalls
from everloop.activities.model.models import Models
from everloop.agents.agent import Agent
from everloop.agents.hooks import HookContext, Veto
from everloop.agents.plugins import Plugin, prompt, tools
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import tool
from everloop.models.catalogue import Catalogue, ModelEntry, Provider
from everloop.models.file import Price
from everloop.models.interface import ModelRequest
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Reply as TranscriptReply
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.calls import CallModelInput, CompactContextInput
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk, StatusChanged, TaskEvent
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    TextPart,
    TranscriptMessage,
    UserMessage,
    text_of,
)
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import Artifact, TaskRef, TaskState, TaskStatus, TaskView
from tests.support.servers.scripted_openai import Script, ScriptedOpenAI
from tests.support.stores import database, new_artifacts


@tool
def search(query: str) -> str:
    """Search the library."""
    return query


Event = TypeVar("Event")

_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
AGENT = Agent(id="agent", name="Agent", description="", plugins=[prompt("Be brief."), tools(search)])
PRICE = Price(input=1000, output=100_000)
"""The price of `priced-model`: a tenth of a cent and ten cents a token. No other model has a price."""
QUESTION = UserMessage(message_id="question", parts=(TextPart(text="Hi"),))


class ModelRig:
    """A task whose next step is a model call, and its provider, with the fold of the published events."""

    def __init__(  # noqa: PLR0913 -- what a test may put in place
        self,
        provider: ScriptedOpenAI,
        models: Models,
        *,
        views: TaskViews,
        transcripts: Transcripts,
        artifacts: Artifacts,
        agent: Agent,
    ) -> None:
        self.task = TaskRef(
            task_id=str(uuid4()), run_id=str(uuid4()), context_id="c", owner="o", agent_id="agent"
        )
        self.place = (self.task.task_id, self.task.run_id)
        self.context = context_key("o", "c")
        self.provider, self.models, self.agent = provider, models, agent
        self.views, self.transcripts, self.artifacts = views, transcripts, artifacts
        self.leases = ToolRecords(database())
        self.port = self.port_to("test-model")
        self.call = CallModelInput(
            task=self.task, iteration=1, model=None, length=1, new=(QUESTION,), version=1
        )
        self.position = START

    def port_to(self, model: str | None, **settings: Any) -> ModelCalls:  # noqa: ANN401 -- of `Models`
        """Return a port on the stores of this rig with another model, or other settings."""
        catalogue = dataclasses.replace(self.models.catalogue, default_model=model)
        models = dataclasses.replace(self.models, catalogue=catalogue, **settings)
        agents = AgentRegistry([self.agent])
        return ModelCalls(models, agents, self.views, self.transcripts, self.artifacts, self.leases)

    def know(self, *providers: Provider) -> None:
        """Add providers."""
        known = {**self.models.catalogue.providers, **{each.name: each for each in providers}}
        catalogue = dataclasses.replace(self.models.catalogue, providers=known)
        self.models = dataclasses.replace(self.models, catalogue=catalogue)
        self.port = self.port_to(catalogue.default_model)

    def changed(self, **fields: object) -> CallModelInput:
        """Return the call with these fields changed."""
        return self.call.model_copy(update=fields)

    def follow_up(self, reply: AssistantMessage) -> CallModelInput:
        """Return the call after a reply without tool calls, when another message had come in the meantime."""
        assert not reply.tool_calls
        message = UserMessage(message_id="follow-up", parts=(TextPart(text="And?"),))
        return self.changed(iteration=2, length=self.call.length + 2, new=(message,))

    async def store(self, *messages: TranscriptMessage, start: int = 0) -> None:
        """Store messages in the cached transcript."""
        await self.transcripts.put(*self.place, start, messages)

    async def store_reply(self, reply: TranscriptReply, position: int = 1) -> None:
        """Store a reply as another attempt does."""
        await self.transcripts.put_reply(*self.place, position, reply)

    async def run(
        self,
        call: CallModelInput | None = None,
        *,
        attempt: int = 1,
        failures: int = 0,
        environment: ActivityEnvironment | None = None,
    ) -> AssistantMessage:
        """Run one attempt of the call, after this number of failures of the provider."""
        environment = _attempt(environment, attempt, failures)
        return await environment.run(self.port.call_model, call or self.call)

    async def fail(self, call: CallModelInput | None = None, **attempt: Any) -> ApplicationError:  # noqa: ANN401 -- as `run`
        """Run one attempt, which fails, and return the failure."""
        with pytest.raises(ApplicationError) as caught:
            await self.run(call, **attempt)
        return caught.value

    async def begin(self, environment: ActivityEnvironment | None = None) -> "asyncio.Task[AssistantMessage]":
        """Start an attempt; return when subscribers have the next piece of an artifact."""
        running = asyncio.create_task(self.run(environment=environment))
        await self.until(is_chunk)
        return running

    async def compact(
        self,
        call: CompactContextInput,
        *,
        attempt: int = 1,
        failures: int = 0,
        environment: ActivityEnvironment | None = None,
    ) -> SummaryMessage:
        """Run one attempt of a compaction, after this number of failures of the provider."""
        environment = _attempt(environment, attempt, failures)
        return await environment.run(self.port.compact_context, call)

    async def events(self) -> list[TaskEvent]:
        """Return all events of the stream."""
        return [e.event for e in await self.views.read({self.task.task_id: START}, wait=0, limit=10_000)]

    async def events_of(self, kind: type[Event]) -> list[Event]:
        """Return the events of this kind in the stream."""
        return [event for event in await self.events() if isinstance(event, kind)]

    async def until(self, wanted: Callable[[TaskEvent], bool]) -> TaskEvent:
        """Wait for an event after the last one waited for."""
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

    async def note(self) -> str:
        """Return the note of the status, or empty."""
        message = (await self.view()).status.message
        return text_of(message.parts) if message else ""

    async def artifact(self, artifact_id: str = "doc") -> Artifact | None:
        """Return an artifact as a client sees it."""
        return await self.views.artifact(self.task.task_id, artifact_id)

    async def text(self, artifact_id: str = "doc") -> str | None:
        """Return the text of an artifact."""
        artifact = await self.artifact(artifact_id)
        return text_of(artifact.parts) if artifact else None

    async def answer(self) -> tuple[str, bool] | None:
        """Return the text of the answer as a client sees it, and its completeness."""
        response = await self.artifact(RESPONSE_ARTIFACT)
        return (text_of(response.parts), response.complete) if response else None


def provider_at(server: ScriptedOpenAI, **terms: Any) -> Provider:  # noqa: ANN401 -- of a `Provider`
    """Return a provider with these terms; it is the one of models that name none."""
    known: dict[str, Any] = {"name": "openai", "key": "sk-secret", "key_variable": "TEST_KEY", **terms}
    known["models"] = {"priced-model": ModelEntry(price=PRICE), **known.get("models", {})}
    return Provider(base_url=server.base_url, **known)


@asynccontextmanager
async def opened_models(*providers: Provider, default: str | None = "test-model") -> AsyncGenerator[Models]:
    """Yield the models of these providers."""
    async with aclosing(Clients()) as clients:
        yield Models(Catalogue({each.name: each for each in providers}, default), clients)


@asynccontextmanager
async def model_rig(
    script: Script = (),
    views: TaskViews | None = None,
    transcripts: Transcripts | None = None,
    *,
    artifacts: Artifacts | None = None,
    agent: Agent = AGENT,
    **terms: Any,  # noqa: ANN401 -- of a `Provider`
) -> AsyncGenerator[ModelRig]:
    """Yield a rig on the database of the test, unless other stores are given; its task exists and works."""
    async with (
        ScriptedOpenAI(script) as provider,
        opened_models(provider_at(provider, **terms)) as models,
    ):
        rig = ModelRig(
            provider,
            models,
            views=views or TaskViews(database()),
            transcripts=transcripts or Transcripts(database()),
            artifacts=artifacts or new_artifacts(),
            agent=agent,
        )
        await rig.views.create(new_view(rig.task))
        yield rig


def is_chunk(event: TaskEvent) -> bool:
    """Return True if an event carries a piece of an artifact."""
    return isinstance(event, ArtifactChunk)


def _attempt(environment: ActivityEnvironment | None, attempt: int, failures: int) -> ActivityEnvironment:
    """Return the environment of an attempt, a new one by default."""
    environment = environment or ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info, attempt=attempt, heartbeat_details=[{"failed": failures}] if failures else []
    )
    return environment


def working(version: int = 1) -> StatusChanged:
    """Return a status of the workflow."""
    return StatusChanged(version=version, state=TaskState.WORKING, at=_LONG_AGO)


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


@dataclass(kw_only=True, eq=False)
class Before(Plugin):
    """A plugin that changes requests by a function, and records them."""

    make: Callable[[ModelRequest], ModelRequest | Veto | None]
    asked: list[tuple[HookContext, ModelRequest]] = field(
        default_factory=list[tuple[HookContext, ModelRequest]]
    )

    async def before_model_call(
        self, context: HookContext, request: ModelRequest
    ) -> ModelRequest | Veto | None:
        self.asked.append((context, request))
        return self.make(request)


@dataclass(kw_only=True, eq=False)
class After(Plugin):
    """A plugin that changes replies by a function, and records them."""

    make: Callable[[AssistantMessage], AssistantMessage | Veto | None]
    asked: list[AssistantMessage] = field(default_factory=list[AssistantMessage])

    async def after_model_call(
        self, context: HookContext, reply: AssistantMessage
    ) -> AssistantMessage | Veto | None:
        self.asked.append(reply)
        return self.make(reply)


class Listener(Plugin):
    """A plugin that records errors."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[int, str]] = []

    async def on_error(self, context: HookContext, error: str) -> None:
        self.heard.append((context.iteration, error))


def agent(*plugins: Plugin, **fields: object) -> Agent:
    return Agent(id="agent", name="Agent", description="", plugins=plugins, **fields)  # pyright: ignore[reportArgumentType] -- settings of a test


def in_capitals(reply: AssistantMessage) -> AssistantMessage:
    return reply.model_copy(update={"text": reply.text.upper()})

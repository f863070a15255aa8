"""Fixtures of gateway tests: real gateways, the real workflow with a scripted model, and a stand-in."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from uuid import uuid4

import httpx
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2 import SendMessageRequest, Task
from starlette.applications import Starlette
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from everloop.activities.lease import heartbeating
from everloop.activities.model.call_events import statuses_of
from everloop.activities.publish import ViewPublisher
from everloop.agents.agent import Agent
from everloop.agents.registry import AgentRegistry
from everloop.gateway.app import build_app
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.api_keys import ApiKeyScheme, add_key, new_key
from everloop.gateway.auth.schemes import Authenticator
from everloop.gateway.cards.signing import CardKey
from everloop.gateway.context import ANONYMOUS, Caller
from everloop.gateway.http.server import GatewayServer, listen
from everloop.gateway.operations.push import PushOperations
from everloop.gateway.settings import Attachments, GatewaySettings
from everloop.gateway.tasks.fanout import EventFanout
from everloop.gateway.tasks.task_workflows import submitted_view
from everloop.runtime.outbound.policy import WebhookPolicy
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfigs
from everloop.stores.secrets import Secrets
from everloop.stores.transcripts import Transcripts
from everloop.worker import WorkerPorts, WorkerSettings, running_workers
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CallModelInput, CompactContextInput, RunToolInput, ToolReply
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk, StatusChanged, TaskEvent
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    TextPart,
    UserMessage,
    content_digest,
    text_of,
)
from everloop.workflows.contract.ports import ModelPort, SchedulePort, ToolPort
from everloop.workflows.contract.questions import Question
from everloop.workflows.contract.tasks import (
    AgentSpec,
    TaskInput,
    TaskResult,
    TaskState,
    TaskStatus,
    TaskView,
)
from tests.support.fakes.ports import (
    TASK_WORK,
    CountingTools,
    FixedAgents,
    RecordingContext,
    RecordingTranscripts,
)
from tests.support.stores import new_artifacts, stores_of

AGENT = Agent(id="staged", name="Staged", description="Says what its script says.", model="scripted")

Step = str | TaskEvent | asyncio.Event | Callable[[], None]
"""A text is streamed, an event published, an `asyncio.Event` waited for, and a function called."""

REFUSED = "no answer at all"
"""Message texts that the stand-in workflow refuses."""


class PromptModel(ModelPort):
    """Plays the script that a test wrote for a prompt; without one it repeats the prompt."""

    def __init__(self, views: TaskViews) -> None:
        self._views = views
        self.scripts: dict[str, Sequence[Step]] = {}
        self.calls: list[CallModelInput] = []

    @activity.defn
    async def call_model(self, call: CallModelInput) -> AssistantMessage:
        async with heartbeating():
            return await self._play(call)

    @activity.defn
    async def compact_context(self, call: CompactContextInput) -> SummaryMessage:
        return SummaryMessage(end=call.end)

    async def _play(self, call: CallModelInput) -> AssistantMessage:
        self.calls.append(call)
        for status in statuses_of(call):
            await self._publish(call, status)
        prompt = " ".join(text_of(message.parts) for message in call.new)
        texts: list[str] = []
        for step in self.scripts.get(prompt, [prompt]):
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, str):
                await self._publish(call, _chunk(call, step, len(texts)))
                texts.append(step)
            elif callable(step):
                step()
            else:
                await self._publish(call, step)
        await self._publish(call, _chunk(call, "", len(texts), last=True))
        # As the real one does, for a draft that lost its beginning.
        await self._publish(call, _chunk(call, "".join(texts), 0, last=True, attempt=2))
        return AssistantMessage(text="".join(texts), finish_reason="stop")

    async def _publish(self, call: CallModelInput, event: TaskEvent) -> None:
        await self._views.publish(call.task.task_id, call.task.run_id, [event])


def _chunk(
    call: CallModelInput, text: str, index: int, *, last: bool = False, attempt: int = 1
) -> ArtifactChunk:
    return ArtifactChunk(
        artifact_id=RESPONSE_ARTIFACT,
        name=RESPONSE_ARTIFACT,
        position=call.length,
        attempt=attempt,
        index=index,
        part=TextPart(text=text),
        last_chunk=last,
    )


@workflow.defn(name="AgentTask", sandboxed=False)
class StandInTask:
    """A task without activities: the test publishes its events, and ends it by a signal.

    It waits for its user for any time, which the real one cannot do yet.
    """

    @workflow.init
    def __init__(self, task: TaskInput) -> None:
        self._task = task
        self._ended = False
        self._messages: list[UserMessage] = [task.message]

    @workflow.run
    async def run(self, task: TaskInput) -> TaskResult | None:
        await workflow.wait_condition(lambda: self._ended)
        return None

    @workflow.update
    def add_message(self, message: UserMessage) -> str:
        """Take a message in."""
        self._messages.append(message)
        return content_digest(message)

    @add_message.validator
    def validate_add_message(self, message: UserMessage) -> None:
        if text_of(message.parts) == REFUSED:
            raise ApplicationError("expected: an answer", type=failures.INVALID_ANSWER, non_retryable=True)

    @workflow.signal
    def end(self) -> None:
        """Close the workflow."""
        self._ended = True

    @workflow.query
    def messages(self) -> list[UserMessage]:
        """All messages that were taken in."""
        return self._messages

    @workflow.query
    def taken_in(self, message_id: str) -> str:
        """The digest of the message of this id."""
        return next((content_digest(m) for m in self._messages if m.message_id == message_id), "")

    @workflow.query
    def view(self) -> TaskView:
        """A view that is newer than the gateway's first one."""
        return told_view(self._task, TaskState.WORKING, self._messages)


def told_view(task: TaskInput, state: TaskState, messages: Sequence[UserMessage]) -> TaskView:
    """Return what a workflow tells of its task."""
    info = workflow.info()
    newer = {"run_id": info.run_id, "version": 1, "history": tuple(messages)}
    status = TaskStatus(state=state, at=task.created_at)
    return submitted_view(info.workflow_id, task).model_copy(update={**newer, "status": status})


class StoodIn:
    """A task of the stand-in workflow, played by the test."""

    def __init__(self, client: Client, views: TaskViews, task: Task) -> None:
        self.id = task.id
        self._views = views
        self._handle = client.get_workflow_handle_for(StandInTask.run, task.id)
        self._version = 0

    async def publish(
        self,
        state: TaskState,
        *received: SendMessageRequest | UserMessage,
        questions: tuple[Question, ...] = (),
    ) -> None:
        """Publish the next status, as a worker would."""
        self._version += 1
        messages = [r if isinstance(r, UserMessage) else _said(r) for r in received]
        status = StatusChanged(
            version=self._version,
            state=state,
            at=datetime.now(UTC),
            received=tuple(messages),
            questions=questions,
        )
        await self._views.publish(self.id, "run", [status])

    def lose_status(self) -> None:
        """Record a published status that Redis has lost."""
        self._version += 1

    async def messages(self) -> list[UserMessage]:
        """Return the messages that the workflow has taken in."""
        return await self._handle.query(StandInTask.messages)

    async def history(self) -> bytes:
        """Return the history of the workflow from Temporal."""
        return b"".join(event.SerializeToString() for event in (await self._handle.fetch_history()).events)

    async def texts(self) -> list[str]:
        """Return the texts that the workflow has taken in."""
        messages = await self.messages()
        return [part.text for m in messages for part in m.parts if isinstance(part, TextPart)]

    async def end(self) -> None:
        await self._handle.signal(StandInTask.end)
        await self._handle.result()


def _said(request: SendMessageRequest) -> UserMessage:
    message = request.message
    return UserMessage(message_id=message.message_id, parts=(TextPart(text=message.parts[0].text),))


@asynccontextmanager
async def working(  # noqa: PLR0913, PLR0917 -- what stands behind the workflow
    client: Client,
    views: TaskViews,
    queue: str,
    model: ModelPort,
    tools: ToolPort | None = None,
    schedules: SchedulePort | None = None,
) -> AsyncGenerator[None]:
    """Run the real workflow on a queue, with fakes behind its model and tools."""
    publisher = ViewPublisher(views, new_artifacts(views))
    ports = WorkerPorts(
        model,
        tools or CountingTools(),
        RecordingTranscripts(),
        publisher,
        FixedAgents(),
        context=RecordingContext(),
        schedules=schedules,
    )
    async with running_workers(client, ports, WorkerSettings(task_queue=queue, shutdown_grace=0), TASK_WORK):
        yield


class PublishingTools(CountingTools):
    """Publishes the events of a call, as the real one does; calls ask the question in `reply`."""

    def __init__(self, views: TaskViews, reply: Callable[[RunToolInput], ToolReply | None]) -> None:
        super().__init__(reply=reply)
        self._views = views

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        await self._views.publish(call.task.task_id, call.task.run_id, call.statuses)
        return await super().run_tool(call)


@asynccontextmanager
async def scripted_worker(client: Client, views: TaskViews, queue: str) -> AsyncGenerator[PromptModel]:
    """Run the real workflow on a queue, with a scripted model."""
    model = PromptModel(views)
    async with working(client, views, queue, model):
        yield model


@asynccontextmanager
async def stand_in_worker(client: Client, queue: str) -> AsyncGenerator[None]:
    """Run the stand-in workflow on a queue."""
    async with Worker(client, task_queue=queue, build_id="test", workflows=[StandInTask]):
        yield


NO_ATTACHMENTS = cast("Attachments", None)
"""Of a gateway whose test makes no schedules."""


@dataclass
class RunningGateway:
    """A gateway of this process, and where it listens."""

    app: Starlette
    server: GatewayServer
    url: str
    http: httpx.AsyncClient
    serving: "asyncio.Task[None]" = field(repr=False)
    secrets: Secrets = field(repr=False)
    artifacts: Artifacts = field(repr=False)

    @property
    def fanout(self) -> EventFanout:
        fanout = self.app.state.fanout
        assert isinstance(fanout, EventFanout)
        return fanout

    async def call(self, method: str, params: object, **headers: str) -> httpx.Response:
        """Send one JSON-RPC request."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.http.post("/", json=body, headers=headers)


@asynccontextmanager
async def running_gateway(  # noqa: PLR0913 -- what a test may set of a gateway, each by its name
    client: Client,
    views: TaskViews,
    *,
    queue: str,
    agent: Agent = AGENT,
    agents: Sequence[Agent] = (),
    access: AccessControl | None = None,
    push: PushOperations | None = None,
    card_key: CardKey | None = None,
    fanout: EventFanout | None = None,
    artifacts: Artifacts | None = None,
    transcripts: Transcripts | None = None,
    attachments: Attachments | None = None,
    link_seconds: int = 0,
    **variables: float | str,
) -> AsyncGenerator[RunningGateway]:
    """Serve a gateway on a free port until the block ends; of several `agents` the first is at the root."""
    with listen(GatewaySettings(port=0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        settings = GatewaySettings.model_validate(
            {"public_url": url, "task_queue": queue, "shutdown_grace": 1, **variables}
        )
        stores = stores_of(views, artifacts, transcripts, link_seconds)
        served = AgentRegistry(agents or [agent])
        app = build_app(
            settings,
            client,
            stores,
            served,
            attachments or NO_ATTACHMENTS,
            access=access,
            push=push,
            fanout=fanout,
            card_key=card_key,
        )
        server = GatewayServer(app, settings)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        async with httpx.AsyncClient(base_url=url, headers={"A2A-Version": "1.0"}, timeout=60) as http:
            try:
                yield RunningGateway(app, server, url, http, serving, stores.secrets, stores.artifacts)
            finally:
                if not server.should_exit:  # a second call would leave the lifespan unfinished for ever
                    server.stop()
                await serving


def unheard(configs: PushConfigs) -> PushOperations:
    """Store push notification configs without sending notifications."""

    async def nobody(*_: object) -> None: ...

    async def anywhere(*_: object) -> list[str]:
        return ["93.184.216.34"]

    return PushOperations(configs, nobody, WebhookPolicy(resolver=anywhere), "http://here/")


def key_scheme(
    path: Path, callers: Mapping[str, tuple[str, list[str]]]
) -> tuple[Authenticator, dict[str, Mapping[str, str]]]:
    """Make an API key for each owner and scopes; return the scheme, and the headers of each caller."""
    headers: dict[str, Mapping[str, str]] = {}
    for name, (owner, scopes) in callers.items():
        key, line = new_key(owner, scopes, None)
        add_key(path, line)
        headers[name] = {"X-API-Key": key}
    return Authenticator([ApiKeyScheme(path)]), headers


class Named(Authenticator):
    """Reads the owner from the header `owner`."""

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        return Caller(owner=headers.get("owner", ANONYMOUS))

    def security_schemes(self) -> Mapping[str, pb.SecurityScheme]:
        return {"named": pb.SecurityScheme(http_auth_security_scheme=pb.HTTPAuthSecurityScheme(scheme="N"))}


def task_input(text: str = "hi", **fields: object) -> TaskInput:
    """Return the input of a task with this message of its user."""
    task = TaskInput(
        context_id=unique("context"),
        owner=ANONYMOUS,
        agent=AgentSpec(id=AGENT.id),
        message=UserMessage(message_id=unique("m"), parts=(TextPart(text=text),)),
        created_at=datetime.now(UTC),
    )
    return task.model_copy(update=fields)


def a_view(*texts: str, state: TaskState = TaskState.COMPLETED, **fields: object) -> TaskView:
    """Return a task without a workflow, with these messages of its user."""
    now = datetime.now(UTC)
    view = TaskView(
        task_id=unique("task"),
        context_id=unique("context"),
        owner=ANONYMOUS,
        agent_id=AGENT.id,
        created_at=now,
        run_id="run",
        version=1,
        status=TaskStatus(state=state, at=now),
        history=tuple(
            UserMessage(message_id=f"m{number}", parts=(TextPart(text=text),))
            for number, text in enumerate(texts or ("hi",))
        ),
    )
    return view.model_copy(update=fields)


def unique(word: str) -> str:
    """Return a word that no other test uses."""
    return f"{word}-{uuid4()}"

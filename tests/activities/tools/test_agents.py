"""Preparation of tasks, agents that call others, and plugins at the beginning and the end of a task."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast
from uuid import uuid4

import pytest
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.tools.agent_catalogue import AgentCatalogue, list_task_tools
from everloop.agents.agent import Agent
from everloop.agents.delegation import sub_agent
from everloop.agents.guard import guard
from everloop.agents.hooks import HookContext, NeedsApproval, TaskOutcome, Veto
from everloop.agents.plugins import Plugin, tools
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import Tool, digest_of, listed, listed_spec_of, tool
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import (
    AfterCompletionInput,
    BeforeRequestInput,
    BeforeRequestResult,
    LoadAgentInput,
    LoadedAgent,
    PreparedTask,
    PrepareTaskInput,
)
from everloop.workflows.contract.events import (
    AgentInvoked,
    Resumed,
    StatusChanged,
    TaskEvent,
    ToolStarted,
    Warned,
)
from everloop.workflows.contract.messages import (
    TextPart,
    ToolCall,
    ToolsMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.tasks import Identity, TaskRef, TaskState
from tests.support.rigs.tool_rig import Decision, no, yes
from tests.support.stores import database

WRITER = Agent(id="writer", name="Writer", description="", models=["a", "b"])


class Deciding(Plugin):
    """A plugin with a test's verdict on calls and messages, that records its notifications."""

    said: object = None
    heard: Sequence[object] = ()

    async def before_tool(
        self, context: HookContext, call: ToolCall
    ) -> ToolCall | Veto | NeedsApproval | None:
        return cast("ToolCall", self._say())

    async def before_request(self, context: HookContext, message: UserMessage) -> UserMessage | Veto | None:
        self.heard = [*self.heard, message.message_id, context.auth.subject]
        return cast("UserMessage", self._say())

    async def after_completion(self, context: HookContext, outcome: TaskOutcome) -> None:
        self.heard = [*self.heard, outcome, context.iteration, context.usage]
        self._say()

    async def on_error(self, context: HookContext, error: str) -> None:
        self.heard = [*self.heard, error]

    def _say(self) -> object:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def _deciding(said: object) -> Deciding:
    plugin = Deciding(name="rules")
    plugin.said = said
    return plugin


class AgentRig:
    """An agent, another one that it may call, and the in-memory stores of one of its tasks."""

    def __init__(self, *plugins: Plugin) -> None:
        caller = Agent(id="agent", name="Agent", description="", plugins=[*plugins])
        self.views, self.transcripts = TaskViews(database()), Transcripts(database())
        agents = AgentRegistry([WRITER, caller])
        self.port = AgentCatalogue(agents, self.views, self.transcripts, ToolRecords(database()))
        self.task = TaskRef(
            task_id=str(uuid4()), run_id="run", context_id="c", owner="owner", agent_id="agent"
        )

    def call(self, agent_id: str = "writer", child: str = "task/call") -> LoadAgentInput:
        """Return the call of another agent."""
        return LoadAgentInput(
            task=self.task,
            call=ToolCall(id="call", name=agent_id, arguments='{"request": "a poem"}'),
            agent_id=agent_id,
            statuses=(StatusChanged(version=1, state=TaskState.WORKING, at=datetime.now(UTC)),),
            child=child,
        )

    async def load(self, call: LoadAgentInput, attempt: int = 1) -> LoadedAgent:
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=attempt)
        return await environment.run(self.port.load_agent, call)

    async def prepare(self, attempt: int = 1, **settings: object) -> PreparedTask:
        call = PrepareTaskInput(task=self.task, position=0).model_copy(update=settings)
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=attempt)
        return await environment.run(self.port.prepare_task, call)

    async def before_request(self) -> BeforeRequestResult:
        call = BeforeRequestInput(task=self.task, messages=MESSAGES, identity=Identity(subject="ann"))
        return await ActivityEnvironment().run(self.port.before_request, call)

    async def events(self) -> list[TaskEvent]:
        return [streamed.event for streamed in await self.views.read({self.task.task_id: START}, wait=0)]

    async def cached(self, length: int) -> tuple[TranscriptMessage, ...] | None:
        return (await self.transcripts.open(self.task.task_id, "run", length)).messages


ASKS = sub_agent("writer")
INVOKED = AgentInvoked(call_id="call", agent_id="writer", task_id="task/call")
STARTED = ToolStarted(call_id="call", name="writer", attempt=1)


@pytest.mark.parametrize("child", ["", "task/call"])
async def test_a_sub_agent_is_announced_and_described(child: str) -> None:
    """The call of a sub-agent is published with its start and place, and returns what its task pins."""
    rig = AgentRig(ASKS)
    call = rig.call(child=child)
    assert await rig.load(call) == LoadedAgent(**WRITER.spec.model_dump())
    assert await rig.events() == [*call.statuses, STARTED, *([INVOKED] if child else [])]


async def test_a_call_of_a_sub_agent_that_is_tried_again_says_so() -> None:
    """A retried call of a sub-agent, after the loss of a worker or of Redis, says that it is one."""
    rig = AgentRig(ASKS)
    call = rig.call()
    await rig.load(call, attempt=2)
    again = STARTED.model_copy(update={"attempt": 2})
    resumed = Resumed(after="attempt", attempt=2, call_id="call")
    assert await rig.events() == [*call.statuses, resumed, again, INVOKED]


async def test_a_sub_agent_that_this_worker_lacks_is_left_to_another() -> None:
    """A sub-agent that this worker lacks is a retryable failure with a log line, and is not published."""
    rig = AgentRig(ASKS)
    with (
        capture_logs() as logs,
        pytest.raises(ApplicationError, match="this process serves: writer, agent") as error,
    ):
        await rig.load(rig.call("other"))
    assert [line["agent"] for line in logs] == ["other"]
    assert (error.value.type, error.value.non_retryable) == (failures.AGENT_UNKNOWN, False)
    assert await rig.events() == []


@pytest.mark.parametrize(
    ("plugin", "outcome", "reason"),
    [
        (_deciding(Veto("not today")), "rejected", "not today"),
        (
            _deciding(KeyError("rules")),
            "error",
            "writer was not run: plugin 'rules' failed in before_tool: KeyError: 'rules'",
        ),
        (guard(deny=["writer"]), "rejected", "the tool 'writer' is not allowed here (allowed: all others)"),
        (
            _deciding(ToolCall(id="call", name="writer", arguments='{"request": "x"}')),
            "error",
            "writer was not run: a plugin changed its arguments, which a call of another agent cannot have",
        ),
    ],
    ids=["veto", "failure", "guard", "arguments"],
)
async def test_plugins_keep_an_agent_from_asking_another(plugin: Plugin, outcome: str, reason: str) -> None:
    """The caller's plugins can prevent the call of an agent; subscribers see its start and end alone."""
    rig = AgentRig(ASKS, plugin)
    call = rig.call()
    loaded = await rig.load(call)
    assert loaded.refused
    assert (loaded.refused.outcome, loaded.refused.content) == (outcome, reason)
    assert (loaded.id, loaded.question) == ("writer", None)
    assert await rig.events() == [*call.statuses, STARTED]
    assert not isinstance(plugin, Deciding) or bool(plugin.heard) == (outcome == "error")


async def test_what_a_plugin_changes_is_never_left_out_unnoticed() -> None:
    """A changed call of an agent is refused if the tool of its name calls none.

    The task has pinned one that does, and the change would be lost unnoticed.
    """

    @tool
    def writer(request: str) -> None:
        """Write."""

    plugin = _deciding(ToolCall(id="call", name="writer", arguments='{"request": "x"}'))
    rig = AgentRig(tools(writer), plugin)
    loaded = await rig.load(rig.call())
    assert loaded.refused
    assert "a plugin changed its arguments" in loaded.refused.content


@pytest.mark.parametrize("decide", [yes, no], ids=["yes", "no"])
async def test_another_agent_is_asked_once_people_approve(decide: Decision) -> None:
    """An approval shows the request to another agent, which starts after the answer."""
    rig = AgentRig(ASKS, guard(approve=["*"]))
    call = rig.call()
    asked = await rig.load(call)
    assert asked.question
    before = await rig.events()
    loaded = await rig.load(call.model_copy(update={"answers": (decide(asked.question),), "statuses": ()}))
    approved = decide is yes
    assert asked.question.text == 'Approve the call writer?\n{\n  "request": "a poem"\n}'
    assert (asked.refused, before) == (None, [*call.statuses])
    assert (loaded.question, loaded.refused and loaded.refused.content) == (
        None,
        None if approved else "rejected by the user",
    )
    assert await rig.events() == [*call.statuses, *([STARTED, INVOKED] if approved else [])]


MESSAGES = tuple(UserMessage(message_id=name, parts=(TextPart(text=name),)) for name in "ab")


async def test_plugins_look_at_each_message_before_a_model_does() -> None:
    """Plugins change messages before a model reads them, and see their authors."""

    class Shortening(Plugin):
        async def before_request(self, context: HookContext, message: UserMessage) -> UserMessage:
            return message.model_copy(update={"parts": ()})

    plugin = _deciding(None)
    shortened = await AgentRig(Shortening()).before_request()
    assert await AgentRig(plugin).before_request() == BeforeRequestResult(messages=MESSAGES)
    assert plugin.heard == ["a", "ann", "b", "ann"]
    assert [message.parts for message in shortened.messages] == [(), ()]


async def test_a_message_that_is_vetoed_is_refused() -> None:
    """A vetoed message is refused with a reason, which a veto always has."""
    refused = await AgentRig(_deciding(Veto("no politics"))).before_request()
    for_no_reason = await AgentRig(_deciding(Veto(""))).before_request()
    assert refused == BeforeRequestResult(messages=MESSAGES, refused="no politics")
    assert for_no_reason.refused == "the plugin 'rules' does not allow it"


async def test_a_message_that_no_plugin_could_look_at_goes_no_further() -> None:
    """A failing plugin stops a message with a final failure that names the plugin."""
    with pytest.raises(ApplicationError, match="plugin 'rules' failed in before_request: KeyError") as error:
        await AgentRig(_deciding(KeyError("rules"))).before_request()
    assert (error.value.type, error.value.non_retryable) == (failures.PLUGIN_FAILED, True)


@pytest.mark.parametrize("said", [None, KeyError("rules")], ids=["silent", "failing"])
async def test_plugins_hear_how_a_task_ended(said: object) -> None:
    """Plugins are notified of the end of a task, of a failure first as an error.

    Their own errors end nothing.
    """
    plugin, usage = _deciding(said), Usage(input_tokens=3)
    rig = AgentRig(plugin)
    for state in (TaskState.COMPLETED, TaskState.FAILED):
        call = AfterCompletionInput(
            task=rig.task, state=state, iterations=2, usage=usage, answer="a", reason="r"
        )
        await ActivityEnvironment().run(rig.port.after_completion, call)
    completed, failed = (TaskOutcome(s, 2, usage, "a", "r") for s in (TaskState.COMPLETED, TaskState.FAILED))
    assert plugin.heard == [completed, 2, usage, "r", failed, 2, usage]


# The tools that plugins list for a task: listed once, published, and cached for the model calls.

CONTEXT = HookContext(task_id="t", context_id="c", owner="o", agent_id="agent")


@tool
async def read() -> str:
    """Read."""
    return "own"


WRITE = replace(read, name="write", description="Write.")


class Server(Plugin):
    """A plugin that lists the tools of a test."""

    offered: object = ()
    contexts: Sequence[HookContext] = ()

    async def list_tools(self, context: HookContext) -> Sequence[Tool]:
        self.contexts = [*self.contexts, context]
        if isinstance(self.offered, Exception):
            raise self.offered
        return self.offered  # pyright: ignore[reportReturnType] -- a plugin may return anything


def _server(offered: object, name: str = "server", priority: int = 0) -> Server:
    plugin = Server(name=name, priority=priority)
    plugin.offered = offered
    return plugin


async def test_listed_tools_are_told_pinned_and_cached() -> None:
    """Listed tools are published, cached in the transcript, and pinned by name with their plugin."""
    first, second = _server([WRITE], "first", priority=1), _server((replace(WRITE, name="x"),), "second")
    rig = AgentRig(tools(read), first, Plugin(), second)
    prepared = await rig.prepare()
    message = ToolsMessage(tools=(listed(replace(WRITE, name="x")), listed(WRITE)))
    assert prepared.listed == message
    assert prepared.tools == {
        "x": listed_spec_of(replace(WRITE, name="x"), "second"),
        "write": listed_spec_of(WRITE, "first"),
    }
    assert prepared.tools["write"].digest == digest_of(WRITE)
    assert (prepared.agent, await rig.cached(1)) == (None, (message,))


async def test_a_plugin_knows_who_its_tools_are_for() -> None:
    """A plugin gets the user of the task, for whom some servers list other tools."""
    plugin = _server([])
    rig, identity = AgentRig(plugin), Identity(subject="ann")
    prepared = await rig.prepare(identity=identity)
    empty = ToolsMessage(tools=())
    assert (prepared.listed, prepared.tools, await rig.cached(1)) == (empty, {}, (empty,))
    assert [(context.owner, context.auth) for context in plugin.contexts] == [("owner", identity)]


async def test_tools_that_cannot_be_offered_are_left_out_with_a_warning() -> None:
    """A tool with a duplicate or invalid name is left out with a warning.

    The agent's own tools come first.
    """
    rig = AgentRig(
        tools(read),
        _server([replace(read, description="Theirs."), WRITE, replace(WRITE, name="create_task")], "a"),
        _server(
            [
                replace(WRITE, description="Late."),
                replace(WRITE, name="of/it"),
                replace(WRITE, name="n" * 65),
            ],
            "b",
        ),
    )

    prepared = await rig.prepare()

    assert prepared.listed
    assert [each.description for each in prepared.listed.tools] == ["Write."]
    of_agent = "the agent has a tool of that name"
    signs = "models take names of 1 to 64 letters, digits, '_' and '-'"
    assert [event.text for event in await rig.events() if isinstance(event, Warned)] == [
        f"the tool '{name}' of the plugin '{plugin}' is left out: {why}"
        for name, plugin, why in (
            ("read", "a", of_agent),
            ("create_task", "a", of_agent),
            ("write", "b", "the plugin 'a' has listed one of that name before"),
            ("of/it", "b", signs),
            ("n" * 65, "b", signs),
        )
    ]


@pytest.mark.parametrize(("attempt", "is_last"), [(1, False), (4, False), (5, True), (9, True)])
async def test_tools_that_cannot_be_listed_now_are_asked_for_again(attempt: int, *, is_last: bool) -> None:
    """A failing list is retried up to five times.

    The failure names the plugin, and no other list is cached.
    """
    rig = AgentRig(_server([WRITE], "a"), _server(ConnectionError("refused"), "b"))
    with pytest.raises(ApplicationError, match="plugin 'b' failed in list_tools: ConnectionError") as failed:
        await rig.prepare(attempt)
    assert (failed.value.type, failed.value.non_retryable) == (failures.TOOLS_UNAVAILABLE, is_last)
    assert await rig.cached(1) is None


@pytest.mark.parametrize("offered", [None, "write", [WRITE, "read"]], ids=["nothing", "text", "mixed"])
async def test_a_list_of_something_else_fails_the_task(offered: object) -> None:
    """A list of anything but tools fails the task without a retry."""
    with pytest.raises(
        ApplicationError, match="'server' failed in list_tools: it returned no list"
    ) as failed:
        await AgentRig(_server(offered)).prepare()
    assert (failed.value.type, failed.value.non_retryable) == (failures.PLUGIN_FAILED, True)


async def test_a_plugin_that_hangs_is_given_up() -> None:
    """A plugin that hangs, such as at the start of a server, fails in time."""

    class Hanging(Plugin):
        async def list_tools(self, context: HookContext) -> Sequence[Tool]:
            await asyncio.Event().wait()
            return ()

    agent = Agent(id="agent", name="", description="", plugins=[Hanging()])
    with pytest.raises(ApplicationError, match="it did not finish within 0 s"):
        await list_task_tools(agent, CONTEXT, seconds=0)

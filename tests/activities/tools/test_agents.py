"""Looking up the agent that a tool call asks, and asking plugins at the beginning and end of a task."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast
from uuid import uuid4

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.tools.catalogue import AgentCatalogue
from everloop.agents.agent import Agent
from everloop.agents.delegation import sub_agent
from everloop.agents.guard import guard
from everloop.agents.hooks import HookContext, NeedsApproval, TaskOutcome, Veto
from everloop.agents.plugins import Plugin, tools
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import tool
from everloop.stores.views.interface import START
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import (
    AfterCompletionInput,
    BeforeRequestInput,
    BeforeRequestResult,
    LoadAgentInput,
    LoadedAgent,
)
from everloop.workflows.contract.events import AgentInvoked, Resumed, StatusChanged, TaskEvent, ToolStarted
from everloop.workflows.contract.messages import TextPart, ToolCall, Usage, UserMessage
from everloop.workflows.contract.tasks import Identity, TaskRef, TaskState
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.memory.transcripts import MemoryTranscripts
from tests.support.rigs.tool_rig import Decision, no, yes

WRITER = Agent(id="writer", name="Writer", description="", models=["a", "b"])


class Deciding(Plugin):
    """Says of each call and of each message what a test wants, and writes down what it hears."""

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


def _catalogue(*plugins: Plugin, views: TaskViews | None = None) -> AgentCatalogue:
    caller = Agent(id="agent", name="Agent", description="", plugins=[sub_agent("writer"), *plugins])
    return AgentCatalogue(
        AgentRegistry([WRITER, caller]), views or MemoryTaskViews(), MemoryTranscripts(), MemoryToolRecords()
    )


def _task() -> TaskRef:
    return TaskRef(task_id=str(uuid4()), run_id="run", context_id="c", owner="owner", agent_id="agent")


def _load_agent_input(agent_id: str, child: str = "") -> LoadAgentInput:
    return LoadAgentInput(
        task=_task(),
        call=ToolCall(id="call", name=agent_id, arguments='{"request": "a poem"}'),
        agent_id=agent_id,
        statuses=(StatusChanged(version=1, state=TaskState.WORKING, at=datetime.now(UTC)),),
        child=child,
    )


async def _events(views: TaskViews, task: TaskRef) -> list[TaskEvent]:
    return [streamed.event for streamed in await views.read({task.task_id: START}, wait=0)]


INVOKED = AgentInvoked(call_id="call", agent_id="writer", task_id="task/call")
STARTED = ToolStarted(call_id="call", name="writer", attempt=1)


@pytest.mark.parametrize("child", ["", "task/call"])
async def test_a_sub_agent_is_announced_and_described(child: str) -> None:
    """The status that comes with the call, its start, where the other one works, and what its task pins."""
    call, views = _load_agent_input("writer", child), MemoryTaskViews()
    spec = await ActivityEnvironment().run(_catalogue(views=views).load_agent, call)
    assert spec == LoadedAgent(**WRITER.spec.model_dump())
    assert await _events(views, call.task) == [*call.statuses, STARTED, *([INVOKED] if child else [])]


async def test_a_call_of_a_sub_agent_that_is_tried_again_says_so() -> None:
    """Its worker was lost, or its Redis was away."""
    call, views = _load_agent_input("writer", "task/call"), MemoryTaskViews()
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=2)
    await environment.run(_catalogue(views=views).load_agent, call)
    again = STARTED.model_copy(update={"attempt": 2})
    resumed = Resumed(after="attempt", attempt=2, call_id="call")
    assert await _events(views, call.task) == [*call.statuses, resumed, again, INVOKED]


async def test_a_sub_agent_that_this_worker_lacks_is_left_to_another() -> None:
    """The failure is retryable, and nothing is announced."""
    call, views = _load_agent_input("other"), MemoryTaskViews()
    with pytest.raises(ApplicationError, match="this process serves: writer, agent") as error:
        await ActivityEnvironment().run(_catalogue(views=views).load_agent, call)
    assert (error.value.type, error.value.non_retryable) == (failures.AGENT_UNKNOWN, False)
    assert await _events(views, call.task) == []


@pytest.mark.parametrize(
    ("plugin", "outcome", "reason"),
    [
        (_deciding(Veto("not today")), "rejected", "not today"),
        (
            _deciding(KeyError("rules")),
            "error",
            "writer was not run: plugin 'rules' failed in before_tool: KeyError: 'rules'",
        ),
        (
            guard(deny=["writer"]),
            "rejected",
            "the tool 'writer' is not allowed here (allowed: all others)",
        ),
        (
            _deciding(ToolCall(id="call", name="writer", arguments='{"request": "x"}')),
            "error",
            "writer was not run: a plugin changed its arguments, which a call of another agent cannot have",
        ),
    ],
    ids=["veto", "failure", "guard", "arguments"],
)
async def test_plugins_keep_an_agent_from_asking_another(plugin: Plugin, outcome: str, reason: str) -> None:
    """Those of the one that asks. The call starts, and that is all that subscribers see of it."""
    call, views = _load_agent_input("writer", "task/call"), MemoryTaskViews()
    loaded = await ActivityEnvironment().run(_catalogue(plugin, views=views).load_agent, call)
    assert loaded.refused
    assert (loaded.refused.outcome, loaded.refused.content) == (outcome, reason)
    assert (loaded.id, loaded.question) == ("writer", None)
    assert await _events(views, call.task) == [*call.statuses, STARTED]
    assert not isinstance(plugin, Deciding) or bool(plugin.heard) == (outcome == "error")


async def test_what_a_plugin_changes_is_never_left_out_unnoticed() -> None:
    """Also where the agent's tool of that name asks nobody any more: its task has pinned one that does."""

    @tool
    def writer(request: str) -> None:
        """Write."""

    plugin = _deciding(ToolCall(id="call", name="writer", arguments='{"request": "x"}'))
    caller = Agent(id="agent", name="Agent", description="", plugins=[tools(writer), plugin])
    agents, views = AgentRegistry([WRITER, caller]), MemoryTaskViews()
    catalogue = AgentCatalogue(agents, views, MemoryTranscripts(), MemoryToolRecords())
    loaded = await ActivityEnvironment().run(catalogue.load_agent, _load_agent_input("writer", "task/call"))
    assert loaded.refused
    assert "a plugin changed its arguments" in loaded.refused.content


@pytest.mark.parametrize("decide", [yes, no], ids=["yes", "no"])
async def test_another_agent_is_asked_once_people_approve(decide: Decision) -> None:
    """The question shows the request; nothing starts before the answer."""
    call, views = _load_agent_input("writer", "task/call"), MemoryTaskViews()
    catalogue = _catalogue(guard(approve=["*"]), views=views)
    asked = await ActivityEnvironment().run(catalogue.load_agent, call)
    assert asked.question
    before = await _events(views, call.task)
    answered = call.model_copy(update={"answers": (decide(asked.question),), "statuses": ()})
    loaded = await ActivityEnvironment().run(catalogue.load_agent, answered)
    approved = decide is yes
    assert asked.question.text == 'Approve the call writer?\n{\n  "request": "a poem"\n}'
    assert (asked.refused, before) == (None, [*call.statuses])
    assert (loaded.question, loaded.refused and loaded.refused.content) == (
        None,
        None if approved else "rejected by the user",
    )
    assert await _events(views, call.task) == [*call.statuses, *([STARTED, INVOKED] if approved else [])]


MESSAGES = tuple(UserMessage(message_id=name, parts=(TextPart(text=name),)) for name in "ab")


async def _before_request(plugin: Plugin) -> BeforeRequestResult:
    call = BeforeRequestInput(task=_task(), messages=MESSAGES, identity=Identity(subject="ann"))
    return await ActivityEnvironment().run(_catalogue(plugin).before_request, call)


async def test_plugins_look_at_each_message_before_a_model_does() -> None:
    """With who wrote them; what they change is what the model reads."""

    class Shortening(Plugin):
        async def before_request(self, context: HookContext, message: UserMessage) -> UserMessage:
            return message.model_copy(update={"parts": ()})

    plugin = _deciding(None)
    shortened = await _before_request(Shortening())
    assert await _before_request(plugin) == BeforeRequestResult(messages=MESSAGES)
    assert plugin.heard == ["a", "ann", "b", "ann"]
    assert [message.parts for message in shortened.messages] == [(), ()]


async def test_a_message_that_is_vetoed_is_refused() -> None:
    """With the reason; a veto always has one."""
    refused = await _before_request(_deciding(Veto("no politics")))
    for_no_reason = await _before_request(_deciding(Veto("")))
    assert refused == BeforeRequestResult(messages=MESSAGES, refused="no politics")
    assert for_no_reason.refused == "the plugin 'rules' does not allow it"


async def test_a_message_that_no_plugin_could_look_at_goes_no_further() -> None:
    """The failure is not retryable, and names the plugin."""
    with pytest.raises(ApplicationError, match="plugin 'rules' failed in before_request: KeyError") as error:
        await _before_request(_deciding(KeyError("rules")))
    assert (error.value.type, error.value.non_retryable) == (failures.PLUGIN_FAILED, True)


@pytest.mark.parametrize("said", [None, KeyError("rules")], ids=["silent", "failing"])
async def test_plugins_hear_how_a_task_ended(said: object) -> None:
    """Of a failure as an error first; what they raise ends nothing."""
    plugin, usage = _deciding(said), Usage(input_tokens=3)
    for state in (TaskState.COMPLETED, TaskState.FAILED):
        call = AfterCompletionInput(
            task=_task(), state=state, iterations=2, usage=usage, answer="a", reason="r"
        )
        await ActivityEnvironment().run(_catalogue(plugin).after_completion, call)
    completed, failed = (TaskOutcome(s, 2, usage, "a", "r") for s in (TaskState.COMPLETED, TaskState.FAILED))
    assert plugin.heard == [completed, 2, usage, "r", failed, 2, usage]

"""Looks up agents, and asks their plugins where no tool and no model is called."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog
from redis.exceptions import RedisError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.call_lease import begin_attempt
from everloop.activities.colleague_calls import objection
from everloop.activities.heartbeat import heartbeating
from everloop.activities.hooks import Hooks, PluginFailedError, hook_context
from everloop.activities.quiet_publish import try_publish
from everloop.activities.task_events import publish_events
from everloop.activities.task_log import logging_task
from everloop.activities.task_tools import TaskTools, list_task_tools
from everloop.activities.tool_events import started
from everloop.activities.tool_questions import phase_key
from everloop.activities.transcript_cache import put_messages
from everloop.agents.agent import Agent
from everloop.agents.errors import UnknownAgentError
from everloop.agents.hooks import TaskOutcome, Veto
from everloop.agents.registry import AgentRegistry
from everloop.stores.leases import Leases
from everloop.stores.transcripts import Transcripts
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import (
    AfterCompletionInput,
    BeforeRequestInput,
    BeforeRequestResult,
    LoadAgentInput,
    LoadedAgent,
    PreparedTask,
    PrepareTaskInput,
    ToolReply,
)
from everloop.workflows.contract.events import AgentInvoked, TaskEvent, Warned
from everloop.workflows.contract.messages import ToolMessage, UserMessage
from everloop.workflows.contract.ports import AgentPort
from everloop.workflows.contract.questions import Question
from everloop.workflows.contract.tasks import TaskRef, TaskState

_log = structlog.get_logger()


def find_agent(agents: AgentRegistry, task: TaskRef) -> Agent:
    """Return the agent of a task, if there is one in the version that the task began with.

    Raises:
        ApplicationError: `AgentUnknown` (retryable): another worker may have it.
    """
    agent = _find(agents, task.agent_id, task.agent_version)
    if task.agent_version and agent.spec.version != task.agent_version:
        _log.warning(
            "another version of the agent goes on", wanted=task.agent_version, has=agent.spec.version
        )
    return agent


@asynccontextmanager
async def logged_and_alive(task: TaskRef) -> AsyncGenerator[None]:
    """Name the task in log lines, and let Temporal know that the activity lives: plugins take their time."""
    with logging_task(task):
        async with heartbeating():
            yield


class AgentCatalogue(AgentPort):
    """Knows the agents of this process."""

    def __init__(
        self, agents: AgentRegistry, views: TaskViews, transcripts: Transcripts, leases: Leases
    ) -> None:
        self._agents = agents
        self._views = views
        self._transcripts = transcripts
        self._leases = leases

    @activity.defn
    async def load_agent(self, call: LoadAgentInput) -> LoadedAgent:
        async with logged_and_alive(call.task):
            agent = _find(self._agents, call.agent_id)
            name = f"agent {call.task.run_id} {phase_key(call.call, len(call.answers))}"
            lease = await begin_attempt(self._leases, call.task.task_id, name)
            reply = await objection(find_agent(self._agents, call.task), call)
            await publish_events(self._views, call.task, _announced(call, reply), lease)
            question = reply if isinstance(reply, Question) else None
            refused = reply if isinstance(reply, ToolMessage) else None
            return LoadedAgent(**agent.spec.model_dump(), question=question, refused=refused)

    @activity.defn
    async def prepare_task(self, call: PrepareTaskInput) -> PreparedTask:
        with logging_task(call.task):
            agent = find_agent(self._agents, call.task)
            spec = agent.spec if call.loads_agent else None
            if not call.lists_tools:
                return PreparedTask(agent=spec)
            async with heartbeating():
                found = await list_task_tools(agent, hook_context(call.task, call.identity))
            await self._pin(call, found)
            return PreparedTask(listed=found.message, tools=found.specs, agent=spec)

    @activity.defn
    async def before_request(self, call: BeforeRequestInput) -> BeforeRequestResult:
        async with logged_and_alive(call.task):
            hooks = Hooks(find_agent(self._agents, call.task), hook_context(call.task, call.identity))
            passed: list[UserMessage] = []
            for message in call.messages:
                try:
                    said = await hooks.before_request(message)
                except PluginFailedError as error:
                    raise error.as_failure() from None
                if isinstance(said, Veto):
                    return BeforeRequestResult(messages=call.messages, refused=said.reason)
                passed.append(said)
            return BeforeRequestResult(messages=tuple(passed))

    @activity.defn
    async def after_completion(self, call: AfterCompletionInput) -> None:
        async with logged_and_alive(call.task):
            context = hook_context(call.task, call.identity, iteration=call.iterations, usage=call.usage)
            hooks = Hooks(find_agent(self._agents, call.task), context)
            if call.state is TaskState.FAILED:
                await hooks.on_error(call.reason)
            await hooks.after_completion(
                TaskOutcome(call.state, call.iterations, call.usage, call.answer, call.reason)
            )

    async def _pin(self, call: PrepareTaskInput, found: TaskTools) -> None:
        """Cache the list for the model calls. Both may fail: history has the list, and sends it again."""
        task = call.task
        try:
            lease = await begin_attempt(self._leases, task.task_id, f"tools {task.run_id}")
            await try_publish(self._views, task, [Warned(text=text) for text in found.warnings], lease)
            await put_messages(self._transcripts, task, call.position, (found.message,), lease)
        except (RedisError, OSError) as error:
            _log.warning("listed tools not cached", error_type=type(error).__name__)


def _find(agents: AgentRegistry, agent_id: str, version: str = "") -> Agent:
    try:
        return agents.find(agent_id, version)
    except UnknownAgentError as error:
        raise ApplicationError(str(error), type=failures.AGENT_UNKNOWN) from error


def _announced(call: LoadAgentInput, reply: ToolReply | None) -> tuple[TaskEvent, ...]:
    """Return the statuses that come with the call, whether it starts, and who works from here on."""
    events: list[TaskEvent] = [*call.statuses]
    if call.warning:
        events.append(Warned(text=call.warning))
    if reply is None or (isinstance(reply, ToolMessage) and not call.answers):
        events.extend(started(call.call))
    if reply is None and call.child:
        events.append(AgentInvoked(call_id=call.call.id, agent_id=call.agent_id, task_id=call.child))
    return tuple(events)

"""Runs the tools of agents, each call at most once unless its tool is idempotent."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from pydantic import BaseModel
from redis.exceptions import RedisError
from structlog.contextvars import bound_contextvars
from temporalio import activity

from activities.agents import find_agent
from activities.artifact_calls import ArtifactCalls, idempotency_key
from activities.heartbeat import Heartbeat, heartbeating
from activities.hidden_artifacts import HiddenArtifacts
from activities.task_log import logging_task
from activities.tool_arguments import InvalidArgumentsError, parse_arguments, values_of
from activities.tool_artifacts import TaskArtifacts
from activities.tool_dialogue import ending, inputs, is_approved
from activities.tool_events import ToolEvents, started
from activities.tool_function import ToolFailure, ToolFunctions
from activities.tool_messages import message, unknown_outcome, unknown_tool
from activities.tool_questions import (
    approval_question,
    needs_approval,
    outcome_question,
    phase_key,
    question_id,
)
from activities.tool_retries import next_delay, retry_event, retry_failure
from activities.tool_secrets import SecretReader
from activities.tool_span import record_outcome, tool_span
from agents.agent import Agent
from agents.questions import QuestionRequired
from agents.registry import AgentRegistry
from agents.tool import Tool
from agents.tool_context import ANYBODY, ToolContext
from stores.artifacts import Artifacts
from stores.secrets import Secrets
from stores.task_views import TaskViews
from stores.tool_records import Claim, ToolRecords
from stores.transcripts import Transcripts
from workflows.contract.calls import RunToolInput, StoreResultInput, ToolReply
from workflows.contract.events import ToolProgressed, Warned
from workflows.contract.messages import ToolMessage
from workflows.contract.ports import ToolPort

_log = structlog.get_logger()


@dataclass(frozen=True)
class ToolStores:
    """Where the tools of a process keep and publish things."""

    views: TaskViews
    transcripts: Transcripts
    records: ToolRecords
    secrets: Secrets
    artifacts: Artifacts


@dataclass(frozen=True)
class _Run:
    """One attempt at a call whose arguments fit."""

    tool: Tool
    call: RunToolInput
    arguments: BaseModel
    secrets: SecretReader
    artifacts: TaskArtifacts
    heartbeat: Heartbeat

    @property
    def asked(self) -> int:
        """How many questions of the call were answered; each answer begins a phase of it."""
        return len(self.call.answers)

    @property
    def key(self) -> str:
        return phase_key(self.call.call, self.asked)


class AgentTools(ToolPort):
    """Runs the tools that the agents of this process define; at most `threads` sync ones at once (200)."""

    def __init__(self, agents: AgentRegistry, stores: ToolStores, *, threads: int = 200) -> None:
        self._agents = agents
        self._records = stores.records
        self._secrets = stores.secrets
        self._artifacts = ArtifactCalls(stores.artifacts, stores.views)
        self._events = ToolEvents(stores.views, stores.transcripts)
        self._functions = ToolFunctions(threads)

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        with logging_task(call.task), bound_contextvars(call_id=call.call.id):
            async with heartbeating() as heartbeat:
                reply = await self._reply(find_agent(self._agents, call.task.agent_id), call, heartbeat)
                if isinstance(reply, ToolMessage):
                    await self._events.end(call.task, call.position, reply)
                return reply

    @activity.defn
    async def store_result(self, call: StoreResultInput) -> None:
        with logging_task(call.task):
            await self._events.end(call.task, call.position, call.result)

    async def _reply(self, agent: Agent, call: RunToolInput, heartbeat: Heartbeat) -> ToolReply:
        tool = agent.tools.get(call.call.name)
        if tool is None:
            await self._announce(call, heartbeat, starts=True)
            return unknown_tool(call.call, agent.tools)
        with tool_span(call) as span:
            reply = await self._reply_of(agent, tool, call, heartbeat)
            await self._artifacts.correct_draft(tool, call, reply)
            record_outcome(span, reply)
            return reply

    async def _reply_of(
        self, agent: Agent, tool: Tool, call: RunToolInput, heartbeat: Heartbeat
    ) -> ToolReply:
        """Ask for an approval that is needed, or bring the call to its next question or its end."""
        try:
            arguments = parse_arguments(tool, call.call.arguments)
        except InvalidArgumentsError as error:
            await self._announce(call, heartbeat, starts=True)
            # If another version of the tool has run this call, that outcome stands.
            return await self._keep(call, message(call.call, str(error), "invalid"))
        asks = not is_approved(call) and needs_approval(agent, tool, arguments)
        await self._announce(call, heartbeat, starts=not asks)
        if ended := ending(call):
            return await self._end(call, ended)
        if asks:
            return approval_question(call.call, len(call.answers), arguments)
        secrets = SecretReader(self._secrets, call.task.task_id)
        # Before the claim: if Redis fails here, nothing has begun whose outcome would then be unknown.
        await secrets.accept(call.answers)
        artifacts = self._artifacts.artifacts_for(tool, call)
        return await self._claim(_Run(tool, call, arguments, secrets, artifacts, heartbeat))

    async def _end(self, call: RunToolInput, ended: ToolMessage) -> ToolMessage:
        """Return the end that people want, or the result that an earlier run of the task has come to.

        The end is not recorded: after a Reset people may decide otherwise.
        """
        task_id, key = call.task.task_id, _key(call)
        claim = await self._records.claim(task_id, key)
        if claim is Claim.FIRST:
            await self._records.release(task_id, key)
        return claim if isinstance(claim, ToolMessage) else ended

    async def _claim(self, run: _Run) -> ToolReply:
        """Return the recorded outcome, or run the tool and record what it came to."""
        call, tool = run.call, run.tool
        claim = await self._records.claim(call.task.task_id, run.key)
        if not isinstance(claim, Claim):
            return claim
        if claim is Claim.FIRST or tool.idempotent:
            outcome = await self._execute(run)
            # The attempt that overtook this one may be at the same call: its outcome counts.
            return outcome if run.artifacts.log.is_overtaken else await self._keep(call, outcome)
        if tool.unknown_outcome == "ask":
            return await self._keep(call, outcome_question(call.call, run.asked, run.arguments))
        return await self._keep(call, unknown_outcome(call.call))

    async def _keep(self, call: RunToolInput, outcome: ToolReply) -> ToolReply:
        """Record an outcome and return the one that stands."""
        try:
            return await self._records.finish(call.task.task_id, _key(call), outcome)
        except (RedisError, OSError) as error:
            # We know how it ended, and history will: a second attempt would only know that it began.
            _log.warning("tool outcome not recorded", error_type=type(error).__name__)
            return outcome

    async def _execute(self, run: _Run) -> ToolReply:
        """Run the tool; whatever it raises is told to the model, unless it is tried again."""
        call, hide = run.call, run.secrets.hide
        if run.asked:
            await self._events.tell(call.task, started(call.call))
        arguments = values_of(run.arguments)
        if run.tool.context_parameter:
            arguments[run.tool.context_parameter] = self._context(run)
        try:
            text = await self._functions.call(run.tool, arguments, call.timeout)
        except QuestionRequired as required:
            return run.secrets.hide_in(required.question(question_id(call.call, run.asked), call.call))
        except ToolFailure as failure:
            return await self._fail(run, hide(str(failure)))
        return message(call.call, hide(text)).model_copy(update={"artifacts": tuple(run.artifacts.log.ids)})

    async def _fail(self, run: _Run, problem: str) -> ToolMessage:
        """Return the failure as a result, or raise what brings the next attempt."""
        task, ended = run.call.task, message(run.call.call, problem, "error")
        ended = ended.model_copy(update={"artifacts": tuple(run.artifacts.log.ids)})
        delay = next_delay(run.tool.retries, run.heartbeat)
        if delay is None:
            return ended
        if not run.tool.idempotent:
            try:
                await self._records.release(task.task_id, run.key)
            except (RedisError, OSError) as error:
                # The next attempt would take this one for lost.
                _log.warning("failed tool not released", error_type=type(error).__name__)
                return ended
        await self._events.tell(task, retry_event(ended.content, delay))
        raise retry_failure(ended.content, delay) from None

    def _context(self, run: _Run) -> ToolContext:
        task, call = run.call.task, run.call.call
        return ToolContext(
            task_id=task.task_id,
            context_id=task.context_id,
            owner=task.owner,
            call_id=call.id,
            attempt=activity.info().attempt,
            idempotency_key=idempotency_key(run.call),
            progress=self._progress(run),
            artifacts=HiddenArtifacts(run.artifacts, run.secrets),
            auth=run.call.identity or ANYBODY,
            answers=inputs(run.call),
            secret=run.secrets.read,
        )

    def _progress(self, run: _Run) -> Callable[[str], Awaitable[None]]:
        async def progress(text: str) -> None:
            call = run.call.call
            told = ToolProgressed(call_id=call.id, name=call.name, message=run.secrets.hide(text))
            await self._events.tell(run.call.task, told)

        return progress

    async def _announce(self, call: RunToolInput, heartbeat: Heartbeat, *, starts: bool) -> None:
        """Publish the status that comes with the call, and that it starts; a later phase tells so itself."""
        # After a counted failure the warning was told before.
        warnings = [Warned(text=call.warning)] if call.warning and not heartbeat.failures else []
        starting = [started(call.call)] if starts and not call.answers else []
        await self._events.announce(call.task, call.status, *warnings, *starting)


def _key(call: RunToolInput) -> str:
    return phase_key(call.call, len(call.answers))

"""Runs the tools of agents, each call at most once unless its tool is idempotent."""

import asyncio
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import structlog
from pydantic import JsonValue
from structlog.contextvars import bound_contextvars
from temporalio import activity

from everloop.activities.hook_runner import agent_of
from everloop.activities.lease import (
    ActivityHeartbeat,
    begin_attempt,
    begun_attempt,
    heartbeating,
    local_began,
    this_attempt,
)
from everloop.activities.publish import run_steps, try_publish
from everloop.activities.telemetry import (
    UNKNOWN_TOOL,
    counted_if_failed,
    record_slow_tool,
    record_tool_reply,
    timed_tool,
)
from everloop.activities.tools.agent_catalogue import find_tool
from everloop.activities.tools.approval_policies import (
    VettedCall,
    ending,
    inputs,
    judge_result,
    outcome_question,
    phase_key,
    report_error,
    vet,
)
from everloop.activities.tools.function import (
    ToolFailure,
    ToolFunctions,
    attempt_of,
    in_quick_time,
    next_delay,
    not_quick,
    retry_of,
)
from everloop.activities.tools.records import ToolClaim
from everloop.activities.tools.secret_reader import SecretReader
from everloop.activities.tools.task_artifacts import TaskArtifacts, correct_draft, idempotency_key
from everloop.activities.tools.tool_results import (
    CachedResult,
    bounded,
    end_call,
    end_steps,
    message,
    record_outcome,
    started,
    tool_span,
    unknown_outcome,
)
from everloop.agents.agent import Agent
from everloop.agents.hooks import ANYBODY
from everloop.agents.question_exceptions import QuestionRequired
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import values_of
from everloop.agents.tool_context import ToolContext
from everloop.agents.tool_signature import Arguments
from everloop.runtime.telemetry.logs import exception_fields, full_text
from everloop.runtime.user_code import translate_base_exceptions
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import attempt_prefix
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import Published
from everloop.stores.scripts import Step
from everloop.stores.secrets import Secrets
from everloop.stores.tool_records import BEGUN, ENDED, Claim, ToolRecords, ToolResults
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import BUILT_IN_TOOLS, RunToolInput, StoreResultInput, ToolReply
from everloop.workflows.contract.events import ToolProgressed, Warned
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.names import call_key
from everloop.workflows.contract.ports import ToolPort
from everloop.workflows.contract.questions import Question

_log = structlog.get_logger()

_ANSWER_OUTAGE = 10.0
"""Seconds of an outage that are waited out for the answer of a sub-agent: that activity has 30 in all."""


_ABANDON_TIME = 10.0
"""Time limit in seconds of a tool's function for abandoned calls."""


@dataclass(frozen=True)
class _Run:
    """One attempt at a call with valid arguments that was not vetoed.

    `call` is the model's, and names all records; `vetted` is the call that runs.
    """

    agent: Agent
    tool: Tool
    call: RunToolInput
    vetted: VettedCall
    secrets: SecretReader
    artifacts: TaskArtifacts
    claim: ToolClaim
    kept: JsonValue
    heartbeat: ActivityHeartbeat

    @property
    def question_count(self) -> int:
        """The number of answered questions of the call; each answer begins a phase of it."""
        return len(self.call.answers)

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return attempt_of(self.call)


@dataclass(eq=False)
class AgentTools(ToolPort):
    """Runs the tools that the agents of this process define; at most `threads` sync ones at once (200).

    `captures_content`: spans have arguments and results on them (default: no). `cached`: the cache of
    results, for tools that enable it (default: none).
    """

    agents: AgentRegistry
    views: TaskViews
    transcripts: Transcripts
    records: ToolRecords
    secrets: Secrets
    artifacts: Artifacts
    _: KW_ONLY
    threads: int = 200
    captures_content: bool = False
    cached: ToolResults | None = None

    def __post_init__(self) -> None:
        self._functions = ToolFunctions(self.threads)

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        with bound_contextvars(call_id=call.call.id):
            async with heartbeating() as heartbeat:
                local_began.set(call.scheduled)
                if call.tried == failures.TOOL_FAILED and not heartbeat.carried:
                    heartbeat.count_failure()
                agent = agent_of(self.agents, call.task)
                if call.abandoned:
                    return await self._end_abandoned(agent, call, heartbeat)
                reply, is_published = await self._reply(agent, call, heartbeat)
                if isinstance(reply, ToolMessage):
                    key = phase_key(call.call, len(call.answers))
                    if not is_published:
                        lease = this_attempt(call.task.task_id, key)
                        await end_call(self.views, self.transcripts, call, reply, lease)
                    await report_error(agent, call, reply)
                return reply

    @activity.defn
    async def store_result(self, call: StoreResultInput) -> ToolMessage | None:
        name = f"result {call.task.run_id} {call.position}"
        lease = await begin_attempt(self.records, call.task.task_id, name)
        result = await self._bounded_answer(call)
        await end_call(self.views, self.transcripts, call, result, lease)
        return result if result.whole else None

    async def _reply(
        self, agent: Agent, call: RunToolInput, heartbeat: ActivityHeartbeat
    ) -> tuple[ToolReply, bool]:
        """Return the result of the call, and whether it was cached and published with its outcome."""
        found = await find_tool(agent, call)
        if isinstance(found, ToolMessage):
            reply = await self._claim_of(call).refuse(found)
            await self._announce(call, heartbeat, starts=True)
            record_tool_reply(call.task.agent_id, UNKNOWN_TOOL, reply)
            return reply, False
        tool, warning = found
        name = tool.name
        has_content = self.captures_content
        with (
            tool_span(agent, call, has_content=has_content) as span,
            counted_if_failed(call.task.agent_id, name),
            self._functions.beginning(tool, call),
        ):
            claim = self._claim_of(call, tool)
            reply = await in_quick_time(
                call,
                self._reply_of(agent, tool, call, heartbeat, warning, claim),
                partial(self._warn_of_slow, call),
            )
            await correct_draft(self._publisher(call), tool, call, reply)
            record_outcome(span, reply, has_content=has_content)
            record_tool_reply(call.task.agent_id, name, reply)
            return reply, claim.is_published

    def _claim_of(self, call: RunToolInput, tool: Tool | None = None) -> ToolClaim:
        repeats = bool(tool and tool.idempotent)
        run = partial(run_steps, self.views, call.task)
        return ToolClaim(self.records, call, is_repeatable=repeats, run_steps=run)

    async def _reply_of(  # noqa: PLR0913, PLR0917 -- the call, its tool and its attempt
        self,
        agent: Agent,
        tool: Tool,
        call: RunToolInput,
        heartbeat: ActivityHeartbeat,
        warning: str,
        claim: ToolClaim,
    ) -> ToolReply:
        """Request an approval if it is needed, or run the call up to its next question or its end."""
        if ended := ending(call):
            await self._abandon(agent, tool, call, heartbeat, claim)
            reply = await claim.close(ended)
            await self._announce(call, heartbeat, warning, starts=False)
            return reply
        vetted = await vet(agent, tool, call)
        if isinstance(vetted, ToolMessage):
            # If another version of the tool has run this call, that outcome counts.
            reply = await claim.refuse(vetted)
            await self._announce(call, heartbeat, warning, starts=True)
            return reply
        if isinstance(vetted, Question):
            await self._announce(call, heartbeat, warning, starts=False)
            return vetted
        # Everything that the tool may use is prepared before the claim: if Redis fails here, nothing with an
        # unknown outcome has begun.
        run = await self._run_of(agent, tool, call, heartbeat, claim, vetted)
        return await self._claim(run, self._announcing(call, heartbeat, warning, starts=False))

    async def _run_of(  # noqa: PLR0913, PLR0917 -- the call, its tool and its attempt
        self,
        agent: Agent,
        tool: Tool,
        call: RunToolInput,
        heartbeat: ActivityHeartbeat,
        claim: ToolClaim,
        vetted: VettedCall,
    ) -> _Run:
        secrets = SecretReader(self.secrets, call.task.task_id)
        await secrets.accept(call.answers)
        publisher = self._publisher(call, vetted.call.arguments if tool.draft_of else "")
        artifacts = TaskArtifacts.of_call(publisher, tool, call, claim.check, secrets)
        return _Run(agent, tool, call, vetted, secrets, artifacts, claim, None, heartbeat)

    async def _end_abandoned(
        self, agent: Agent, call: RunToolInput, heartbeat: ActivityHeartbeat
    ) -> ToolMessage:
        """Notify a tool of an abandoned call, which the task has ended by itself."""
        found = await find_tool(agent, call)
        if not isinstance(found, ToolMessage):
            tool, _ = found
            await self._abandon(agent, tool, call, heartbeat, self._claim_of(call, tool))
        return message(call.call, "nobody waits for it any more", "rejected")

    async def _abandon(
        self, agent: Agent, tool: Tool, call: RunToolInput, heartbeat: ActivityHeartbeat, claim: ToolClaim
    ) -> None:
        """Call the tool's function for abandoned calls. A failure is only logged."""
        if tool.abandoned is None:
            return
        kept = await claim.kept()
        vetted = VettedCall(call.call, Arguments())  # its arguments are not used
        run = replace(await self._run_of(agent, tool, call, heartbeat, claim, vetted), kept=kept)
        try:
            with translate_base_exceptions():
                async with asyncio.timeout(_ABANDON_TIME):
                    await tool.abandoned(self._context(run))
        except Exception as error:  # noqa: BLE001 -- any exception of an author's function
            _log.warning("an abandoned call was not let go of", tool=tool.name, **exception_fields(error))

    async def _warn_of_slow(self, call: RunToolInput, seconds: float) -> None:
        about = {"tool": call.call.name, "seconds": round(seconds, 1)}
        _log.warning(
            "a quick tool is slow; without quick=True its task would hear messages meanwhile", **about
        )
        record_slow_tool(call.task.agent_id, call.call.name)
        warning = Warned(text=f"the tool {call.call.name} is marked as quick, and took {seconds:.1f} s")
        lease = this_attempt(call.task.task_id, phase_key(call.call, len(call.answers)))
        await try_publish(self.views, call.task, [warning], lease)

    async def _claim(self, run: _Run, announcing: Sequence[Step[Any]]) -> ToolReply:
        """Return the recorded outcome, or run the tool and record its result.

        An attempt that waits for another one publishes the announcement of the call as well.
        """
        call, tool, vetted = run.call, run.tool, run.vetted
        claim, kept = await run.claim.begin(self._beginning(run), before=announcing)
        if not isinstance(claim, Claim):
            return claim
        if activity.info().is_local and run.claim.attempts > 1:
            # The workflow task before may have timed out because the tool blocks this process, or ends it.
            await run.claim.end()
            raise not_quick(f"an attempt at {tool.name} before this one did not come to its end")
        may_run = claim is Claim.FIRST or run.claim.may_repeat
        run = replace(run, kept=kept)
        run.artifacts.attempt = attempt_prefix(idempotency_key(call), run.claim.attempts)
        if may_run:
            return await run.claim.hold(self._run(run))
        if tool.unknown_outcome == "ask":
            question = outcome_question(tool, call.call, vetted, run.question_count)
            return await run.claim.finish(question)
        return await run.claim.finish(unknown_outcome(call.call))

    def _beginning(self, run: _Run) -> Step[Published | None]:
        """Return the step that publishes the start of the tool, if it starts."""
        task, events = run.call.task, started(run.call.call, run.attempt)
        return self.views.publishing(task.task_id, task.run_id, events, run.claim.lease, claims=BEGUN)

    async def _run(self, run: _Run) -> ToolReply:
        outcome = await self._execute(run)
        if not isinstance(outcome, ToolMessage) or run.tool.draft_of:  # its draft is replaced first
            return await run.claim.finish(outcome)
        end = end_steps(self.views, self.transcripts, run.call, outcome, run.claim.lease, ENDED)
        return await run.claim.finish(outcome, *end)

    async def _execute(self, run: _Run) -> ToolReply:
        """Run the tool. The model gets any exception as the result, unless the call is retried."""
        call, hide = run.call, run.secrets.hide
        given, batched = run.vetted.arguments, run.tool.batch_parameter
        arguments: dict[str, object] = {batched: given} if batched else values_of(given)
        if run.tool.context_parameter:
            arguments[run.tool.context_parameter] = self._context(run)
        cached = CachedResult(self.cached, run.tool, call, run.vetted.call.arguments)
        if (text := await cached.find()) is not None:
            return await self._after(run, message(call.call, text).model_copy(update={"cached": True}))
        try:
            with timed_tool(call.task.agent_id, run.tool.name):
                text = await self._functions.call(run.tool, arguments, call)
        except QuestionRequired as required:
            question = required.question(phase_key(call.call, run.question_count), run.vetted.call)
            return run.secrets.hide_in(question)
        except ToolFailure as failure:
            about = {"tool": run.tool.name, "raised_at": failure.raised_at}
            _log.warning("tool failed", **about, **exception_fields(failure.error))
            # The traceback is logged only at debug, without the client's secrets.
            _log.debug("tool traceback", **about, exception=hide(full_text(failure.error)))
            return await self._fail(run, hide(str(failure)), failure.raised_at)
        if not (run.secrets.has_read or run.artifacts.written or run.artifacts.was_read):
            await cached.note(hide(text))
        return await self._after(run, message(call.call, hide(text)))

    async def _after(self, run: _Run, result: ToolMessage) -> ToolMessage:
        """Pass the result through the plugins and return the result to record."""
        await run.claim.check()
        written, files = run.artifacts.written, tuple(run.artifacts.shown.values())
        result = result.model_copy(
            update={"artifacts": tuple(written), "versions": dict(written), "files": files}
        )
        result = await judge_result(run.agent, run.tool, run.call, run.vetted.call, result)
        if run.tool.name in BUILT_IN_TOOLS:  # a page is never truncated again
            return result
        most, key = run.tool.max_result or run.agent.max_result, call_key(run.call.call)
        await run.claim.check()
        return await bounded(result, most, self.artifacts, run.call.task, key, attempt=run.artifacts.attempt)

    async def _bounded_answer(self, call: StoreResultInput) -> ToolMessage:
        """Return the answer of a sub-agent in the form for the model."""
        if not call.key:
            return call.result
        agent = agent_of(self.agents, call.task)
        tool = agent.tools.get(call.result.name)
        most = (tool and tool.max_result) or agent.max_result
        return await bounded(
            call.result, most, self.artifacts, call.task, call.key, max_outage=_ANSWER_OUTAGE
        )

    async def _fail(self, run: _Run, problem: str, raised_at: str) -> ToolMessage:
        """Return the failure as a result, or raise the failure that causes the next attempt."""
        await run.claim.check()
        ended = message(run.call.call, problem, "error")
        delay = next_delay(run.tool.retries, run.heartbeat)
        if delay is None or not (run.tool.idempotent or await run.claim.give_back(delay)):
            return (await self._after(run, ended)).model_copy(update={"raised_at": raised_at})
        event, retry = retry_of(ended.content, delay, run.attempt)
        await try_publish(self.views, run.call.task, [event], run.claim.lease)
        raise retry from None

    def _context(self, run: _Run) -> ToolContext:
        task, call = run.call.task, run.call.call

        async def progress(text: str) -> None:
            event = ToolProgressed(call_id=call.id, name=call.name, message=run.secrets.hide(text))
            await run.claim.check_task()
            await try_publish(self.views, task, [event], run.claim.lease)

        return ToolContext(
            task_id=task.task_id,
            context_id=task.context_id,
            owner=task.owner,
            call_id=call.id,
            attempt=run.attempt,
            idempotency_key=idempotency_key(run.call),
            progress=progress,
            artifacts=run.artifacts,
            auth=run.call.identity or ANYBODY,
            answers=inputs(run.call),
            secret=run.secrets.read,
            kept=run.kept,
            keep=run.claim.keep,
            is_wanted=run.claim.is_wanted,
        )

    async def _announce(
        self, call: RunToolInput, heartbeat: ActivityHeartbeat, warning: str = "", *, starts: bool
    ) -> None:
        """Publish the events of `_announcing`."""
        steps = self._announcing(call, heartbeat, warning, starts=starts)
        if steps:
            await run_steps(self.views, call.task, *steps)

    def _announcing(
        self, call: RunToolInput, heartbeat: ActivityHeartbeat, warning: str, *, starts: bool
    ) -> Sequence[Step[Any]]:
        """Return the step that publishes the call's statuses, and its start if the call ends at once.

        The start of any other call is published after its claim, when no other attempt can run it.
        """
        # After a counted failure: its attempt has published the warnings.
        texts = () if heartbeat.failures else (call.warning, warning)
        warnings = [Warned(text=text) for text in texts if text]
        starting = started(call.call, attempt_of(call)) if starts and not call.answers else []
        # Independent of the claim of the call: an attempt that waits for another one may publish it.
        name = f"announcement {call.task.run_id} {phase_key(call.call, len(call.answers))}"
        lease, steps = begun_attempt(self.records, call.task.task_id, name)
        events = [*call.statuses, *warnings, *starting]
        place = call.task.task_id, call.task.run_id
        return [*steps, self.views.publishing(*place, events, lease)] if events else []

    def _publisher(self, call: RunToolInput, drafted: str = "") -> ArtifactPublisher:
        position = call.reply_position + 1
        return ArtifactPublisher(self.artifacts, call.task, position, self.views, arguments=drafted)

"""Language-model calls, streamed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog
from pydantic import BaseModel
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.cached_transcripts import RecentTranscripts, checked_transcript
from everloop.activities.hook_runner import agent_of, check_fields
from everloop.activities.lease import MODEL_LEASE, ActivityHeartbeat, CallLease, heartbeating
from everloop.activities.model.artifact_streams import LOOK_UP, ArtifactStreams
from everloop.activities.model.call_events import (
    DROPPED,
    DeltaPublisher,
    last_events,
    opening_events,
    recovery_events,
    retry_events,
    statuses_of,
    was_answer,
    withdrawal,
)
from everloop.activities.model.compaction import ContextCompactor
from everloop.activities.model.drafts import ResponseDraft, attempt_number
from everloop.activities.model.model_files import AcceptedTypes, FileReader
from everloop.activities.model.model_plugins import ModelPlugins
from everloop.activities.model.model_retries import failure_fields, translate_model_errors
from everloop.activities.model.models import Models, finish_within, read_stream
from everloop.activities.model.outcome import as_output, continuation, joined, judge, output_schema
from everloop.activities.model.reply import VisibleDelta
from everloop.activities.model.request import (
    build_request,
    cache_key,
    made_to_call,
    only_create_task,
    sent_messages,
    until_called,
    with_cache_hints,
    with_window,
    without_tools,
    write_prompts,
)
from everloop.activities.publish import publish_events, run_steps, try_publish
from everloop.activities.store_retries import suppress_store_errors
from everloop.agents.agent import Agent, Responder, Turn
from everloop.agents.registry import AgentRegistry
from everloop.models.interface import ModelBusyError, ModelRefusedError, ModelRequest, PromptTooLongError
from everloop.runtime.user_code import error_text, translate_base_exceptions
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.log.log_store import TaskViews
from everloop.stores.providers import HeldBackError
from everloop.stores.scripts import OvertakenError, Step
from everloop.stores.tool_records import BEGUN, ToolRecords, reply_call
from everloop.stores.transcripts import OpenedTranscript, Transcripts
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.calls import CallModelInput, CompactContextInput
from everloop.workflows.contract.events import TaskEvent, Warned
from everloop.workflows.contract.messages import AssistantMessage, SummaryMessage, TranscriptMessage
from everloop.workflows.contract.names import context_key, name_calls
from everloop.workflows.contract.ports import ModelPort

RESPONDER = "none"
"""The model's name for subscribers if the agent has its own function in place of a model."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class _Attempt:
    """One attempt at a model call.

    `draft` is None if the reply is not an answer to the client, who has one already.
    """

    call: CallModelInput
    lease: CallLease
    agent: Agent
    heartbeat: ActivityHeartbeat
    draft: ResponseDraft | None
    artifacts: ArtifactStreams
    plugins: ModelPlugins

    @property
    def output(self) -> type[BaseModel] | None:
        """The type of the answer, if it has to be data."""
        return self.agent.output if self.draft else None

    def last_events(
        self, reply: AssistantMessage, rest: Sequence[VisibleDelta] = (), *, is_streamed: bool = False
    ) -> list[TaskEvent]:
        """Return the events at the end of a reply; see `call_events.last_events`."""
        is_data = self.output is not None
        return last_events(self.call, reply, self.draft, rest=rest, is_streamed=is_streamed, is_data=is_data)


@dataclass(eq=False)
class ModelCalls(ModelPort):
    """Calls the models of agents."""

    models: Models
    agents: AgentRegistry
    views: TaskViews
    transcripts: Transcripts
    artifacts: Artifacts
    records: ToolRecords

    def __post_init__(self) -> None:
        self._recent = RecentTranscripts()
        self._compactor = ContextCompactor(self.models, self.views, self.transcripts, self.records)

    @activity.defn
    async def call_model(self, call: CallModelInput) -> AssistantMessage:
        async with heartbeating() as heartbeat:
            agent = agent_of(self.agents, call.task)
            name = reply_call(call.task.run_id, call.length, call.tries)
            run = partial(run_steps, self.views, call.task)
            lease = CallLease(
                self.records, call.task.task_id, name, MODEL_LEASE, is_repeatable=True, run_steps=run
            )
            # An attempt that holds the call may end well, and waiting costs less than a second reply.
            opened = await self._open(call, lease)
            reply = await lease.hold(self._call(call, agent, lease, opened, heartbeat))
            await lease.end()
            return reply

    @activity.defn
    async def compact_context(self, call: CompactContextInput) -> SummaryMessage:
        return await self._compactor.compact(call)

    async def _call(
        self,
        call: CallModelInput,
        agent: Agent,
        lease: CallLease,
        opened: OpenedTranscript,
        heartbeat: ActivityHeartbeat,
    ) -> AssistantMessage:
        number = attempt_number(call.tries, lease.attempts)
        drafted = {name: tool for name, tool in agent.tools.items() if tool.draft_of}
        publisher = ArtifactPublisher(self.artifacts, call.task, call.length, self.views, lease=lease.lease)
        context = context_key(call.task.owner, call.task.context_id)
        attempt = _Attempt(
            call,
            lease,
            agent,
            heartbeat,
            draft=None if call.tool or call.routing else ResponseDraft(call.length, number),
            artifacts=ArtifactStreams(publisher, context, call.length, number, drafted),
            plugins=ModelPlugins(agent, call, self.records, lease.lease),
        )
        try:
            return await self._reply(attempt, opened, self._name_of(call, agent))
        except OvertakenError:
            raise
        except ApplicationError as failure:
            await self._publish_failure(attempt, failure)
            raise

    async def _open(self, call: CallModelInput, lease: CallLease) -> OpenedTranscript:
        """Claim the call, and read its transcript in the same round trip."""
        opening = partial(
            self.transcripts.opening,
            call.task.task_id,
            call.task.run_id,
            call.length,
            call.new,
            previous_run=call.previous_run,
            lease=lease.lease,
            claims=BEGUN,
        )

        async def read(cached: int) -> OpenedTranscript:
            if lease.is_ours:
                return (await self.records.run(opening(cached=cached)))[0]
            _, opened = await lease.claim(opening(cached=cached))
            return opened

        try:
            return await self._recent.open(call.task.task_id, call.length, call.digest, read)
        except ApplicationError:  # nothing was done: the call is repeated with the same status
            lease.counts = False
            await lease.end()
            raise

    def _name_of(self, call: CallModelInput, agent: Agent) -> str:
        return RESPONDER if agent.respond else self.models.choose(call.model, agent.id).name

    async def _reply(self, attempt: _Attempt, opened: OpenedTranscript, model: str) -> AssistantMessage:
        """Return the reply of an earlier attempt, or request one."""
        call, draft = attempt.call, attempt.draft
        if isinstance(reply := opened.reply, AssistantMessage):
            _log.info("model reply found", iteration=call.iteration, attempt=attempt.lease.attempts)
            before = [*statuses_of(call), *recovery_events(call, attempt.lease.attempts)]
            return await self._end(attempt, reply, [*before, *attempt.last_events(reply)])
        transcript = checked_transcript(opened, call.length)
        if draft:
            draft.is_published |= any(map(was_answer, transcript))
        await self._publish(attempt, opening_events(call, attempt.lease.attempts, model))
        # The reply to an attempt whose worker died while plugins judged it.
        if written := await attempt.plugins.stored_reply() if attempt.lease.attempts > 1 else None:
            _log.info("unjudged model reply found", iteration=call.iteration, attempt=attempt.lease.attempts)
            settings = call.settings
            if not attempt.agent.respond:
                settings = settings.over(self.models.choose(model, attempt.agent.id).settings)
            ours = await self._judged(attempt, written, transcript, settings)
            end = [*recovery_events(call, attempt.lease.attempts), *attempt.last_events(ours)]
            return await self._close(attempt, ours, end)
        if attempt.agent.respond:
            return await self._take_response(attempt, attempt.agent.respond, transcript)
        request = await self._request(attempt, model, transcript)
        with translate_model_errors(request.settings, attempt.heartbeat, has_fallback=call.has_fallback):
            return await self._ask(attempt, request, transcript)

    async def _request(
        self, attempt: _Attempt, model: str, transcript: Sequence[TranscriptMessage]
    ) -> ModelRequest:
        agent, call = attempt.agent, attempt.call
        takes = AcceptedTypes(agent.model_takes, self.models.choose(model, agent.id).takes)
        reader = FileReader(self.artifacts, call.task, takes)
        files = await reader.read(sent_messages(transcript))
        prompts = await write_prompts(agent, attempt.plugins.context)
        request = build_request(model, agent, transcript, files=files, prompts=prompts)
        request = replace(request, settings=until_called(call.settings, transcript))
        if call.tool:
            request = made_to_call(request, call.tool)
        if call.routing:
            request = only_create_task(request, agent)
        if call.last:
            request = without_tools(request, call.last)
        if attempt.output:
            request = replace(request, output=output_schema(attempt.output))
        request = await attempt.plugins.before(request)
        chosen = self.models.choose(request.model, agent.id)  # a hook may name another model
        if call.needs_price or any(plugin.needs_price for plugin in agent.plugins):
            self.models.require_price(chosen, agent.id)
        request = replace(
            request,
            model=chosen.name,
            settings=request.settings.over(until_called(chosen.settings, transcript)),
        )
        return with_cache_hints(request, chosen, cache_key(call.task))

    async def _take_response(
        self, attempt: _Attempt, respond: Responder, transcript: Sequence[TranscriptMessage]
    ) -> AssistantMessage:
        """Get the reply from the agent's own function; store it before its end is published."""
        call = attempt.call
        ours = await _response(respond, Turn(transcript, decides=call.routing))
        ours = ours.model_copy(update={"tool_calls": name_calls(ours.tool_calls, call.length)})
        ours = await self._judged(attempt, ours, transcript, call.settings)
        return await self._close(attempt, ours, attempt.last_events(ours))

    async def _ask(
        self, attempt: _Attempt, request: ModelRequest, transcript: Sequence[TranscriptMessage]
    ) -> AssistantMessage:
        """Stream a reply, in two halves if it was cut off, and store it.

        An attempt that dies or fails between the halves leaves nothing: the next one requests both.
        """
        call, artifacts = attempt.call, attempt.artifacts
        draft = None if attempt.output else attempt.draft
        publish = partial(self._publish, attempt)
        longest = self.models.longest_reply.total_seconds()
        async with (
            DeltaPublisher(publish, draft, artifacts, call.iteration) as publisher,
            finish_within(longest),
        ):
            try:
                written, thoughts = await self._stream(attempt, request, publisher)
            except PromptTooLongError as error:
                window = self.models.choose(request.model, attempt.agent.id).window
                raise with_window(error, window, transcript) from None
            if more := None if call.tool else continuation(request, written):
                written = await self._continued(attempt, written, more, publisher, thoughts)
            rest = await publisher.stop()
        ours = await self._judged(attempt, written, transcript, request.settings)
        # The artifacts of calls that plugins changed are reconciled later: the streams count the original
        # calls.
        chunks = await artifacts.finish(ours) if ours.tool_calls == written.tool_calls else []
        # A part of a rest that the provider then refused may have been shown.
        is_streamed = ours.text == written.text and not (ours.refused or ours.reason or attempt.output)
        end = attempt.last_events(ours, rest, is_streamed=is_streamed)
        reply = await self._close(attempt, ours, [*chunks, *end])
        fields = {"model": reply.source, "reason": reply.reason or None, **reply.usage.model_dump()}
        _log.info("model replied", iteration=call.iteration, **fields)
        return reply

    async def _continued(
        self,
        attempt: _Attempt,
        written: AssistantMessage,
        more: ModelRequest,
        publisher: DeltaPublisher,
        thoughts: int,
    ) -> AssistantMessage:
        """Return a reply with its rest, or without if the provider refuses or holds back that request.

        Repeating both would be paid for each time, and the rest may fail again for the same reason.
        """
        iteration = attempt.call.iteration
        _log.info("model reply continued", iteration=iteration, **written.usage.model_dump())
        try:
            rest, _ = await self._stream(attempt, more, publisher, thoughts)
        except (ModelRefusedError, ModelBusyError, HeldBackError) as error:
            kind = type(error).__name__
            _log.warning("model reply not continued", iteration=iteration, error_type=kind, codes=error.codes)
            return written
        return joined(written, rest)

    async def _stream(
        self, attempt: _Attempt, request: ModelRequest, publisher: DeltaPublisher, thoughts: int = 0
    ) -> tuple[AssistantMessage, int]:
        """Stream one completion to subscribers, of a reply with so many thoughts so far.

        Returns it, and the number of thoughts including its own.
        """
        call, name = attempt.call, attempt.agent.name
        assembler = self.models.assembler(request, call.length, attempt.artifacts.tools.keys())
        assembler.thoughts = thoughts
        async with self.models.stream(call.task, request, assembler, agent_name=name) as stream:
            await self._try_publish(attempt, recovery_events(call, attempt.lease.attempts))
            await read_stream(stream, assembler, publisher.add)
        await attempt.lease.check_task()
        if assembler.is_opaque_dropped:
            await self._try_publish(attempt, [Warned(text=DROPPED)])
        return self.models.priced(request, assembler.reply), assembler.thoughts

    async def _judged(
        self,
        attempt: _Attempt,
        reply: AssistantMessage,
        transcript: Sequence[TranscriptMessage],
        settings: ModelSettings,
    ) -> AssistantMessage:
        """Return the final form of a reply, after its plugins."""
        reply, call = await attempt.plugins.after(reply), attempt.call
        if attempt.agent.respond:  # it did not come from a model
            return as_output(reply, attempt.output) if attempt.output else reply
        if call.tool and not reply.tool_calls:  # the client has its answer, and this is not another one
            return reply
        return judge(reply, transcript, settings, attempt.output, last=call.last)

    async def _close(
        self, attempt: _Attempt, ours: AssistantMessage, end: Sequence[TaskEvent]
    ) -> AssistantMessage:
        """Store a judged reply and publish its end; return the reply that counts.

        That is the first one that any attempt stored. If Redis does not answer it is ours: history will hold
        it, the workflow publishes its end, and the next call fills the cache again.
        """
        call, lease, ours = attempt.call, attempt.lease.lease, ours.to_keep()
        place = call.task.task_id, call.task.run_id, call.length
        await attempt.lease.check_task()
        with suppress_store_errors("model reply not stored", position=call.length):
            stands = await self.transcripts.add(*place, ours, lease)
            if stands is not ours and isinstance(stands, AssistantMessage):
                return await self._end(attempt, stands, attempt.last_events(stands))
            if stands is not ours:  # another kind of call stored it
                await self.transcripts.put(*place, [ours], lease)
                end = attempt.last_events(ours)
            return await self._end(attempt, ours, end)
        return ours.model_copy(update={"is_published": False})

    async def _end(
        self, attempt: _Attempt, reply: AssistantMessage, end: Sequence[TaskEvent]
    ) -> AssistantMessage:
        """Publish the end of a stored reply, and release the call."""
        task = attempt.call.task
        publishing = self.views.publishing(task.task_id, task.run_id, end, attempt.lease.lease)
        with suppress_store_errors("end of a model reply not published"):
            await self._end_with(attempt, *attempt.plugins.forgetting(), publishing)
            return await self._closed(attempt, reply)
        return reply.model_copy(update={"is_published": False})

    async def _end_with(self, attempt: _Attempt, *steps: Step[Any]) -> tuple[Any, ...]:
        await attempt.lease.check_task()
        if attempt.artifacts.tools:  # they are reconciled under the lease
            return await run_steps(self.views, attempt.call.task, *steps)
        return await attempt.lease.end_with(*steps)

    async def _closed(self, attempt: _Attempt, reply: AssistantMessage) -> AssistantMessage:
        await self._reconcile_artifacts(attempt, reply)
        is_newest = attempt.draft is None or attempt.draft.is_newest
        return reply if is_newest else reply.model_copy(update={"is_published": False})

    async def _publish_failure(self, attempt: _Attempt, failure: ApplicationError) -> None:
        """Publish that a retry follows, or withdraw the unfinished answer of a call that ends here."""
        call, count = attempt.call, attempt.lease.attempts
        fields = {} if attempt.agent.respond else failure_fields(failure)
        _log.warning(
            "model call failed", iteration=call.iteration, attempt=count, kind=failure.type, **fields
        )
        if not failure.non_retryable:
            await self._try_publish(attempt, retry_events(call, count, failure))
        else:
            await self._try_publish(attempt, [*recovery_events(call, count), *withdrawal(attempt.draft)])
            await self._reconcile_artifacts(attempt, None)
            await attempt.plugins.hooks.on_error(failure.message)

    async def _reconcile_artifacts(self, attempt: _Attempt, reply: AssistantMessage | None) -> None:
        """Reconcile the artifacts that subscribers see; if that fails, the tool calls do it."""
        with suppress_store_errors("artifacts not reconciled"):
            async with asyncio.timeout(LOOK_UP):
                await attempt.artifacts.reconcile(reply)

    async def _publish(self, attempt: _Attempt, events: Sequence[TaskEvent]) -> None:
        await attempt.lease.check_task()
        await publish_events(self.views, attempt.call.task, events, attempt.lease.lease)

    async def _try_publish(self, attempt: _Attempt, events: Sequence[TaskEvent]) -> bool:
        await attempt.lease.check_task()
        return await try_publish(self.views, attempt.call.task, events, attempt.lease.lease)


async def _response(respond: Responder, turn: Turn) -> AssistantMessage:
    """Return the reply of the agent's own function.

    Raises:
        ApplicationError: It raised, or its result is not a reply; the same turn would fail again.
    """
    try:
        with translate_base_exceptions():
            made: object = await respond(turn)
        if isinstance(made, AssistantMessage):  # pyright: ignore[reportUnnecessaryIsInstance] -- a function may return anything
            return check_fields(made)
        problem = f"it returned a {type(made).__name__}, not an AssistantMessage"
    except Exception as error:  # noqa: BLE001 -- it is the user's code
        problem = error_text(error)
    failed = f"the agent's own function failed: {problem}"
    raise ApplicationError(failed, type=failures.MODEL_REFUSED, non_retryable=True)

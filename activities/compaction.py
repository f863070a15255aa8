"""Makes room in the context window: older messages are summed up or left out."""

from collections.abc import Sequence

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.call_lease import MODEL_LEASE, CallLease
from everloop.activities.heartbeat import Heartbeat, heartbeating
from everloop.activities.model_provider import ModelProvider, explained, read_stream
from everloop.activities.quiet_publish import try_publish
from everloop.activities.reply_assembler import ReplyAssembler
from everloop.activities.summary_request import (
    MAX_SUMMARY_CHARACTERS,
    earlier_text,
    newly_covered,
    summary_request,
)
from everloop.activities.task_log import logging_task
from everloop.activities.transcript_cache import keep_reply, whole_transcript
from everloop.stores.leases import Leases
from everloop.stores.transcripts import Transcripts
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.calls import CompactContextInput
from everloop.workflows.contract.events import RetryScheduled, TaskEvent, UsageReported, Warned
from everloop.workflows.contract.messages import SummaryMessage, TranscriptMessage, Usage

_log = structlog.get_logger()


class ContextCompactor:
    """Writes the message that stands for older ones. Dying anywhere costs at most another summary."""

    def __init__(
        self, provider: ModelProvider, views: TaskViews, transcripts: Transcripts, leases: Leases
    ) -> None:
        self._provider = provider
        self._views = views
        self._transcripts = transcripts
        self._leases = leases

    async def compact(self, call: CompactContextInput) -> SummaryMessage:
        """Do what `ModelPort.compact_context` says."""
        with logging_task(call.task):
            async with heartbeating() as heartbeat:
                name = f"summary {call.task.run_id} {call.length}"
                lease = CallLease(self._leases, call.task.task_id, name, MODEL_LEASE, is_repeatable=True)
                await lease.claim()
                summary = await lease.hold(self._compact(call, lease, heartbeat))
                await lease.end()
                return summary

    async def _compact(
        self, call: CompactContextInput, lease: CallLease, heartbeat: Heartbeat
    ) -> SummaryMessage:
        summary, problem = await self._find_or_make(call, lease, heartbeat)
        _log.info("context compacted", iteration=call.iteration, end=call.end, problem=problem)
        await try_publish(self._views, call.task, _events(call, summary, problem), lease.lease)
        return summary

    async def _find_or_make(
        self, call: CompactContextInput, lease: CallLease, heartbeat: Heartbeat
    ) -> tuple[SummaryMessage, str]:
        """Return the summary that an earlier attempt stored, or a new one, and what went wrong with it."""
        opened = await self._transcripts.open(
            call.task.task_id, call.task.run_id, call.length, call.new, previous_run=call.previous_run
        )
        if isinstance(opened.reply, SummaryMessage):
            return opened.reply, ""
        transcript = whole_transcript(opened, call.length, call.digest)
        summary, problem = await self._make(call, transcript, lease, heartbeat)
        return await keep_reply(self._transcripts, call.task, call.length, summary, lease.lease), problem

    async def _make(
        self,
        call: CompactContextInput,
        transcript: Sequence[TranscriptMessage],
        lease: CallLease,
        heartbeat: Heartbeat,
    ) -> tuple[SummaryMessage, str]:
        """Return the summary; one that the model cannot write is made without it."""
        if call.compaction.strategy == "window":
            return SummaryMessage(first=call.first, end=call.end), ""
        try:
            model = self._provider.choose(call.model, call.task.agent_id)
            with explained(model, heartbeat):
                text, usage = await self._ask(call, model, transcript)
        except ApplicationError as failure:
            if not failure.non_retryable:
                await self._tell_retry(call, failure, lease)
                raise
            return _fallback(call, transcript, Usage()), failure.message
        if text:
            return SummaryMessage(first=call.first, end=call.end, text=text, usage=usage), ""
        return _fallback(call, transcript, usage), "the model wrote no summary"

    async def _ask(
        self, call: CompactContextInput, model: str, transcript: Sequence[TranscriptMessage]
    ) -> tuple[str, Usage]:
        """Return what the model writes. It is streamed because a provider may be silent only for so long."""
        assembler = ReplyAssembler(call.length)
        request = summary_request(model, transcript, call.end, first=call.first)
        async with self._provider.stream(call.task, request, assembler) as stream:
            await read_stream(stream, assembler, lambda _: None)
        reply = self._provider.priced(request, assembler.reply)
        return reply.text.strip()[:MAX_SUMMARY_CHARACTERS], reply.usage

    async def _tell_retry(
        self, call: CompactContextInput, failure: ApplicationError, lease: CallLease
    ) -> None:
        delay = failure.next_retry_delay.total_seconds() if failure.next_retry_delay else None
        attempt = activity.info().attempt
        _log.warning("summary failed", iteration=call.iteration, attempt=attempt, failure=failure.message)
        retry = RetryScheduled(attempt=attempt, reason=failure.message, delay=delay)
        await try_publish(self._views, call.task, [retry], lease.lease)


def _fallback(
    call: CompactContextInput, transcript: Sequence[TranscriptMessage], usage: Usage
) -> SummaryMessage:
    """Return a message that leaves the newly covered messages out, and keeps an earlier summary."""
    text = earlier_text(transcript)
    if text:
        count = len(newly_covered(transcript, call.end, first=call.first))
        text += f"\n\n[{count} messages after that were left out]"
    return SummaryMessage(first=call.first, end=call.end, text=text, usage=usage)


def _events(call: CompactContextInput, summary: SummaryMessage, problem: str) -> list[TaskEvent]:
    """Return what subscribers learn; a retry that finds the summary says it again."""
    was_summed_up = summary.text and not problem
    done = "summed up" if was_summed_up else "left out"
    text = f"messages 1 to {call.end - 1} of the conversation were {done}: the prompt got too long"
    events: list[TaskEvent] = [Warned(text=f"{text}; no summary: {problem}" if problem else text)]
    if summary.usage != Usage():
        events.append(UsageReported(iteration=call.iteration, usage=summary.usage))
    return events

"""Narrates tasks while they work."""

import asyncio
import time
from collections.abc import AsyncIterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta

import structlog
from redis.exceptions import RedisError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.lease import MODEL_LEASE, ActivityHeartbeat, CallLease, heartbeating
from everloop.activities.model.models import Models
from everloop.activities.model.reply import ReplyAssembler
from everloop.activities.narrator.progress_summary import (
    ProgressSummary,
    is_enough,
    narration,
    narration_request,
)
from everloop.activities.publish import try_publish
from everloop.models.interface import Delta, ModelError
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START, StreamedEvent, position_order
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract.calls import NarrateInput
from everloop.workflows.contract.events import (
    RESPONSE_ARTIFACT,
    ArtifactChunk,
    Narrated,
    StatusChanged,
    TaskEvent,
)
from everloop.workflows.contract.fold import is_at_work
from everloop.workflows.contract.messages import EMPTY, UserMessage, text_of
from everloop.workflows.contract.ports import NarratorPort
from everloop.workflows.contract.tasks import TaskView

# The narration of one task, from its beginning to the first artifact, question or end.

MOST_SKIPPED = 63
"""Limit of the intervals without a call while the model fails."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class NarrationTerms:
    """Limits of the narration of one task.

    `least_interval`: lower bound of the agent's interval, in seconds (default 1). `max_calls`: calls of the
    model (default 200). `max_outage`: how long the view of the task may be missing (default 10 minutes).
    `longest`: time limit of the narration (default 23 hours; Temporal ends the activity after 24).
    """

    least_interval: float = 1.0
    max_calls: int = 200
    max_outage: timedelta = timedelta(minutes=10)
    longest: timedelta = timedelta(hours=23)


@dataclass(eq=False)
class Narration:
    """Narrates the news in the stream of a task. It polls the stream once an interval.

    It stops at an artifact, a question or an end after its start. Heartbeats carry the start and the number
    of calls to the next attempt; earlier narrations are in the stream.
    """

    models: Models
    views: TaskViews
    call: NarrateInput
    model: str
    terms: NarrationTerms
    lease: CallLease
    heartbeat: ActivityHeartbeat

    def __post_init__(self) -> None:
        self._task = self.call.task
        self._interval = max(self.call.narrator.interval, self.terms.least_interval)
        self._deadline = activity.info().scheduled_time + self.terms.longest
        self._has_begun = False
        self._position = START
        self._subject = ""
        self._summary = ProgressSummary()
        self._last_found_at = time.monotonic()
        self._is_found = False
        self._failures = 0
        self._skips = 0

    async def run(self) -> None:
        """Narrate the news of each interval until the narration ends. One narrator works at a time."""
        with suppress(RedisError, OSError):  # an outage costs a fence, not the narration
            await self.lease.claim()
        await self.lease.hold(self._narrate())
        await self.lease.end()

    @property
    def _calls(self) -> int:
        """Number of the model's calls, including earlier attempts."""
        return self.heartbeat.carried.get("calls", 0)

    async def _narrate(self) -> None:
        if not await self._goes_on():
            return
        while self._calls < self.terms.max_calls and datetime.now(UTC) < self._deadline:
            await asyncio.sleep(self._interval)
            if not await self._goes_on():
                return
            text = await self._ask() if self._is_due() else ""
            if text:
                if not await self._goes_on():
                    return
                await try_publish(self.views, self._task, [Narrated(text=text)], self.lease.lease)
        _log.info("narration ended: the limit of one task is reached", calls=self._calls)

    async def _goes_on(self) -> bool:
        # Also without messages: an earlier attempt may have stored some that were deleted since.
        try:
            is_over = await (self._look() if self._has_begun else self._begin())
        except (RedisError, OSError) as error:
            _log.debug("narrator cannot read its task", error_type=type(error).__name__)
            self._is_found = is_over = False
        if self._is_found:
            self._last_found_at = time.monotonic()
        elif time.monotonic() - self._last_found_at > self.terms.max_outage.total_seconds():
            _log.warning("narration ended: the view of the task is lost")
            return False
        return not is_over

    async def _begin(self) -> bool:
        """Read the earlier events; return True if the task has ended.

        A task that has just been answered may still have the status of its question.
        """
        snapshot = await self.views.load(self._task.task_id)
        self._is_found = snapshot is not None
        self.heartbeat.carried.setdefault("start", snapshot.position if snapshot else START)
        is_over = await self._reads_the_end()
        self._has_begun = True
        if snapshot is None:
            return is_over
        self._subject = _subject(snapshot.view)
        return is_over or snapshot.view.status.state.is_terminal

    async def _look(self) -> bool:
        """Read the new events; return True if the task has ended."""
        if await self._reads_the_end():
            return True
        state = await self.views.state(self._task.task_id)
        self._is_found = state is not None
        return state is not None and not is_at_work(state)

    async def _reads_the_end(self) -> bool:
        """Read new events without blocking: that would hold a connection for each narrator."""
        while page := await self.views.read({self._task.task_id: self._position}, wait=0):
            for streamed in page:
                self._position = streamed.position
                self._summary.take(streamed.event)
                if not self._has_begun and isinstance(streamed.event, Narrated):
                    self._summary.has_news = False
            if any(map(self._ends_here, page)):
                return True
        return False

    def _ends_here(self, streamed: StreamedEvent) -> bool:
        start = self.heartbeat.carried["start"]
        is_new = position_order(streamed.position) > position_order(start)
        return is_new and _ends_narration(streamed.event)

    def _is_due(self) -> bool:
        """True if this interval calls the model. While the model fails, intervals without a call increase."""
        if not (self._is_found and self._summary.has_news):
            return False
        is_due = self._skips == 0
        self._skips = max(0, self._skips - 1)
        return is_due

    async def _ask(self) -> str:
        """Return the model's narration, or an empty string if it has no news or the call fails."""
        self.heartbeat.carried["calls"] = self._calls + 1
        self.heartbeat.send()
        request = narration_request(self.model, self._subject, self._summary)
        assembler = self.models.assembler(request)
        try:
            async with self.models.stream(self._task, request, assembler) as stream:
                await _read(stream, assembler)
        except Exception as error:  # noqa: BLE001 -- whatever a provider answers, the task is not to fail by it
            self._note_failure(error)
            return ""
        self._failures = self._skips = 0
        self._summary.has_news = False
        told = assembler.reply.finish_reason not in {"refusal", "content_filter"}
        return narration(assembler.reply.text, self._summary.narrations) if told else ""

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        self._skips = min(2**self._failures - 1, MOST_SKIPPED)
        problem = str(error) if isinstance(error, ModelError) else type(error).__name__
        _log.warning("narration failed", failures=self._failures, problem=problem)


async def _read(stream: AsyncIterable[Delta], assembler: ReplyAssembler) -> None:
    """Read until the answer is long enough. Closing the stream then stops the model, and the cost."""
    async for delta in stream:
        assembler.feed(delta)
        if is_enough(assembler.reply.text):
            return
    assembler.close()


def _ends_narration(event: TaskEvent) -> bool:
    """True if clients have something better to show: an artifact, a question or the end."""
    match event:
        case ArtifactChunk():
            is_withdrawal = event.artifact_id == RESPONSE_ARTIFACT and event.part == EMPTY
            return not is_withdrawal
        case StatusChanged():
            return not is_at_work(event.state)
        case _:
            return False


def _subject(view: TaskView) -> str:
    """Return the last message of the user."""
    texts = [text_of(message.parts) for message in view.history if isinstance(message, UserMessage)]
    return texts[-1] if texts else ""


LONGEST_ANSWER = timedelta(seconds=20)
"""Timeout of the model. A later narration would be out of date."""

_TERMS = NarrationTerms()


@dataclass(eq=False)
class Narrator(NarratorPort):
    """Reads the stream of a task every few seconds, and has a model narrate the news.

    It never fails: errors are logged, and cost a narration. The usage of its calls is not counted for the
    task.
    """

    models: Models
    views: TaskViews
    leases: ToolRecords
    _: KW_ONLY
    terms: NarrationTerms = _TERMS

    def __post_init__(self) -> None:
        self._models = replace(self.models, longest_reply=LONGEST_ANSWER)

    @activity.defn
    async def narrate(self, call: NarrateInput) -> None:
        try:
            model = self._models.choose(call.narrator.model or call.model, call.task.agent_id).name
        except ApplicationError as error:
            _log.warning("nothing is narrated", failure=error.message)
            return
        name = f"narration {call.task.run_id}"
        lease = CallLease(self.leases, call.task.task_id, name, MODEL_LEASE, is_repeatable=True)
        async with heartbeating() as heartbeat:
            narration = Narration(self._models, self.views, call, model, self.terms, lease, heartbeat)
            await narration.run()

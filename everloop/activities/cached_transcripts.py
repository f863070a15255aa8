"""Reads and writes the transcript cache for activities that write the next message of a transcript."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.lease import begin_attempt
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import OpenedTranscript, Transcripts
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import StoreTranscriptInput
from everloop.workflows.contract.messages import AssistantMessage, TranscriptMessage, extend_digest, measure
from everloop.workflows.contract.ports import TranscriptPort

_log = structlog.get_logger()


def checked_transcript(
    opened: OpenedTranscript, length: int, digest: str = ""
) -> tuple[TranscriptMessage, ...]:
    """Return the messages. If there is a digest they equal those of the history.

    Raises:
        ApplicationError: `TranscriptMissing`: a message is missing or differs.
    """
    found = extend_digest("", opened.messages or ()) if digest else ""
    return _check(opened, found, length, digest)


def _check(opened: OpenedTranscript, found: str, length: int, digest: str) -> tuple[TranscriptMessage, ...]:
    if opened.messages is None:
        raise _missing(f"the cache does not hold the {length} messages of the transcript")
    if digest and found != digest:
        # A worker considered dead has written late, or a worker of another version has written or reads.
        _log.warning("cached transcript differs from the task's", length=length)
        raise _missing(f"the {length} messages of the transcript in the cache are not those of the task")
    return opened.messages


RECENT_BYTES = 16 * 1024 * 1024
"""Limit of the transcripts that a process caches. They take about twice as much memory."""


@dataclass(frozen=True)
class _Beginning:
    """The messages of a transcript up to some position, their digest and their size."""

    messages: tuple[TranscriptMessage, ...] = ()
    digest: str = ""
    size: int = 0

    def extended(self, messages: tuple[TranscriptMessage, ...]) -> "_Beginning":
        size = self.size + sum(map(measure, messages))
        return _Beginning((*self.messages, *messages), extend_digest(self.digest, messages), size)


class RecentTranscripts:
    """Cache of the transcripts that a process has read last: a call late in a task reads only new messages.

    The digest in each call proves that they equal those of the history. If it differs, all is read again.
    """

    def __init__(self, most: int = RECENT_BYTES) -> None:
        self._room = most
        self._begun: OrderedDict[str, _Beginning] = OrderedDict()

    async def open(
        self, task_id: str, length: int, digest: str, read: Callable[[int], Awaitable[OpenedTranscript]]
    ) -> OpenedTranscript:
        """Return a transcript with all of its messages, or with the reply that an earlier attempt has stored.

        `read` opens it without the given number of messages at its beginning.

        Raises:
            ApplicationError: As for `checked_transcript`.
        """
        begun = self._take(task_id, length) if digest else _Beginning()
        opened = await read(len(begun.messages))
        if isinstance(opened.reply, AssistantMessage):
            return opened
        extended = begun.extended(opened.messages or ())
        if begun.messages and (opened.messages is None or extended.digest != digest):
            opened = await read(0)
            extended = _Beginning().extended(opened.messages or ())
        _check(opened, extended.digest, length, digest)
        self._put(task_id, extended)
        return replace(opened, messages=extended.messages)

    def _take(self, task_id: str, length: int) -> _Beginning:
        begun = self._begun.pop(task_id, _Beginning())
        self._room += begun.size
        return begun if len(begun.messages) <= length else _Beginning()

    def _put(self, task_id: str, begun: _Beginning) -> None:
        self._room += self._begun.pop(task_id, _Beginning()).size - begun.size
        self._begun[task_id] = begun
        while self._room < 0:
            _, oldest = self._begun.popitem(last=False)
            self._room += oldest.size


def _missing(problem: str) -> ApplicationError:
    return ApplicationError(
        f"{problem}; send them again", type=failures.TRANSCRIPT_MISSING, non_retryable=True
    )


class CachedTranscripts(TranscriptPort):
    """Writes the transcripts that model calls read."""

    def __init__(self, transcripts: Transcripts, leases: ToolRecords) -> None:
        self._transcripts = transcripts
        self._leases = leases

    @activity.defn
    async def store_transcript(self, call: StoreTranscriptInput) -> None:
        task = call.task
        name = f"transcript {task.run_id} {activity.info().activity_id}"
        lease = await begin_attempt(self._leases, task.task_id, name)
        await self._transcripts.put(task.task_id, task.run_id, call.start, call.messages, lease)

"""How an activity that writes the next message of a transcript uses the cache."""

import structlog
from redis.exceptions import RedisError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.lease import begin_attempt
from everloop.stores.steps import Lease
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import OpenedTranscript, Reply, Transcripts
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import StoreTranscriptInput
from everloop.workflows.contract.messages import TranscriptMessage, extend_digest
from everloop.workflows.contract.ports import TranscriptPort
from everloop.workflows.contract.tasks import TaskRef

_log = structlog.get_logger()


def whole_transcript(
    opened: OpenedTranscript, length: int, digest: str = ""
) -> tuple[TranscriptMessage, ...]:
    """Return the messages, which are those that the history holds if there is a digest to compare.

    Raises:
        ApplicationError: `TranscriptMissing`: one is not there, or is another one.
    """
    if opened.messages is None:
        raise _missing(f"the cache does not hold the {length} messages of the transcript")
    if digest and extend_digest("", opened.messages) != digest:
        # A worker that was thought dead has written late, or one of another version has written or reads.
        _log.warning("cached transcript differs from the task's", length=length)
        raise _missing(f"the {length} messages of the transcript in the cache are not those of the task")
    return opened.messages


def _missing(problem: str) -> ApplicationError:
    return ApplicationError(
        f"{problem}; send them again", type=failures.TRANSCRIPT_MISSING, non_retryable=True
    )


async def keep_reply(
    transcripts: Transcripts, task: TaskRef, position: int, reply: Reply, lease: Lease
) -> Reply:
    """Return the reply that counts: the first one that any attempt stored.

    If Redis does not answer it is ours: history will hold it, and the next call fills the cache again.

    Raises:
        OvertakenError: a later attempt has claimed the call.
    """
    try:
        return await transcripts.put_reply(task.task_id, task.run_id, position, reply, lease)
    except (RedisError, OSError) as error:
        _log.warning("model reply not cached", position=position, error_type=type(error).__name__)
        return reply


class CachedTranscripts(TranscriptPort):
    """Writes to the store that model calls read."""

    def __init__(self, transcripts: Transcripts, leases: ToolRecords) -> None:
        self._transcripts = transcripts
        self._leases = leases

    @activity.defn
    async def store_transcript(self, call: StoreTranscriptInput) -> None:
        task = call.task
        name = f"transcript {task.run_id} {activity.info().activity_id}"
        lease = await begin_attempt(self._leases, task.task_id, name)
        await self._transcripts.put(task.task_id, task.run_id, call.start, call.messages, lease)

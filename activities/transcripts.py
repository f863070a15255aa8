"""How an activity that writes the next message of a transcript uses the cache."""

from collections.abc import Sequence

import structlog
from redis.exceptions import RedisError
from temporalio.exceptions import ApplicationError

from everloop.activities.lease import overtaken
from everloop.stores.leases import Lease, NotOursError
from everloop.stores.transcripts import OpenedTranscript, Reply, Transcripts
from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import TranscriptMessage, extend_digest
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


async def put_messages(
    transcripts: Transcripts, task: TaskRef, start: int, messages: Sequence[TranscriptMessage], lease: Lease
) -> None:
    """Write messages from a position on.

    Raises:
        OvertakenError: a later attempt has claimed the call.
    """
    try:
        await transcripts.put(task.task_id, task.run_id, start, messages, lease)
    except NotOursError:
        raise overtaken() from None


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
    except NotOursError:
        raise overtaken() from None
    except (RedisError, OSError) as error:
        _log.warning("model reply not cached", position=position, error_type=type(error).__name__)
        return reply

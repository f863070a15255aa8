"""How an activity that writes the next message of a transcript uses the cache."""

import structlog
from redis.exceptions import RedisError
from temporalio.exceptions import ApplicationError

from stores.transcripts import OpenedTranscript, Reply, Transcripts
from workflows.contract import failures
from workflows.contract.messages import TranscriptMessage
from workflows.contract.tasks import TaskRef

_log = structlog.get_logger()


def whole_transcript(opened: OpenedTranscript, length: int) -> tuple[TranscriptMessage, ...]:
    """Return the messages.

    Raises:
        ApplicationError: `TranscriptMissing`: one is not there.
    """
    if opened.messages is None:
        raise ApplicationError(
            f"the cache does not hold the {length} messages of the transcript; send them again",
            type=failures.TRANSCRIPT_MISSING,
            non_retryable=True,
        )
    return opened.messages


async def keep_reply(transcripts: Transcripts, task: TaskRef, position: int, reply: Reply) -> Reply:
    """Return the reply that counts: the first one that any attempt stored.

    If Redis does not answer it is ours: history will hold it, and the next call fills the cache again.
    """
    try:
        return await transcripts.put_reply(task.task_id, task.run_id, position, reply)
    except (RedisError, OSError) as error:
        _log.warning("model reply not cached", position=position, error_type=type(error).__name__)
        return reply

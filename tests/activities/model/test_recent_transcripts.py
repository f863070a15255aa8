"""The transcripts that a process caches, so that it reads only new messages."""

import pytest
from temporalio.exceptions import ApplicationError

from everloop.activities.cached_transcripts import RECENT_BYTES, RecentTranscripts
from everloop.stores.transcripts import OpenedTranscript, Transcripts
from everloop.workflows.contract.failures import TRANSCRIPT_MISSING
from everloop.workflows.contract.messages import AssistantMessage, TranscriptMessage, extend_digest
from tests.stores.examples import said
from tests.support.stores import database

MESSAGES: tuple[TranscriptMessage, ...] = tuple(said(f"m{number}") for number in range(6))


class Reader:
    """A reader of one task's transcript that records the position of each read."""

    def __init__(self, most: int = RECENT_BYTES) -> None:
        self.transcripts: Transcripts = Transcripts(database())
        self.recent = RecentTranscripts(most)
        self.read_from: list[int] = []

    async def open(
        self, messages: tuple[TranscriptMessage, ...], *, digest: str | None = None
    ) -> OpenedTranscript:
        """Open the transcript of the task's history."""

        async def read(known: int) -> OpenedTranscript:
            self.read_from.append(known)
            return await self.transcripts.open("task", "run", len(messages), cached=known)

        told = extend_digest("", messages) if digest is None else digest
        return await self.recent.open("task", len(messages), told, read)


@pytest.mark.parametrize(
    ("most", "read_from"), [(RECENT_BYTES, [0, 2, 5, 5]), (0, [0, 0, 0, 0])], ids=["room", "no room"]
)
async def test_a_call_late_in_a_task_reads_what_is_new(most: int, read_from: list[int]) -> None:
    """A late call, also a repeated one, reads only new messages; the least recently used task is evicted."""
    reader = Reader(most)
    await reader.transcripts.put("task", "run", 0, MESSAGES)
    for length in (2, 5, 5, 6):
        assert (await reader.open(MESSAGES[:length])).messages == MESSAGES[:length]
    assert reader.read_from == read_from


async def test_what_is_remembered_is_that_of_the_history_or_nothing() -> None:
    """After a reset of the task, the cached transcript differs from the history, and all of it is read."""
    reader, other = Reader(), (said("other"), *MESSAGES[1:])
    await reader.transcripts.put("task", "run", 0, MESSAGES)
    await reader.open(MESSAGES[:3])
    with pytest.raises(ApplicationError) as caught:
        await reader.open(other[:4])
    assert caught.value.type == TRANSCRIPT_MISSING
    await reader.transcripts.put("task", "run", 0, other)
    assert (await reader.open(other[:3])).messages == other[:3]
    assert (await reader.open(other[:2])).messages == other[:2]
    assert (await reader.open(other, digest="")).messages == other
    assert reader.read_from == [0, 3, 0, 0, 0, 0]


async def test_a_stored_reply_needs_no_transcript() -> None:
    """A stored reply is returned without its transcript, which is then evicted."""
    reader, reply = Reader(), AssistantMessage(text="done")
    await reader.transcripts.put("task", "run", 0, (*MESSAGES[:2], reply))
    await reader.open(MESSAGES[:1])
    assert (await reader.open(MESSAGES[:2], digest="another")).reply == reply

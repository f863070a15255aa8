"""What a process remembers of transcripts: the beginning that it has read before is not read again."""

import pytest
from temporalio.exceptions import ApplicationError

from everloop.activities.transcripts import RECENT_BYTES, RecentTranscripts
from everloop.stores.transcripts import OpenedTranscript, Transcripts
from everloop.workflows.contract.failures import TRANSCRIPT_MISSING
from everloop.workflows.contract.messages import AssistantMessage, TranscriptMessage, extend_digest
from tests.stores.examples import said
from tests.support.stores import database

MESSAGES: tuple[TranscriptMessage, ...] = tuple(said(f"m{number}") for number in range(6))


class Reader:
    """Opens transcripts of one task, and notes from which position they are read."""

    def __init__(self, most: int = RECENT_BYTES) -> None:
        self.transcripts: Transcripts = Transcripts(database())
        self.recent = RecentTranscripts(most)
        self.read_from: list[int] = []

    async def open(
        self, messages: tuple[TranscriptMessage, ...], *, digest: str | None = None
    ) -> OpenedTranscript:
        """Open what the task's history holds."""

        async def read(known: int) -> OpenedTranscript:
            self.read_from.append(known)
            return await self.transcripts.open("task", "run", len(messages), known=known)

        told = extend_digest("", messages) if digest is None else digest
        return await self.recent.open("task", len(messages), told, read)


@pytest.mark.parametrize(
    ("most", "read_from"), [(RECENT_BYTES, [0, 2, 5, 5]), (0, [0, 0, 0, 0])], ids=["room", "no room"]
)
async def test_a_call_late_in_a_task_reads_what_is_new(most: int, read_from: list[int]) -> None:
    """Also one that comes again; of tasks that have not been read for long nothing is remembered."""
    reader = Reader(most)
    await reader.transcripts.put("task", "run", 0, MESSAGES)
    for length in (2, 5, 5, 6):
        assert (await reader.open(MESSAGES[:length])).messages == MESSAGES[:length]
    assert reader.read_from == read_from


async def test_what_is_remembered_is_that_of_the_history_or_nothing() -> None:
    """A task that an operator has reset has another one; then all is read, and compared as ever."""
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
    """Nothing is compared, and what was remembered is read again."""
    reader, reply = Reader(), AssistantMessage(text="done")
    await reader.transcripts.put("task", "run", 0, (*MESSAGES[:2], reply))
    await reader.open(MESSAGES[:1])
    assert (await reader.open(MESSAGES[:2], digest="another")).reply == reply

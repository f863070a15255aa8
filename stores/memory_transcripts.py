"""The transcript cache in memory, for one process and for tests."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from stores.transcripts import Attempt, OpenedTranscript, Reply, Transcripts
from workflows.contract.messages import AssistantMessage, SummaryMessage, TranscriptMessage


class MemoryTranscripts(Transcripts):
    """Keeps everything until the process ends."""

    def __init__(self) -> None:
        self._runs: defaultdict[tuple[str, str], dict[int, TranscriptMessage]] = defaultdict(dict)
        self._attempts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    async def open(  # noqa: PLR0913 -- all that one round trip does, each by its name
        self,
        task_id: str,
        run_id: str,
        length: int,
        new: Sequence[TranscriptMessage] = (),
        *,
        previous_run: str = "",
        attempt: Attempt | None = None,
    ) -> OpenedTranscript:
        kept, start = self._runs[task_id, run_id], length - len(new)
        if previous_run:
            for position, message in self._runs[task_id, previous_run].items():
                if position < start:
                    kept.setdefault(position, message)
        kept.update(enumerate(new, start=start))
        messages = tuple(kept[position] for position in range(length) if position in kept)
        reply = kept.get(length)
        return OpenedTranscript(
            messages=messages if len(messages) == length else None,
            reply=reply if isinstance(reply, AssistantMessage | SummaryMessage) else None,
            attempt=self._count(task_id, run_id, attempt) if attempt else 1,
        )

    def _count(self, task_id: str, run_id: str, attempt: Attempt) -> int:
        counts = self._attempts[task_id, run_id]
        counts[attempt.call] = max(counts[attempt.call] + 1, attempt.count)
        return counts[attempt.call]

    async def put(self, task_id: str, run_id: str, start: int, messages: Sequence[TranscriptMessage]) -> None:
        kept = self._runs[task_id, run_id]
        if start == 0:
            kept.clear()
            self._attempts.pop((task_id, run_id), None)
        kept.update(enumerate(messages, start=start))

    async def put_reply(self, task_id: str, run_id: str, position: int, reply: Reply) -> Reply:
        kept = self._runs[task_id, run_id]
        standing = kept.get(position)
        if isinstance(standing, type(reply)):
            return standing
        kept[position] = reply
        return reply

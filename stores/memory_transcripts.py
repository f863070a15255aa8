"""The transcript cache in memory, for one process and for tests."""

from collections import defaultdict
from collections.abc import Sequence

from stores.transcripts import OpenedTranscript, Transcripts
from workflows.contract.messages import AssistantMessage, TranscriptMessage


class MemoryTranscripts(Transcripts):
    """Keeps everything until the process ends."""

    def __init__(self) -> None:
        self._runs: defaultdict[tuple[str, str], dict[int, TranscriptMessage]] = defaultdict(dict)

    async def open(
        self, task_id: str, run_id: str, length: int, new: Sequence[TranscriptMessage] = ()
    ) -> OpenedTranscript:
        kept = self._runs[task_id, run_id]
        kept.update(enumerate(new, start=length - len(new)))
        messages = tuple(kept[position] for position in range(length) if position in kept)
        reply = kept.get(length)
        return OpenedTranscript(
            messages=messages if len(messages) == length else None,
            reply=reply if isinstance(reply, AssistantMessage) else None,
        )

    async def put(self, task_id: str, run_id: str, start: int, messages: Sequence[TranscriptMessage]) -> None:
        kept = self._runs[task_id, run_id]
        if start == 0:
            kept.clear()
        kept.update(enumerate(messages, start=start))

    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: AssistantMessage
    ) -> AssistantMessage:
        standing = self._runs[task_id, run_id].setdefault(position, reply)
        return standing if isinstance(standing, AssistantMessage) else reply

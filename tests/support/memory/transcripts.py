"""The transcript cache in memory, for tests: what they compare the real store with."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from everloop.stores.steps import Lease, Step
from everloop.stores.transcripts import OpenedTranscript, Reply, Transcripts, fitting
from everloop.workflows.contract.messages import AssistantMessage, SummaryMessage, TranscriptMessage
from tests.support.memory.steps import MemorySteps, memory_step


class MemoryTranscripts(Transcripts):
    """Keeps everything until the process ends. Leases are not looked at, as in `MemoryTaskViews`."""

    def __init__(self) -> None:
        self._runs: defaultdict[tuple[str, str], dict[int, TranscriptMessage]] = defaultdict(dict)
        self.steps = MemorySteps()

    async def open(  # noqa: PLR0913 -- all that one round trip does, each by its name
        self,
        task_id: str,
        run_id: str,
        length: int,
        new: Sequence[TranscriptMessage] = (),
        *,
        previous_run: str = "",
        known: int = 0,
    ) -> OpenedTranscript:
        kept, start = self._runs[task_id, run_id], length - len(new)
        if previous_run:
            for position, message in self._runs[task_id, previous_run].items():
                if position < start:
                    kept.setdefault(position, message)
        kept.update(enumerate(new, start=start))
        messages = tuple(kept[position] for position in range(known, length) if position in kept)
        reply = kept.get(length)
        return OpenedTranscript(
            messages=messages if len(messages) == length - known else None,
            reply=reply if isinstance(reply, AssistantMessage | SummaryMessage) else None,
        )

    def opening(  # noqa: PLR0913 -- the interface's
        self,
        task_id: str,
        run_id: str,
        length: int,
        new: Sequence[TranscriptMessage] = (),
        *,
        previous_run: str = "",
        known: int = 0,
        is_only: bool = False,
    ) -> Step[OpenedTranscript]:
        return memory_step(
            task_id,
            lambda: self.open(task_id, run_id, length, new, previous_run=previous_run, known=known),
            lambda opened: is_only and (opened.messages is None or opened.reply is not None),
        )

    async def newest(
        self, task_id: str, run_id: str, max_bytes: int
    ) -> Mapping[int, TranscriptMessage] | None:
        kept = self._runs[task_id, run_id]
        if 0 not in kept:
            return None
        sizes = ((at, len(kept[at].model_dump_json().encode())) for at in sorted(kept, reverse=True))
        return {position: kept[position] for position in fitting(sizes, max_bytes)}

    async def put(
        self,
        task_id: str,
        run_id: str,
        start: int,
        messages: Sequence[TranscriptMessage],
        lease: Lease | None = None,
    ) -> None:
        kept = self._runs[task_id, run_id]
        if start == 0:
            kept.clear()
        kept.update(enumerate(messages, start=start))

    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: Reply, lease: Lease | None = None
    ) -> Reply:
        kept = self._runs[task_id, run_id]
        standing = kept.get(position)
        if isinstance(standing, type(reply)):
            return standing
        kept[position] = reply
        return reply

    def adding(  # noqa: PLR0913 -- the interface's
        self,
        task_id: str,
        run_id: str,
        position: int,
        message: TranscriptMessage,
        lease: Lease | None = None,
        *,
        is_first: bool = False,
    ) -> Step[TranscriptMessage | None]:
        async def add() -> TranscriptMessage | None:
            return self._runs[task_id, run_id].setdefault(position, message)

        return memory_step(task_id, add, lambda standing: is_first and standing != message)

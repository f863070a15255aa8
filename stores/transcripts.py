"""The transcript cache: the messages that a model call reads."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from workflows.contract.messages import AssistantMessage, TranscriptMessage


@dataclass(frozen=True)
class OpenedTranscript:
    """What the cache holds for one model call.

    `messages` is None unless every position below the asked length is there. `reply` is the message at
    that length: a reply that an earlier attempt of the same call left behind.
    """

    messages: tuple[TranscriptMessage, ...] | None
    reply: AssistantMessage | None


class Transcripts(ABC):
    """Position → message, for each run of each task. Losing it costs one re-send, never a result."""

    @abstractmethod
    async def open(
        self, task_id: str, run_id: str, length: int, new: Sequence[TranscriptMessage] = ()
    ) -> OpenedTranscript:
        """Write `new` as the last of `length` positions, then read all of them and the one after."""

    @abstractmethod
    async def put(self, task_id: str, run_id: str, start: int, messages: Sequence[TranscriptMessage]) -> None:
        """Write messages from position `start` on, over whatever stands there."""

    @abstractmethod
    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: AssistantMessage
    ) -> AssistantMessage:
        """Write the reply unless the position is taken; return the reply that stands there now."""

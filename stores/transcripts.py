"""The transcript cache: the messages that a model call reads."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from workflows.contract.messages import AssistantMessage, SummaryMessage, TranscriptMessage

Reply = TypeVar("Reply", AssistantMessage, SummaryMessage)
"""What a model makes of a transcript: the next message, or one that stands for older ones."""


@dataclass(frozen=True)
class OpenedTranscript:
    """What the cache holds for one model call.

    `messages` is None unless every position below the asked length is there. `reply` is the message at
    that length: a reply or summary that an earlier attempt of the same call left behind.
    """

    messages: tuple[TranscriptMessage, ...] | None
    reply: AssistantMessage | SummaryMessage | None


class Transcripts(ABC):
    """Position → message, for each run of each task. Losing it costs one re-send, never a result."""

    @abstractmethod
    async def open(
        self,
        task_id: str,
        run_id: str,
        length: int,
        new: Sequence[TranscriptMessage] = (),
        *,
        previous_run: str = "",
    ) -> OpenedTranscript:
        """Write `new` as the last of `length` positions, then read all of them and the one after.

        If there is nothing of this run yet, it begins as a copy of what `previous_run` has before `new`.
        """

    @abstractmethod
    async def count_attempt(self, task_id: str, run_id: str, call: str, *, at_least: int = 1) -> int:
        """Return a number for the attempt that begins now: greater than that of any before at this call."""

    @abstractmethod
    async def put(self, task_id: str, run_id: str, start: int, messages: Sequence[TranscriptMessage]) -> None:
        """Write messages from position `start` on, over whatever stands there."""

    @abstractmethod
    async def put_reply(self, task_id: str, run_id: str, position: int, reply: Reply) -> Reply:
        """Write the reply unless one of its kind stands there; return the one that stands there now."""

"""The transcript cache: the messages that a model call reads."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from everloop.stores.leases import Lease
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    ToolMessage,
    TranscriptMessage,
)

Reply = TypeVar("Reply", AssistantMessage, SummaryMessage)
"""What a model makes of a transcript: the next message, or one that stands for older ones."""


@dataclass(frozen=True)
class OpenedTranscript:
    """What the cache holds for one model call.

    `messages` is None unless every position below the asked length is there. `reply` is the message at
    that length: a reply or summary that an earlier attempt of the same call left behind. `attempt` is the
    number of this attempt.
    """

    messages: tuple[TranscriptMessage, ...] | None
    reply: AssistantMessage | SummaryMessage | None
    attempt: int = 1


@dataclass(frozen=True)
class Attempt:
    """One attempt at a call. `call` names it within its run; Temporal has counted `count` attempts.

    Temporal begins again when an operator resets an activity; `OpenedTranscript.attempt` is greater than that
    of any attempt before, and the same however often one attempt asks. `lease` is what it holds.
    """

    call: str
    count: int
    lease: Lease


class Transcripts(ABC):
    """Position → message, for each run of each task. Losing it costs one re-send, never a result."""

    @abstractmethod
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
        """Write `new` as the last of `length` positions, then read all of them and the one after.

        What this run lacks before `new` is first copied from `previous_run`, which it continues.

        Raises:
            NotOursError: the attempt was overtaken.
        """

    @abstractmethod
    async def newest(
        self, task_id: str, run_id: str, max_bytes: int
    ) -> Mapping[int, TranscriptMessage] | None:
        """Return the newest messages that together have so many bytes at most, by position, oldest first.

        A larger message is left out, and so is one that cannot be read. None: the beginning is not there, so
        that the cache was lost.
        """

    @abstractmethod
    async def put(
        self,
        task_id: str,
        run_id: str,
        start: int,
        messages: Sequence[TranscriptMessage],
        lease: Lease | None = None,
    ) -> None:
        """Write messages from position `start` on, over whatever stands there.

        From position 0 on, this is the whole transcript that is sent again: nothing else stays, and attempts
        count anew.

        Raises:
            NotOursError: a later attempt has claimed the call that `lease` names.
        """

    @abstractmethod
    async def put_result(
        self, task_id: str, run_id: str, position: int, result: ToolMessage, lease: Lease | None = None
    ) -> None:
        """Write the result of a tool call unless something stands there.

        Raises:
            NotOursError: as for `put`.
        """

    @abstractmethod
    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: Reply, lease: Lease | None = None
    ) -> Reply:
        """Write the reply unless one of its kind stands there; return the one that stands there now.

        Raises:
            NotOursError: as for `put`.
        """


def fitting(sizes: Iterable[tuple[int, int]], max_bytes: int) -> list[int]:
    """Return which positions fit, in order; `sizes` are positions and their sizes, the newest first."""
    room, chosen = max_bytes, list[int]()
    for position, size in sizes:
        if size <= room:
            chosen.append(position)
            room -= size
    return sorted(chosen)

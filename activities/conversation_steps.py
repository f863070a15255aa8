"""What is summed up next of a conversation, by its strategy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from everloop.stores.conversations import ConversationSummary
from everloop.stores.recent_messages import safe_ends
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.tasks import MemorySpec

FAN_IN = 4
"""So many summaries of one level become one of the next level ("hierarchical")."""

MAX_BLOCK_CHARACTERS = 60_000
"""Of the messages, as JSON, that one call of the model sums up, unless one of them alone has more."""


@dataclass(frozen=True)
class SummaryStep:
    """A summary to write: of earlier summaries, and of messages after them, up to position `end`."""

    level: int
    start: int
    end: int
    earlier: tuple[ConversationSummary, ...] = ()
    messages: tuple[ConversationMessage, ...] = ()


def next_step(
    memory: MemorySpec,
    summaries: Sequence[ConversationSummary],
    start: int,
    messages: Sequence[ConversationMessage],
) -> SummaryStep | None:
    """Return what to sum up, None if nothing is left. `messages` are too old to be recalled, from `start` on.

    No summary covers them. Their range is cut into blocks so that no call of the model has to read too much.
    """
    if memory.strategy == "hierarchical" and (full := _full_level(summaries)):
        return SummaryStep(full[0].level + 1, full[0].start, full[-1].end, earlier=tuple(full))
    if not messages:
        return None
    if memory.strategy == "hierarchical":
        block = messages[: _block_end(messages, memory.max_messages)]
        return SummaryStep(0, start, start + len(block), messages=tuple(block))
    block = messages[: _block_end(messages, len(messages))]
    first = summaries[0].start if summaries else start
    return SummaryStep(0, first, start + len(block), tuple(summaries), tuple(block))


def _full_level(summaries: Sequence[ConversationSummary]) -> list[ConversationSummary]:
    """Return the oldest summaries in a row that are to become one; none if there are not enough."""
    for _, group in groupby(summaries, key=lambda summary: summary.level):
        if len(row := list(group)) >= FAN_IN:
            return row[:FAN_IN]
    return []


def _block_end(messages: Sequence[ConversationMessage], most: int) -> int:
    """Return how many messages one summary takes: those that fit, or else the fewest that belong together."""
    ends = [end for end in safe_ends(messages) if end]
    sizes = list(accumulate(len(message.model_dump_json()) for message in messages))
    fitting = [end for end in ends if end <= most and sizes[end - 1] <= MAX_BLOCK_CHARACTERS]
    return max(fitting, default=ends[0])

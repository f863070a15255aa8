"""Which messages of a transcript make room for newer ones, and when."""

from collections.abc import Sequence

from everloop.workflows.contract.messages import SpokenMessage, SummaryMessage, ToolMessage, TranscriptMessage
from everloop.workflows.contract.tasks import AgentSpec
from everloop.workflows.contract.transcripts import measure

BYTES_PER_TOKEN = 4
"""A rule of thumb, for what the provider has not counted yet."""


def is_over_budget(agent: AgentSpec, prompt_tokens: int) -> bool:
    """Whether the next prompt is about as long as the agent allows."""
    budget = agent.compaction and agent.compaction.prompt_tokens
    return budget is not None and prompt_tokens >= budget


def find_end(transcript: Sequence[TranscriptMessage], *, first: int = 0, least: float = 0) -> int | None:
    """Return the `SummaryMessage.end` that takes out about the older half of what a prompt holds.

    The task's first message and the last ones stay, and no result is parted from its call. None: nothing can
    go, or less than the share `least`.
    """
    ends = (message.end for message in transcript if isinstance(message, SummaryMessage))
    start = max(ends, default=first + 1)
    sizes = [measure(message) if isinstance(message, SpokenMessage) else 0 for message in transcript]
    total = sum(sizes[start:])
    taken, found = 0, None
    for end in range(start + 1, len(transcript)):
        taken += sizes[end - 1]
        if _may_come_first(transcript[end]):
            found = end if taken >= least * total else None
            if taken >= total / 2:
                break
    return found


def estimate_tokens(message: TranscriptMessage) -> int:
    """Return about how many tokens a message adds to a prompt."""
    return measure(message) // BYTES_PER_TOKEN


def _may_come_first(message: TranscriptMessage) -> bool:
    """Whether a prompt may go on with this message; a result without its call is refused by providers."""
    return isinstance(message, SpokenMessage) and not isinstance(message, ToolMessage)

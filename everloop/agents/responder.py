"""Agents without a language model: a function of what was said."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from everloop.workflows.contract.messages import AssistantMessage, TranscriptMessage


@dataclass(frozen=True)
class Turn:
    """What the agent is to reply to.

    `messages` are all that stand in the transcript, oldest first. `decides`: the reply is to say whether
    there is to be a task at all (agents with `routing="auto"`): a text is the answer, a call of `create_task`
    makes a task.
    """

    messages: Sequence[TranscriptMessage]
    decides: bool


Responder = Callable[[Turn], Awaitable[AssistantMessage]]
"""Replies in place of a model: with a text, or with calls of the agent's tools. It may be called again for
the same turn after a crash; the reply that was stored first counts."""

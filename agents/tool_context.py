"""What a tool may know and do besides its arguments."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ToolContext:
    """The context of one tool call.

    `idempotency_key` is the same for every attempt of the same call: hand it to services that accept one.
    `attempt` counts from 1. `progress` tells subscribers how far the call is, in a few words.
    """

    task_id: str
    context_id: str
    owner: str
    call_id: str
    attempt: int
    idempotency_key: str
    progress: Callable[[str], Awaitable[None]]

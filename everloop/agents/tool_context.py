"""What a tool may know and do besides its arguments."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import JsonValue

from everloop.agents.hooks import ANYBODY
from everloop.agents.tool_artifacts import ToolArtifacts
from everloop.workflows.contract.questions import Answer
from everloop.workflows.contract.tasks import Identity


async def _no_secret(_name: str) -> JsonValue:
    return None


async def _forget(_value: JsonValue) -> None:
    return None


def _yes() -> bool:
    return True


@dataclass(frozen=True)
class ToolContext:
    """The context of one tool call.

    `idempotency_key` is the same for every attempt of the same call: hand it to services that accept one.
    `attempt` counts from 1. `progress` tells subscribers how far the call is, in a few words. `answers` are
    what the tool's own questions came to, oldest first. `secret` returns what a client supplied for an
    `AuthRequired` of that name, None if there is nothing yet; it raises if their store is silent for 20 s.
    `artifacts` are those of the context: read them, and write what the task is to leave behind. `auth` is who
    started the task, as the gateway recognised them: nothing secret.

    `await keep(value)` lets a later attempt of this call, or the same call after a question, know what an
    attempt has come to so far (a job's id, a position): it finds it in `kept`, which is None before.
    `is_wanted()` is for an attempt that Temporal took for lost and that is stopped after all: False if the
    call has ended for good, so that no other attempt goes on with it.
    """

    task_id: str
    context_id: str
    owner: str
    call_id: str
    attempt: int
    idempotency_key: str
    progress: Callable[[str], Awaitable[None]]
    artifacts: ToolArtifacts
    auth: Identity = ANYBODY
    answers: tuple[Answer, ...] = ()
    secret: Callable[[str], Awaitable[JsonValue]] = _no_secret
    kept: JsonValue = None
    keep: Callable[[JsonValue], Awaitable[None]] = _forget
    is_wanted: Callable[[], bool] = _yes

    @property
    def answer(self) -> JsonValue:
        """The value of the last answer; None if the tool has not asked yet."""
        return self.answers[-1].value if self.answers else None

"""What a log line says of the task that it is about."""

from hashlib import sha256
from typing import Protocol

from structlog.contextvars import bind_contextvars

_HASH_LENGTH = 12


class OfTask(Protocol):
    """What names its task: a `TaskRef`, or a `TaskView`."""

    @property
    def task_id(self) -> str: ...
    @property
    def context_id(self) -> str: ...
    @property
    def owner(self) -> str: ...


def owner_hash(owner: str) -> str:
    """Return what stands for an owner in logs: names of owners may be those of people."""
    return sha256(owner.encode()).hexdigest()[:_HASH_LENGTH]


def task_fields(task: OfTask) -> dict[str, str]:
    """Return the fields of a line that is about a task."""
    return {"task_id": task.task_id, "context_id": task.context_id, "owner_hash": owner_hash(task.owner)}


def bind_task(task: OfTask) -> None:
    """Put the fields on all further lines of this asyncio task, and of those that it starts."""
    bind_contextvars(**task_fields(task))


def bind_owner(owner: str) -> None:
    """Put the hash of who calls on all further lines of this asyncio task, and of those that it starts."""
    bind_contextvars(owner_hash=owner_hash(owner))

"""What clients supplied for the tools of a task, and nobody else may see."""

from abc import ABC, abstractmethod

from pydantic import JsonValue


class Secrets(ABC):
    """(task, name) → JSON value. It never stands in a history, view, event, log line or trace."""

    @abstractmethod
    async def put(self, task_id: str, name: str, value: JsonValue) -> None:
        """Keep a secret; one of the same name is replaced."""

    @abstractmethod
    async def get(self, task_id: str, name: str) -> JsonValue:
        """Return a secret, None if there is none."""

    @abstractmethod
    async def forget(self, task_id: str) -> None:
        """Forget all secrets of a task; repeating it changes nothing."""

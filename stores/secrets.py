"""What clients supplied for the tools of a task, and nobody else may see."""

from abc import ABC, abstractmethod

from pydantic import JsonValue


class Secrets(ABC):
    """JSON values that never stand in a history, view, event, log line or trace.

    A message brings a secret before anybody knows whether its task takes it as an answer. Once it has, the
    tool that asked accepts it under the name that it asked for.
    """

    @abstractmethod
    async def put(self, task_id: str, message_id: str, value: JsonValue) -> None:
        """Keep what a message has brought; no tool sees it yet."""

    @abstractmethod
    async def accept(self, task_id: str, message_id: str, name: str) -> None:
        """Make what a message has brought the secret of this name, in place of another one.

        Repeating it changes nothing, also when another message has brought a new one since; nor does it where
        nothing was brought, or it is forgotten.
        """

    @abstractmethod
    async def get(self, task_id: str, name: str) -> JsonValue:
        """Return an accepted secret, None if there is none."""

    @abstractmethod
    async def forget(self, task_id: str) -> None:
        """Forget all secrets of a task, accepted or not; repeating it changes nothing."""

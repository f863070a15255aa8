"""How much each owner takes of what belongs to all: requests and open tasks."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta

RESERVATION = timedelta(minutes=1)
"""How long a task is counted that was announced, but of which nothing has been seen yet."""


@dataclass(frozen=True)
class Rate:
    """How many requests a minute, evenly spread; up to `burst` of them may come at once."""

    per_minute: int
    burst: int

    @property
    def interval(self) -> float:
        """Seconds that one request uses up."""
        return 60 / self.per_minute


class Quotas(ABC):
    """Counts over all processes; every method is one atomic step."""

    @abstractmethod
    async def take_request(self, owner: str, rate: Rate) -> float:
        """Count a request and return 0; or count nothing, and return in how many seconds there is room."""

    @abstractmethod
    async def reserve_task(self, owner: str, task_id: str, limit: int) -> bool:
        """Count a task that is about to start, and return whether it may: not if `limit` others are open.

        A task that is counted already, or that has been seen, may in any case. The reservation lasts for
        `RESERVATION`. Once its view exists, a task counts by itself, until it ends; tasks of sub-agents
        never do.
        """

    @abstractmethod
    async def release_task(self, owner: str, task_id: str) -> None:
        """Count a task no longer that will not come to exist; one that exists counts on."""

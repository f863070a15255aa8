"""Who gets in, and how much they may ask for. Interfaces; without settings everybody may do everything."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from a2a.types import a2a_pb2 as pb

from everloop.gateway.callers import Caller


class Authenticator(ABC):
    """Recognises callers by the headers (or gRPC metadata) of their calls."""

    @abstractmethod
    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        """Return who calls. Names of headers are in small letters; `peer` is the address they come from.

        Raises:
            UnauthenticatedError: nobody whom we know; it carries the challenge.
        """

    @abstractmethod
    def security_schemes(self) -> Mapping[str, pb.SecurityScheme]:
        """Return what agent cards say of it, by name (A2A 1.0 §4.5); any one of them is enough."""


class RequestLimits(ABC):
    """Keeps one owner from taking what belongs to all, over all gateways together."""

    @abstractmethod
    async def admit_request(self, owner: str) -> None:
        """Count a request.

        Raises:
            TooManyRequestsError: it is one too many; it says when to come back.
        """

    @abstractmethod
    async def reserve_task(self, owner: str, task_id: str) -> None:
        """Count a task that is about to start, until it ends; repeating it counts it once.

        Raises:
            TooManyRequestsError: too many tasks of this owner are open.
        """

    @abstractmethod
    async def release_task(self, owner: str, task_id: str) -> None:
        """Count a task no longer that will not come to exist, because its message was answered at once."""


class Anybody(Authenticator):
    """Takes every caller for the anonymous one."""

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        return Caller()

    def security_schemes(self) -> Mapping[str, pb.SecurityScheme]:
        return {}


class Unlimited(RequestLimits):
    """Refuses nothing."""

    async def admit_request(self, owner: str) -> None:
        pass

    async def reserve_task(self, owner: str, task_id: str) -> None:
        pass

    async def release_task(self, owner: str, task_id: str) -> None:
        pass


@dataclass(frozen=True)
class Guards:
    """What stands before the agents."""

    authenticator: Authenticator = field(default_factory=Anybody)
    limits: RequestLimits = field(default_factory=Unlimited)

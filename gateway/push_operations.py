"""Push notification configs of tasks: set, read and removed by clients (A2A 1.0 §3.1.7 to §3.1.10)."""

from abc import ABC, abstractmethod

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import PushNotificationNotSupportedError

from everloop.workflows.contract.tasks import TaskView


class PushOperations(ABC):
    """What clients do with the push notification configs of tasks that they may see.

    `is_legacy`: the config is set by a client of A2A 0.3, whose notifications are tasks of that version.
    """

    @abstractmethod
    async def check(self, config: pb.TaskPushNotificationConfig, owner: str, *, task_id: str = "") -> None:
        """Refuse what no config can be, before its task starts, or the task of this id gets its message.

        Raises:
            InvalidParamsError: its URL is none that this server sends to, a field does not fit, or the task
                has too many.
        """

    @abstractmethod
    async def create(
        self, view: TaskView, config: pb.TaskPushNotificationConfig, *, heard: str, is_legacy: bool
    ) -> pb.TaskPushNotificationConfig:
        """Set a config of a task, in the place of one of the same id; repeating it changes nothing.

        `heard`: up to which position of its stream the client knows the task; empty: it is told the whole
        task first. It holds unless the config had the same URL before.

        Raises:
            InvalidParamsError: as for `check`.
        """

    @abstractmethod
    async def get(self, task_id: str, config_id: str) -> pb.TaskPushNotificationConfig:
        """Return a config.

        Raises:
            TaskNotFoundError: the task has no such config.
        """

    @abstractmethod
    async def list(
        self, params: pb.ListTaskPushNotificationConfigsRequest
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        """Return the configs of a task, page by page."""

    @abstractmethod
    async def delete(self, task_id: str, config_id: str) -> None:
        """Remove a config; one that is not there is no error."""


class NoPush(PushOperations):
    """A server that sends no notifications."""

    async def check(self, config: pb.TaskPushNotificationConfig, owner: str, *, task_id: str = "") -> None:
        raise PushNotificationNotSupportedError

    async def create(
        self, view: TaskView, config: pb.TaskPushNotificationConfig, *, heard: str, is_legacy: bool
    ) -> pb.TaskPushNotificationConfig:
        raise PushNotificationNotSupportedError

    async def get(self, task_id: str, config_id: str) -> pb.TaskPushNotificationConfig:
        raise PushNotificationNotSupportedError

    async def list(
        self, params: pb.ListTaskPushNotificationConfigsRequest
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        raise PushNotificationNotSupportedError

    async def delete(self, task_id: str, config_id: str) -> None:
        raise PushNotificationNotSupportedError

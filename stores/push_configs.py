"""Who is notified of a task by webhook, and what they have heard of it."""

from abc import ABC, abstractmethod

from everloop.stores.task_views import Snapshot
from everloop.workflows.contract.wire import Wire

MAX_CONFIGS = 10
"""How many push notification configs a task may have."""


class TooManyPushConfigsError(Exception):
    """The task has as many push notification configs as it may have. Delete one, or change one of them."""


class PushConfig(Wire):
    """What a client wants to be told, where, and how it knows that it is us.

    `token` is sent back as it is; `scheme` and `credentials` are those of HTTP's Authorization header; empty:
    none is sent. `owner` is the task's: owners get equal parts of the deliveries that there can be.
    `is_legacy`: the client speaks A2A 0.3. `context_id` and `public_url` are what a notification needs of the
    task and of the gateway. It is never shown as text: it holds secrets.
    """

    id: str
    task_id: str
    owner: str
    context_id: str
    url: str
    token: str = ""
    has_authentication: bool = False
    scheme: str = ""
    credentials: str = ""
    is_legacy: bool = False
    public_url: str

    def __repr__(self) -> str:
        return f"PushConfig(id={self.id!r}, task_id={self.task_id!r})"

    __str__ = __repr__


class PushConfigs(ABC):
    """The configs of each task, and up to which position of its stream the client of each has heard it."""

    @abstractmethod
    async def put(self, config: PushConfig, *, position: str = "") -> None:
        """Set a config, in the place of one of the same id.

        `position` is up to where its webhook has heard the task; empty: it hears the whole task first. It
        holds unless the config had the same URL before.

        Raises:
            TooManyPushConfigsError: the task has 10 others.
        """

    @abstractmethod
    async def get(self, task_id: str, config_id: str) -> PushConfig | None:
        """Return a config, and keep those of the task for their whole time again."""

    @abstractmethod
    async def list_configs(self, task_id: str) -> list[PushConfig]:
        """Return all configs of a task, by id."""

    @abstractmethod
    async def config_ids(self, task_id: str) -> list[str]:
        """Return the ids of the configs of a task, in no order; it is cheap where there are none."""

    @abstractmethod
    async def delete(self, task_id: str, config_id: str) -> None:
        """Remove a config; one that is not there is no error."""

    @abstractmethod
    async def delete_unchanged(self, config: PushConfig) -> None:
        """Remove a config, unless it was set anew meanwhile with anything else in it."""

    @abstractmethod
    async def knows(self, task_id: str) -> bool:
        """Whether a task ever had configs, even if all were removed; False: those that it had are lost."""

    @abstractmethod
    async def position(self, task_id: str, config_id: str) -> str:
        """Return up to where the webhook has heard the task; empty: it has heard nothing."""

    @abstractmethod
    async def advance(self, config: PushConfig, *, start: str, end: str) -> None:
        """Note that the webhook, which had heard the task up to `start`, has heard it up to `end`.

        It does nothing where that is no longer so: the config was removed, or set anew for another webhook.
        """


def first_position(snapshot: Snapshot) -> str:
    """Return where the webhook of a config begins that is set for a task as it stands here.

    Of one that works, behind all that has happened, so that it misses nothing of what happens from now on;
    of one that has ended, or waits for somebody, it hears the whole task first.
    """
    state = snapshot.view.status.state
    return "" if state.is_terminal or state.is_interrupted else snapshot.position

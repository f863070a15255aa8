"""Push notification configs in the store, and the deliveries that they start."""

from collections.abc import Sequence

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from everloop.gateway.errors import TemporalUnavailableError
from everloop.gateway.push_operations import PushOperations
from everloop.gateway.push_requests import check_config, read_config, show_config, show_page
from everloop.gateway.requests import check_id
from everloop.runtime.outbound import UnfitUrlError, WebhookPolicy
from everloop.stores.push.configs import MAX_CONFIGS, PushConfig, PushConfigs, TooManyPushConfigsError
from everloop.stores.push.deliveries import PushDeliveries
from everloop.stores.push.notifying import Notify, NotToldError
from everloop.stores.push.settings import PushSettings
from everloop.workflows.contract.names import derive_push_config_id
from everloop.workflows.contract.tasks import TaskView


class _TemporalAwayError(NotToldError, TemporalUnavailableError):
    """Temporal does not answer. Nothing is lost: send the same request again in a few seconds."""


class StoredPush(PushOperations):
    """Keeps what clients ask for, then lets a delivery look at the task.

    If we die in between, the next status of the task starts the delivery, or the client's retry.
    """

    def __init__(self, configs: PushConfigs, notify: Notify, policy: WebhookPolicy, public_url: str) -> None:
        self._configs = configs
        self._notify = notify
        self._policy = policy
        self._public_url = public_url

    async def check(self, config: pb.TaskPushNotificationConfig, owner: str, *, task_id: str = "") -> None:
        check_config(config)
        try:
            await self._policy.check(config.url, owner=owner)
        except UnfitUrlError as error:
            raise InvalidParamsError(f"url {error}") from None
        if task_id:
            config_ids = await self._configs.config_ids(task_id)
            is_another = (config.id or derive_push_config_id(task_id, config.url)) not in config_ids
            if is_another and len(config_ids) >= MAX_CONFIGS:
                raise _too_many()

    async def create(
        self, view: TaskView, config: pb.TaskPushNotificationConfig, *, heard: str, is_legacy: bool
    ) -> pb.TaskPushNotificationConfig:
        await self.check(config, view.owner)
        wanted = read_config(config, view, self._public_url, is_legacy=is_legacy)
        await self._put(wanted, heard)
        await self._notify(wanted.task_id, [wanted.id])
        return show_config(wanted)

    async def get(self, task_id: str, config_id: str) -> pb.TaskPushNotificationConfig:
        config = await self._find(task_id, config_id)
        if config is None:
            raise TaskNotFoundError(f"task {task_id!r} has no push notification config {config_id!r}")
        return show_config(config)

    async def list(
        self, params: pb.ListTaskPushNotificationConfigsRequest
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        return show_page(await self._configs.list_configs(params.task_id), params)

    async def delete(self, task_id: str, config_id: str) -> None:
        await self._configs.delete(task_id, check_id(config_id, "id"))

    async def _put(self, config: PushConfig, position: str) -> None:
        try:
            await self._configs.put(config, position=position)
        except TooManyPushConfigsError:
            raise _too_many() from None

    async def _find(self, task_id: str, config_id: str) -> PushConfig | None:
        """Return a config; without an id, which A2A 0.3 allows, the only one."""
        if config_id:
            return await self._configs.get(task_id, check_id(config_id, "id"))
        configs = await self._configs.list_configs(task_id)
        if len(configs) > 1:
            raise InvalidParamsError(f"id is missing, and the task has {len(configs)} configs; give one")
        return configs[0] if configs else None


def make_push(
    settings: PushSettings, configs: PushConfigs, notify: Notify, public_url: str
) -> PushOperations | None:
    """Return what clients may do; None: these settings refuse notifications."""
    return StoredPush(configs, notify, settings.policy, public_url) if settings.push else None


def notifier(deliveries: PushDeliveries) -> Notify:
    """Return what lets deliveries look at their task; where Temporal does not answer, clients hear that."""

    async def notify(task_id: str, config_ids: Sequence[str]) -> None:
        try:
            await deliveries.notify(task_id, config_ids)
        except NotToldError as error:
            raise _TemporalAwayError from error.__cause__

    return notify


def _too_many() -> InvalidParamsError:
    return InvalidParamsError(TooManyPushConfigsError.__doc__)

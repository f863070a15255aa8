"""Push notification configs that are kept, and nothing else done with them."""

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotFoundError

from everloop.gateway.operations.push import PushOperations
from everloop.workflows.contract.tasks import TaskView


class RememberedPush(PushOperations):
    """Keeps configs and sends nothing."""

    def __init__(self) -> None:
        self.configs: dict[tuple[str, str], pb.TaskPushNotificationConfig] = {}

    async def check(self, config: pb.TaskPushNotificationConfig, owner: str, *, task_id: str = "") -> None:
        pass

    async def create(
        self, view: TaskView, config: pb.TaskPushNotificationConfig, *, acknowledged: str, is_legacy: bool
    ) -> pb.TaskPushNotificationConfig:
        kept = pb.TaskPushNotificationConfig()
        kept.CopyFrom(config)
        kept.task_id, kept.id = view.task_id, config.id or "only"
        self.configs[view.task_id, kept.id] = kept
        return kept

    async def get(self, task_id: str, config_id: str) -> pb.TaskPushNotificationConfig:
        try:
            return self.configs[task_id, config_id or "only"]
        except KeyError:
            raise TaskNotFoundError(f"no config {config_id!r} here") from None

    async def list(
        self, params: pb.ListTaskPushNotificationConfigsRequest
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        kept = [config for (task_id, _), config in self.configs.items() if task_id == params.task_id]
        return pb.ListTaskPushNotificationConfigsResponse(configs=kept)

    async def delete(self, task_id: str, config_id: str) -> None:
        self.configs.pop((task_id, config_id), None)

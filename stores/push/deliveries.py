"""Starts the workflows that notify clients, and tells them when there is news."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError

from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.notifying import NotificationError
from everloop.workflows.contract import names
from everloop.workflows.contract.calls import PushRef

RPC_TIMEOUT = timedelta(seconds=5)


class PushDeliveries:
    """One `PushDelivery` for each config of each task. It ends with its task, and starts again with news."""

    def __init__(self, client: Client, configs: PushConfigs, task_queue: str) -> None:
        self._client = client
        self._configs = configs
        self._task_queue = task_queue

    async def notify(self, task_id: str, config_ids: Sequence[str]) -> None:
        """Let deliveries look at their task, and start those that do not run; repeating it does no harm.

        Raises:
            NotificationError: Temporal does not answer, or refuses.
        """
        pushes = [PushRef(task_id=task_id, config_id=config_id) for config_id in config_ids]
        try:
            await asyncio.gather(*map(self._notify, pushes))
        except RPCError as error:
            raise NotificationError from error

    async def _notify(self, push: PushRef) -> None:
        config = await self._configs.get(push.task_id, push.config_id)
        if config is None:
            return  # removed, or lost: a delivery that runs finds that out by itself
        await self._client.start_workflow(
            names.PUSH_WORKFLOW_TYPE,
            push,
            id=names.push_workflow_id(push.task_id, push.config_id),
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            start_signal=names.PUSH_NEWS,
            static_summary="push notifications",
            # However many webhooks of one owner are slow, another owner's waits for the next free place.
            priority=names.place_in_queues(config.owner, None),
            rpc_timeout=RPC_TIMEOUT,
        )

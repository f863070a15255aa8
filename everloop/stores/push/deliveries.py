"""Starts and notifies the workflows that deliver push notifications."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import structlog
from pydantic import field_validator
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError

from everloop.runtime.environment import Settings
from everloop.runtime.outbound.policy import WebhookPolicy, read_allowance
from everloop.stores.lifetimes import DEFAULT_RETENTION, RetentionSettings
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import Published
from everloop.stores.push.configs import PushConfigs
from everloop.workflows.contract import names
from everloop.workflows.contract.calls import PushRef
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.tasks import TaskState, TaskView

# Task views that notify push deliveries of each new status.

Notify = Callable[[str, Sequence[str]], Awaitable[None]]
"""Takes a task id and the ids of its push notification configs. Raises NotificationError on failure."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class NotificationError(Exception):
    """Temporal does not answer. Publish the status again."""


class NotifyingTaskViews(TaskViews):
    """Calls `notify` after the publication of a status of a task with push notification configs.

    A workflow's publication is repeated after a failure or a crash. A repair of the view finds nothing to do
    after a crash, so `end` and `restore` also call `notify` before they publish: then a delivery runs, and
    checks the task within minutes. A failure to notify of a passing status is not retried: the next status
    includes it. Other events cost nothing.
    """

    def __init__(
        self,
        redis: Redis,
        configs: PushConfigs,
        notify: Notify,
        retention: RetentionSettings = DEFAULT_RETENTION,
    ) -> None:
        super().__init__(redis, retention)
        self._configs = configs
        self._notify = notify

    async def follow_up(self, task_id: str, published: Published | None) -> None:
        await super().follow_up(task_id, published)
        if published:
            await self._notify_deliveries(task_id, published.push, is_urgent=published.is_urgent)

    async def end(self, task_id: str, run_id: str, status: StatusChanged) -> bool:
        await self._announce(task_id, status.state)
        return await super().end(task_id, run_id, status)

    async def restore(self, view: TaskView) -> None:
        await self._announce(view.task_id, view.status.state)
        await super().restore(view)

    async def _announce(self, task_id: str, state: TaskState) -> None:
        config_ids = await self._configs.config_ids(task_id)
        is_urgent = state.is_terminal or state.is_interrupted
        await self._notify_deliveries(task_id, config_ids, is_urgent=is_urgent)

    async def _notify_deliveries(self, task_id: str, config_ids: Sequence[str], *, is_urgent: bool) -> None:
        """Notify the deliveries of a task. A failure is raised only if it is urgent."""
        try:
            if config_ids:
                await self._notify(task_id, config_ids)
        except NotificationError as error:
            if is_urgent:
                raise
            _log.warning(
                "push deliveries not notified of a status", task_id=task_id, error=str(error.__cause__)
            )


RPC_TIMEOUT = timedelta(seconds=5)


class PushDeliveries:
    """One `PushDelivery` for each config of each task. It ends with its task, and restarts with news."""

    def __init__(self, client: Client, configs: PushConfigs, task_queue: str) -> None:
        self._client = client
        self._configs = configs
        self._task_queue = task_queue

    async def notify(self, task_id: str, config_ids: Sequence[str]) -> None:
        """Have deliveries check their task, and start those that do not run. Repeating it is harmless.

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
            return  # removed or lost: a running delivery finds that out by itself
        await self._client.start_workflow(
            names.PUSH_WORKFLOW_TYPE,
            push,
            id=names.push_workflow_id(push.task_id, push.config_id),
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            start_signal=names.PUSH_NEWS,
            static_summary="push notifications",
            # Slow webhooks of one owner do not delay another owner: it gets the next free slot.
            priority=names.place_in_queues(config.owner, None),
            rpc_timeout=RPC_TIMEOUT,
        )


# Settings of push notifications.


class PushSettings(Settings):
    """Push notifications: the same for all workers and gateways."""

    push: bool = True
    """`false`: clients cannot be notified by webhook. See docs/protocol/push-notifications.md."""
    push_allow: str = ""
    """Destinations besides public https addresses, also by http, separated by commas: `host`, `host:port`, an
    address, or a network such as `10.1.0.0/16`. Unset: none, with `everloop up` this machine."""

    @field_validator("push_allow")
    @classmethod
    def validate_allowance(cls, text: str) -> str:
        read_allowance(text)
        return text

    @property
    def policy(self) -> WebhookPolicy:
        """The policy of these settings."""
        return WebhookPolicy(read_allowance(self.push_allow))

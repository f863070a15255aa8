"""A task with notifications, delivery by delivery, on stores of the test's choice."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.push.delivery import PushDelivering, Webhooks
from everloop.activities.push.feed import TaskWorkflows
from everloop.runtime.outbound.policy import WebhookPolicy, read_allowance
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfig, PushConfigs, first_position
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract.calls import TASK_UNREADABLE, DeliverPushResult, PushRef
from everloop.workflows.contract.events import TaskEvent
from everloop.workflows.contract.tasks import TaskView
from tests.stores.examples import new_id, submitted
from tests.support.servers.webhook import Step, Webhook, running_webhook
from tests.support.stores import database

LOOPBACK_ALLOWED = WebhookPolicy(read_allowance("127.0.0.0/8"))


class KnownWorkflows(TaskWorkflows):
    """Workflows with the test's answers; without a view they are missing, or do not answer."""

    def __init__(self) -> None:
        self.known: TaskView | None = None
        self.answers = True
        self.asked = 0

    async def view(self, task_id: str) -> TaskView | None:
        self.asked += 1
        if not self.answers:
            raise ApplicationError("the task cannot be read now", type=TASK_UNREADABLE)
        return self.known


class PushRig:
    """A task, a config and a port; `deliver` runs the next attempt of an activity."""

    def __init__(
        self,
        url: str,
        *,
        policy: WebhookPolicy = LOOPBACK_ALLOWED,
        views: TaskViews | None = None,
        configs: PushConfigs | None = None,
        webhooks: Webhooks | None = None,
    ) -> None:
        self.task = submitted()
        self.views, self.configs = views or TaskViews(database()), configs or PushConfigs(database())
        self.workflows, self.leases = KnownWorkflows(), ToolRecords(database())
        self.port = PushDelivering(
            self.configs, self.views, self.workflows, webhooks or Webhooks(policy), self.leases
        )
        self.config = PushConfig(
            id=new_id(),
            task_id=self.task.task_id,
            owner="owner",
            context_id=self.task.context_id,
            url=url,
            token="the-token",
            has_authentication=True,
            scheme="Bearer",
            credentials="the-credentials",
            public_url="https://agents.example.com/",
        )
        self.attempt = 0
        self.heartbeat_details: Sequence[object] = ()
        self.info = dict[str, Any]()
        """Other fields of Temporal's information on the next attempt."""

    async def begin(self, *events: TaskEvent, position: str | None = None, is_legacy: bool = False) -> None:
        """Create the task, publish these events, and then set the config, as a gateway does."""
        await self.views.create(self.task)
        await self.publish(*events)
        self.config = self.config.model_copy(update={"is_legacy": is_legacy})
        shown = await self.views.load(self.task.task_id)
        assert shown
        await self.configs.put(self.config, position=first_position(shown) if position is None else position)

    async def publish(self, *events: TaskEvent) -> None:
        await self.views.publish(self.task.task_id, "run", events)

    async def deliver(self) -> DeliverPushResult:
        """Run the next attempt with the last one's heartbeat details; it may fail."""
        self.attempt += 1
        environment = ActivityEnvironment()
        environment.info = replace(
            environment.info, attempt=self.attempt, heartbeat_details=self.heartbeat_details, **self.info
        )
        environment.on_heartbeat = self._keep_heartbeat
        push = PushRef(task_id=self.task.task_id, config_id=self.config.id)
        return await environment.run(self.port.deliver_push, push)

    def _keep_heartbeat(self, *details: object) -> None:
        self.heartbeat_details = list(details)

    async def deliver_all(self) -> DeliverPushResult:
        """Deliver until there is nothing more, and return the last result."""
        while (result := await self.deliver()).delivered:
            pass
        return result

    async def failures(self, times: int) -> Sequence[ApplicationError]:
        """Run attempts that all fail, and return their failures."""
        failed: list[ApplicationError] = []
        for _ in range(times):
            try:
                await self.deliver()
            except ApplicationError as error:
                failed.append(error)
        assert len(failed) == times
        return failed


@asynccontextmanager
async def push_rig(
    *script: Step,
    query: str = "",
    **settings: Any,  # noqa: ANN401 -- of a `PushRig`
) -> AsyncGenerator[tuple[PushRig, Webhook]]:
    """Yield a rig, and its webhook, which plays a script first."""
    async with running_webhook(*script) as hook:
        yield PushRig(f"{hook.url}{query}", **settings), hook

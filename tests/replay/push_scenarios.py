"""Deliveries of push notifications with recorded histories."""

from collections.abc import Callable

from temporalio.client import Client, WorkflowHandle

from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.contract.calls import PushRef
from everloop.workflows.contract.names import PUSH_NEWS
from everloop.workflows.push_delivery import PushDelivery
from tests.support.fakes.ports import FakePorts, ScriptedModel
from tests.support.fakes.push import DELIVERED, DONE, NOTHING, ScriptedPush

Handle = WorkflowHandle[PushDelivery, None]


PUSH_SCENARIOS: dict[str, Callable[[], ScriptedPush]] = {
    "push_with_news": lambda: ScriptedPush(DELIVERED, NOTHING, DELIVERED, DONE),
    "push_continues_as_new": lambda: ScriptedPush(*[DELIVERED] * 20, DONE),
}
"""Waits for news end once, after two deliveries."""


async def run_push(client: Client, name: str, push: ScriptedPush, workflow_id: str) -> Handle:
    """Play a scenario to its end, and return its first run."""
    ports = FakePorts(ScriptedModel())
    ports.push = push
    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=name)):
        handle = await client.start_workflow(
            PushDelivery.run, PushRef(task_id="task", config_id="config"), id=workflow_id, task_queue=name
        )
        await push.until_asked(2)
        if name == "push_with_news":
            await handle.signal(PUSH_NEWS)
        await handle.result()
    return client.get_workflow_handle_for(PushDelivery.run, workflow_id, run_id=handle.first_execution_run_id)

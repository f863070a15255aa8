"""Notifications to webhooks: A2A 1.0 §4.3.3, §13.2; the stack is a worker and a gateway of their own."""

from a2a.types import a2a_pb2 as pb

from tests.conformance.messages import ASKS, COMPLETES, message
from tests.support.servers.webhook import running_webhook
from tests.support.wires.agent import Agent


async def test_a_deleted_config_gets_nothing_more(agent: Agent) -> None:
    """After the deletion its webhook gets no events; the others go on (§3.1.10)."""
    task = await agent.send(message(ASKS))
    async with running_webhook() as gone, running_webhook() as staying:
        created: list[str] = []
        for webhook in (gone, staying):
            request = pb.TaskPushNotificationConfig(task_id=task.id, url=webhook.url)
            config: pb.TaskPushNotificationConfig = await agent.call(
                "CreateTaskPushNotificationConfig", request
            )
            created.append(config.id)
        deletion = pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=created[0])
        await agent.call("DeleteTaskPushNotificationConfig", deletion)
        await agent.send(message(COMPLETES, taskId=task.id))
        await staying.until_delivered("TASK_STATE_COMPLETED")
    assert set(gone.states) <= {"TASK_STATE_INPUT_REQUIRED"}

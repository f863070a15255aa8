"""What webhooks get: A2A 1.0 §4.3.3, §13.2; the stack is a worker and a gateway of their own."""

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from tests.conformance.messages import ASKS, COMPLETES, message
from tests.support.servers.webhook import running_webhook
from tests.support.wires.agent import Agent

KINDS = {"task", "message", "statusUpdate", "artifactUpdate"}


async def test_a_config_with_the_send_is_told_of_the_end(agent: Agent) -> None:
    """The webhook is told at least once (§3.2.2): each time one StreamResponse, as JSON (§4.3.3).

    Credentials are sent as HTTP does, and the token of the config in a header of its own.
    """
    async with running_webhook() as webhook:
        config = {
            "url": webhook.url,
            "token": "the-token",
            "authentication": {"scheme": "Bearer", "credentials": "the-credentials"},
        }
        task = await agent.send(message(COMPLETES, configuration={"taskPushNotificationConfig": config}))
        await webhook.until_told("TASK_STATE_COMPLETED")
    for one in webhook.taken:
        assert len(one.body) == 1
        assert set(one.body) <= KINDS
        assert one.headers["content-type"].split(";")[0] in {"application/a2a+json", "application/json"}
        assert one.headers["authorization"] == "Bearer the-credentials"
        assert one.headers["x-a2a-notification-token"] == "the-token"
    event = ParseDict(webhook.taken[-1].body, pb.StreamResponse())
    assert task.id in {event.task.id, event.status_update.task_id}


async def test_a_deleted_config_is_told_nothing_more(agent: Agent) -> None:
    """Of what happens after the deletion its webhook hears nothing; the others go on (§3.1.10)."""
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
        await staying.until_told("TASK_STATE_COMPLETED")
    assert set(gone.states) <= {"TASK_STATE_INPUT_REQUIRED"}

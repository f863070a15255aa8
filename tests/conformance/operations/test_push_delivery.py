"""What webhooks get: A2A 1.0 §4.3.3, §13.2."""

from collections.abc import Callable

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from tests.conformance.bindings import Binding
from tests.conformance.messages import ASKS, COMPLETES, fresh, message
from tests.conformance.webhook import Notification, Webhook

KINDS = {"task", "message", "statusUpdate", "artifactUpdate"}


def _state(notification: Notification) -> str:
    body = notification.body
    status = body.get("task", body.get("statusUpdate", {})).get("status", {})
    return str(status.get("state", ""))


def _tells(path: str, state: str) -> Callable[[Notification], bool]:
    return lambda one: one.path == path and _state(one) == state


async def test_a_config_with_the_send_is_told_of_the_end(agent: Binding, webhook: Webhook) -> None:
    """A config may come with the message; its webhook is told of the end at least once (§3.2.2, §4.3.3)."""
    path = f"/{fresh('hook')}"
    config = {"taskPushNotificationConfig": {"url": webhook.url + path}}
    task = await agent.send(message(COMPLETES, configuration=config))
    told = await webhook.until(_tells(path, "TASK_STATE_COMPLETED"))
    event = ParseDict(told.body, pb.StreamResponse())
    assert task.id in {event.task.id, event.status_update.task_id}


async def test_a_notification_is_one_stream_response(agent: Binding, webhook: Webhook) -> None:
    """The body is a StreamResponse as JSON, with exactly one of its kinds, and says so (§4.3.3)."""
    path = f"/{fresh('hook')}"
    config = {"taskPushNotificationConfig": {"url": webhook.url + path}}
    await agent.send(message(COMPLETES, configuration=config))
    await webhook.until(_tells(path, "TASK_STATE_COMPLETED"))
    for one in webhook.at(path):
        assert len(one.body) == 1
        assert set(one.body) <= KINDS
        assert one.headers["content-type"].split(";")[0] in {"application/a2a+json", "application/json"}


async def test_credentials_and_token_come_with_a_notification(agent: Binding, webhook: Webhook) -> None:
    """The credentials of the config are sent as HTTP does, and its token in a header of its own (§4.3.3)."""
    path = f"/{fresh('hook')}"
    config = {
        "url": webhook.url + path,
        "token": "the-token",
        "authentication": {"scheme": "Bearer", "credentials": "the-credentials"},
    }
    await agent.send(message(COMPLETES, configuration={"taskPushNotificationConfig": config}))
    told = await webhook.until(_tells(path, "TASK_STATE_COMPLETED"))
    assert told.headers["authorization"] == "Bearer the-credentials"
    assert told.headers["x-a2a-notification-token"] == "the-token"


async def test_all_webhooks_of_a_task_are_told(agent: Binding, webhook: Webhook) -> None:
    """A task that waits for its user tells, too; each config gets its own notifications (§4.3.3)."""
    task = await agent.send(message(ASKS))
    paths = [f"/{fresh('hook')}" for _ in range(2)]
    for path in paths:
        request = pb.TaskPushNotificationConfig(task_id=task.id, url=webhook.url + path)
        await agent.call("CreateTaskPushNotificationConfig", request)
    await agent.send(message(ASKS, taskId=task.id))
    for path in paths:
        await webhook.until(_tells(path, "TASK_STATE_INPUT_REQUIRED"))
    await agent.send(message(COMPLETES, taskId=task.id))
    for path in paths:
        await webhook.until(_tells(path, "TASK_STATE_COMPLETED"))


async def test_a_deleted_config_is_told_nothing_more(agent: Binding, webhook: Webhook) -> None:
    """Of what happens after the deletion its webhook hears nothing; the others go on (§3.1.10)."""
    task = await agent.send(message(ASKS))
    gone, staying = f"/{fresh('hook')}", f"/{fresh('hook')}"
    created: dict[str, str] = {}
    for path in (gone, staying):
        request = pb.TaskPushNotificationConfig(task_id=task.id, url=webhook.url + path)
        config: pb.TaskPushNotificationConfig = await agent.call("CreateTaskPushNotificationConfig", request)
        created[path] = config.id
    request = pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=created[gone])
    await agent.call("DeleteTaskPushNotificationConfig", request)
    await agent.send(message(COMPLETES, taskId=task.id))
    await webhook.until(_tells(staying, "TASK_STATE_COMPLETED"))
    assert {_state(one) for one in webhook.at(gone)} <= {"TASK_STATE_INPUT_REQUIRED"}

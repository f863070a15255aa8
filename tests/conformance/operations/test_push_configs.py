"""Push notification configs: A2A 1.0 §3.1.7 to §3.1.10."""

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from tests.conformance.bindings import Binding, refusal
from tests.conformance.messages import ASKS, COMPLETES, fresh, message
from tests.conformance.webhook import Webhook


async def _create(agent: Binding, task_id: str, url: str, **fields: object) -> pb.TaskPushNotificationConfig:
    request = ParseDict({"taskId": task_id, "url": url, **fields}, pb.TaskPushNotificationConfig())
    return await agent.call("CreateTaskPushNotificationConfig", request)


async def _get(agent: Binding, task_id: str, config_id: str) -> pb.TaskPushNotificationConfig:
    request = pb.GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
    return await agent.call("GetTaskPushNotificationConfig", request)


async def _list(agent: Binding, task_id: str) -> list[pb.TaskPushNotificationConfig]:
    request = pb.ListTaskPushNotificationConfigsRequest(task_id=task_id)
    answer: pb.ListTaskPushNotificationConfigsResponse = await agent.call(
        "ListTaskPushNotificationConfigs", request
    )
    return list(answer.configs)


async def _delete(agent: Binding, task_id: str, config_id: str) -> None:
    request = pb.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
    await agent.call("DeleteTaskPushNotificationConfig", request)


async def test_a_config_gets_an_id_and_is_returned(agent: Binding, webhook: Webhook) -> None:
    """Creating returns the config with its task, its URL, and an id if the client gave none (§3.1.7)."""
    task = await agent.send(message(ASKS))
    config = await _create(agent, task.id, f"{webhook.url}/a", token="t")
    assert config.id
    assert (config.task_id, config.url) == (task.id, f"{webhook.url}/a")


async def test_the_clients_id_of_a_config_is_kept(agent: Binding, webhook: Webhook) -> None:
    """A client may name its config (§4.3.1)."""
    task = await agent.send(message(ASKS))
    config = await _create(agent, task.id, webhook.url, id="mine")
    assert config.id == "mine"
    assert (await _get(agent, task.id, "mine")).url == config.url


async def test_a_config_can_be_read(agent: Binding, webhook: Webhook) -> None:
    """Getting returns the URL and the settings (§3.1.8)."""
    task = await agent.send(message(ASKS))
    created = await _create(agent, task.id, webhook.url)
    assert await _get(agent, task.id, created.id) == created


async def test_all_configs_of_a_task_are_listed(agent: Binding, webhook: Webhook) -> None:
    """Listing returns every config of the task, and none of others (§3.1.9)."""
    task, other = await agent.send(message(ASKS)), await agent.send(message(ASKS))
    created = [await _create(agent, task.id, f"{webhook.url}/{n}") for n in range(3)]
    await _create(agent, other.id, webhook.url)
    listed = await _list(agent, task.id)
    assert {config.id for config in listed} == {config.id for config in created}
    assert {config.task_id for config in listed} == {task.id}


async def test_a_task_without_configs_lists_none(agent: Binding) -> None:
    """An empty list is an answer (§3.1.9)."""
    task = await agent.send(message(ASKS))
    assert await _list(agent, task.id) == []


async def test_a_deleted_config_is_gone(agent: Binding, webhook: Webhook) -> None:
    """Deleting removes it for good, and doing it again has the same effect (§3.1.10)."""
    task = await agent.send(message(ASKS))
    config = await _create(agent, task.id, webhook.url)
    for _ in range(2):
        await _delete(agent, task.id, config.id)
        assert await _list(agent, task.id) == []
    refused = await refusal(_get(agent, task.id, config.id))
    assert refused.reason == "TASK_NOT_FOUND"


async def test_a_config_that_does_not_exist_is_not_found(agent: Binding) -> None:
    """Getting fails if there is no such config (§3.1.8)."""
    task = await agent.send(message(ASKS))
    assert (await refusal(_get(agent, task.id, "none"))).reason == "TASK_NOT_FOUND"


async def test_configs_of_an_unknown_task_are_not_found(agent: Binding, webhook: Webhook) -> None:
    """All four operations tell that the task does not exist (§3.1.7 to §3.1.10)."""
    unknown = fresh("task")
    for call in (
        _create(agent, unknown, webhook.url),
        _get(agent, unknown, "any"),
        _list(agent, unknown),
        _delete(agent, unknown, "any"),
    ):
        assert (await refusal(call)).reason == "TASK_NOT_FOUND"


async def test_a_config_may_belong_to_an_ended_task(agent: Binding, webhook: Webhook) -> None:
    """A config may be made and deleted after the end of its task (own rule)."""
    task = await agent.send(message(COMPLETES))
    config = await _create(agent, task.id, webhook.url)
    assert [one.id for one in await _list(agent, task.id)] == [config.id]
    await _delete(agent, task.id, config.id)


@pytest.mark.parametrize("url", ["", "not a url", "ftp://example.com/hook", "file:///etc/passwd"])
async def test_a_url_that_is_none_is_refused(agent: Binding, url: str) -> None:
    """A webhook is an HTTP address; the error names the field (§3.3.2, §13.2)."""
    task = await agent.send(message(ASKS))
    refused = await refusal(_create(agent, task.id, url))
    assert refused.reason == "INVALID_PARAMS"
    assert "url" in refused.message.lower()


async def test_internal_addresses_are_refused(agent: Binding) -> None:
    """Private and link-local addresses are no webhooks; the test configuration allows loopback (§13.2)."""
    task = await agent.send(message(ASKS))
    for host in ("10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "[fe80::1]", "[fd00::1]"):
        refused = await refusal(_create(agent, task.id, f"https://{host}/hook"))
        assert refused.reason == "INVALID_PARAMS", host

"""Clients of A2A 0.3 over REST: 0.3 §3.2.3, §3.5.3."""

from typing import Any

from tests.conformance.messages import ASKS, COMPLETES, fresh
from tests.conformance.stack import Stack


def _said(behaviour: str, **fields: object) -> dict[str, Any]:
    message = {"messageId": fresh(behaviour), "role": "ROLE_USER", "content": [{"text": "Please."}], **fields}
    return {"message": message, "configuration": {"blocking": True}}


async def _send(stack: Stack, behaviour: str, **fields: object) -> dict[str, Any]:
    response = await stack.http.post("/v1/message:send", json=_said(behaviour, **fields))
    assert response.status_code == 200, response.text
    return response.json()["task"]


async def test_configs_are_made_read_listed_and_deleted(stack: Stack) -> None:
    """/v1/tasks/{id}/pushNotificationConfigs (0.3 §3.5.6)."""
    task = await _send(stack, ASKS)
    path = f"/v1/tasks/{task['id']}/pushNotificationConfigs"
    wanted = {"configId": "mine", "config": {"pushNotificationConfig": {"url": "https://example.com/hook"}}}
    made = await stack.http.post(path, json=wanted)
    assert made.status_code in {200, 201}, made.text
    config_id = made.json()["name"].rpartition("/")[2]
    found = await stack.http.get(f"{path}/{config_id}")
    assert found.json()["pushNotificationConfig"]["url"] == "https://example.com/hook"
    assert len((await stack.http.get(path)).json()["configs"]) == 1
    assert (await stack.http.delete(f"{path}/{config_id}")).status_code in {200, 204}
    assert not (await stack.http.get(path)).json().get("configs")


async def test_a_config_may_be_the_whole_body(stack: Stack) -> None:
    """The definition of the service maps the body to `config` (0.3, a2a.proto)."""
    task = await _send(stack, ASKS)
    path = f"/v1/tasks/{task['id']}/pushNotificationConfigs"
    wanted = {"pushNotificationConfig": {"id": "plain", "url": "https://example.com/hook"}}
    made = await stack.http.post(path, json=wanted)
    assert made.status_code in {200, 201}, made.text
    assert made.json()["name"].endswith("/plain")
    assert made.json()["pushNotificationConfig"]["url"] == "https://example.com/hook"
    wrong = await stack.http.post(path, json={"pushNotificationConfig": {"url": 7}})
    assert wrong.status_code == 400
    assert "pushNotificationConfig.url" in wrong.json()["message"]


async def test_errors_have_the_codes_of_0_3(stack: Stack) -> None:
    """The number of the error is in the body, beside the status of HTTP (0.3 §8)."""
    done = await _send(stack, COMPLETES)
    unknown = await stack.http.get("/v1/tasks/none")
    canceled = await stack.http.post(f"/v1/tasks/{done['id']}:cancel")
    written = await stack.http.post("/v1/message:send", json=_said(COMPLETES, taskId=done["id"]))
    assert [each.status_code for each in (unknown, canceled, written)] == [404, 400, 400]
    assert (unknown.json()["code"], canceled.json()["code"]) == (-32001, -32002)


async def test_a_refused_stream_has_the_status_of_its_error(stack: Stack) -> None:
    """Clients of 0.3 read the status before the events (0.3 §3.2.3)."""
    done = await _send(stack, COMPLETES)
    written = await stack.http.post("/v1/message:stream", json=_said(COMPLETES, taskId=done["id"]))
    unknown = await stack.http.post("/v1/tasks/none:subscribe")
    assert (written.status_code, unknown.status_code) == (400, 404)

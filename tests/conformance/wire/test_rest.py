"""What is HTTP+JSON's own: A2A 1.0 §11."""

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.conformance.bindings import VERSION
from tests.conformance.event_stream import data_of
from tests.conformance.messages import ASKS, COMPLETES, STREAMS, WRITES_TEXT, content, fresh
from tests.conformance.stack import Stack

A2A_JSON, JSON = "application/a2a+json", "application/json"


async def _send(stack: Stack, behaviour: str = COMPLETES, **fields: object) -> dict[str, Any]:
    body = {"message": content(behaviour, **fields)}
    response = await stack.http.post("/message:send", json=body, headers=VERSION)
    assert response.status_code == 200, response.text
    return response.json()["task"]


async def _get(stack: Stack, path: str, **params: str) -> httpx.Response:
    return await stack.http.get(path, params=params, headers=VERSION)


def _media_type(response: httpx.Response) -> str:
    return response.headers["content-type"].split(";")[0]


@pytest.mark.parametrize("media_type", [A2A_JSON, JSON])
async def test_both_media_types_are_taken(stack: Stack, media_type: str) -> None:
    """application/a2a+json should be used; application/json is what 1.0.0 had (§11.1)."""
    body = json.dumps({"message": content(COMPLETES)})
    headers = {**VERSION, "Content-Type": media_type}
    response = await stack.http.post("/message:send", content=body, headers=headers)
    assert response.status_code == 200
    assert response.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [("*/*", A2A_JSON), (A2A_JSON, A2A_JSON), (JSON, JSON), (f"{A2A_JSON}, {JSON}", A2A_JSON)],
)
async def test_the_client_chooses_the_media_type(stack: Stack, accept: str, expected: str) -> None:
    """Answers are application/a2a+json, or application/json for who wants only that (§11.1)."""
    headers = {**VERSION, "Accept": accept}
    assert _media_type(await stack.http.get("/tasks", headers=headers)) == expected


@pytest.mark.parametrize("accept", ["*/*", A2A_JSON])
async def test_errors_have_the_media_type_of_results(stack: Stack, accept: str) -> None:
    """The example of an error is application/a2a+json, too (§11.6)."""
    headers = {**VERSION, "Accept": accept}
    assert _media_type(await stack.http.get("/tasks/none", headers=headers)) == A2A_JSON


async def test_a_missing_task_is_404_with_a_status_object(stack: Stack) -> None:
    """The body is a google.rpc.Status under `error`: code, status, message, details (§11.6)."""
    response = await _get(stack, f"/tasks/{fresh('task')}")
    assert response.status_code == 404
    assert response.json().keys() == {"error"}
    error = response.json()["error"]
    assert (error["code"], error["status"]) == (404, "NOT_FOUND")
    assert error["message"]
    (info,) = [one for one in error["details"] if one["@type"].endswith("google.rpc.ErrorInfo")]
    assert (info["reason"], info["domain"]) == ("TASK_NOT_FOUND", "a2a-protocol.org")


@pytest.mark.parametrize("body", ["", "{", "[]", "7", '"text"', "null", '{"message": "text"}'])
async def test_a_malformed_body_is_400(stack: Stack, body: str) -> None:
    """What cannot be parsed is the client's fault, and told as errors are (§11.6)."""
    headers = {**VERSION, "Content-Type": JSON}
    response = await stack.http.post("/message:send", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["status"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/tasks", {"pageSize": "many"}),
        ("/tasks", {"statusTimestampAfter": "yesterday"}),
        ("/tasks", {"pageSize": "101"}),
        ("/tasks/any", {"historyLength": "-1"}),
        ("/tasks/any", {"historyLength": "x"}),
    ],
)
async def test_a_malformed_query_is_400(stack: Stack, path: str, params: dict[str, str]) -> None:
    """Query parameters are checked like those of a body (§3.3.2, §11.5)."""
    response = await _get(stack, path, **params)
    assert response.status_code == 400
    assert response.json()["error"]["status"] == "INVALID_ARGUMENT"


async def test_query_parameters_have_the_names_of_json(stack: Stack) -> None:
    """Names in camelCase, enums by name, booleans in small letters, times as ISO 8601 (§11.5)."""
    context_id = fresh("context")
    task = await _send(stack, WRITES_TEXT, contextId=context_id)
    listed = await _get(
        stack,
        "/tasks",
        contextId=context_id,
        status="TASK_STATE_COMPLETED",
        pageSize="10",
        historyLength="0",
        includeArtifacts="true",
        statusTimestampAfter="2020-01-01T00:00:00Z",
    )
    assert listed.status_code == 200
    (found,) = listed.json()["tasks"]
    assert found["id"] == task["id"]
    assert found["artifacts"]
    assert not found.get("history")


async def test_ids_in_paths_are_decoded(stack: Stack) -> None:
    """Whatever stands in a path is percent-encoded (§11.5)."""
    odd = "no/such task?ü"
    response = await _get(stack, f"/tasks/{quote(odd, safe='')}")
    assert response.status_code == 404


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_subscribing_is_a_stream(stack: Stack, verb: str) -> None:
    """POST by the table of methods, GET as the proto has it: both begin with the task (§5.3, §11.3.2)."""
    task = await _send(stack, ASKS)
    path = f"/tasks/{task['id']}:subscribe"
    async with stack.http.stream(verb, path, headers=VERSION) as response:
        assert (response.status_code, _media_type(response)) == (200, "text/event-stream")
        async for data in data_of(response):
            assert json.loads(data)["task"]["id"] == task["id"]
            break
    await stack.http.post(f"/tasks/{task['id']}:cancel", headers=VERSION)


async def test_a_stream_is_server_sent_events_of_stream_responses(stack: Stack) -> None:
    """Each event's data is a StreamResponse, without an envelope (§11.7)."""
    body = {"message": content(STREAMS)}
    async with stack.http.stream("POST", "/message:stream", json=body, headers=VERSION) as response:
        assert (response.status_code, _media_type(response)) == (200, "text/event-stream")
        events = [json.loads(data) async for data in data_of(response)]
    assert len(events) > 2
    for event in events:
        assert len(event) == 1
        assert event.keys() <= {"task", "message", "statusUpdate", "artifactUpdate"}


async def test_a_stream_that_is_refused_is_an_error_response(stack: Stack) -> None:
    """An error before the first event has the status of the error (§11.6)."""
    response = await stack.http.post(f"/tasks/{fresh('task')}:subscribe", headers=VERSION)
    assert response.status_code == 404
    assert response.json()["error"]["status"] == "NOT_FOUND"


async def test_a_cancel_needs_no_body(stack: Stack) -> None:
    """The id is in the path (§11.3.2); a body may come, too."""
    for body in (None, {}, {"metadata": {"why": "tired"}}):
        task = await _send(stack, ASKS)
        response = await stack.http.post(f"/tasks/{task['id']}:cancel", json=body, headers=VERSION)
        assert response.status_code == 200
        assert response.json()["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/message:send"),
        ("PUT", "/message:send"),
        ("GET", "/message:stream"),
        ("POST", "/tasks"),
        ("DELETE", "/tasks/any"),
        ("GET", "/tasks/any:cancel"),
        ("PUT", "/tasks/any/pushNotificationConfigs/any"),
        ("POST", "/extendedAgentCard"),
    ],
)
async def test_other_verbs_are_not_allowed(stack: Stack, verb: str, path: str) -> None:
    """Each address has its verbs (§11.3); the answer names them (RFC 9110 §15.5.6)."""
    response = await stack.http.request(verb, path, headers=VERSION)
    assert response.status_code in {404, 405}
    assert response.status_code == 404 or response.headers["allow"]


async def test_an_unknown_address_is_404(stack: Stack) -> None:
    """There is nothing else (§11.3)."""
    for path in ("/nothing", "/tasks/any/other", "/message:nothing"):
        assert (await _get(stack, path)).status_code == 404


async def test_a_list_has_all_its_fields(stack: Stack) -> None:
    """The token is always there, empty on the last page; so are sizes and tasks (§3.1.4)."""
    page = (await _get(stack, "/tasks", contextId=fresh("context"))).json()
    assert page == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


async def test_artifacts_are_no_field_of_a_listed_task_unless_wanted(stack: Stack) -> None:
    """The field is left out, not empty (§3.1.4)."""
    context_id = fresh("context")
    await _send(stack, WRITES_TEXT, contextId=context_id)
    (task,) = (await _get(stack, "/tasks", contextId=context_id)).json()["tasks"]
    assert "artifacts" not in task


async def test_a_config_is_made_read_and_deleted_by_verbs(stack: Stack) -> None:
    """POST, GET and DELETE on the configs of a task (§11.3.3)."""
    task = await _send(stack, ASKS)
    path = f"/tasks/{task['id']}/pushNotificationConfigs"
    made = await stack.http.post(path, json={"url": "https://example.com/hook"}, headers=VERSION)
    assert made.status_code in {200, 201}
    config = made.json()
    assert (await _get(stack, f"{path}/{config['id']}")).json()["url"] == "https://example.com/hook"
    assert [one["id"] for one in (await _get(stack, path)).json()["configs"]] == [config["id"]]
    deleted = await stack.http.delete(f"{path}/{config['id']}", headers=VERSION)
    assert deleted.status_code in {200, 204}
    assert (await _get(stack, f"{path}/{config['id']}")).status_code == 404

"""What only addresses and queries have: names, empty and wrong values, tenants, media types."""

import httpx
import pytest

from tests.gateway.harness import AGENT, RunningGateway, unique

LEGACY = {"A2A-Version": "0.3"}


def error(response: httpx.Response) -> tuple[int, str]:
    """Return the code of an error, which is the status too, and what it says."""
    body = response.json()["error"]
    assert response.status_code == body["code"]
    return body["code"], body["message"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "pageSize=3&page_token=&contextId=x",
        "page_size=3&context_id=x&status=TASK_STATE_WORKING&include_artifacts=TRUE",
        "statusTimestampAfter=2026-01-31T12:00:00Z&historyLength=0&unknown=1",
        "status=&pageToken=&tenant=",
    ],
)
async def test_a_query_is_read_in_both_spellings(gateway: RunningGateway, query: str) -> None:
    """What is empty, and what we do not know, counts for nothing."""
    response = await gateway.http.get(f"/tasks?{query}")

    assert response.status_code == 200
    assert response.json()["pageSize"] == (3 if "3&" in query else 50)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/tasks?pageSize=x", "pageSize has to be a whole number of 32 bits"),
        ("/tasks?page_size=1.5", "pageSize has to be a whole number of 32 bits"),
        ("/tasks?pageSize=99999999999", "pageSize has to be a whole number of 32 bits"),
        ("/tasks?pageSize=101", "pageSize is 101"),
        ("/tasks?status=KING", "status has to be one of TASK_STATE_SUBMITTED"),
        ("/tasks?includeArtifacts=maybe", "includeArtifacts has to be true or false"),
        ("/tasks?statusTimestampAfter=yesterday", "statusTimestampAfter has to be a time as"),
        ("/tasks?tenant=nobody", "tenant is 'nobody'"),
        ("/tasks/x?historyLength=x", "historyLength has to be a whole number of 32 bits"),
        ("/tasks/x?history_length=-1", "historyLength is -1"),
        ("/tasks/%00", "id has control characters"),
        (f"/tasks/{'x' * 300}", "id has 300 bytes"),
    ],
)
async def test_wrong_values_are_refused(gateway: RunningGateway, address: str, words: str) -> None:
    """400, and the text names the parameter."""
    code, message = error(await gateway.http.get(address))

    assert code == 400
    assert words in message


async def test_wrong_values_are_refused_in_the_old_version(gateway: RunningGateway) -> None:
    """Also there nothing but a number is one."""
    code, message = error(await gateway.http.get("/v1/tasks/x?historyLength=x", headers=LEGACY))

    assert (code, message) == (400, "historyLength has to be a whole number of 32 bits")


async def test_tenants_name_agents(gateway: RunningGateway) -> None:
    """In the address, in the query and in the body; another agent's than that of the address is refused."""
    body = {"message": {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    for address in (
        f"/{AGENT.id}/tasks",
        f"/agents/{AGENT.id}/{AGENT.id}/tasks",
        f"/tasks?tenant={AGENT.id}",
    ):
        assert (await gateway.http.get(address)).status_code == 200
    named = await gateway.http.post("/message:send", json={**body, "tenant": AGENT.id})
    assert named.status_code == 200

    assert error(await gateway.http.get("/nobody/tasks"))[0] == 400
    assert error(await gateway.http.post("/message:send", json={**body, "tenant": "nobody"}))[0] == 400


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("*/*", "application/a2a+json"),
        ("application/a2a+json", "application/a2a+json"),
        ("application/json, application/a2a+json", "application/a2a+json"),
        ("application/json", "application/json"),
        ("text/html, application/json;q=0.9", "application/json"),
    ],
)
async def test_answers_have_the_media_type_that_is_accepted(
    gateway: RunningGateway, accept: str, expected: str
) -> None:
    """A2A's own (1.0 §11.1), unless a client asks for plain JSON; the old version has plain JSON only."""
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}}

    headers = {"Accept": accept}
    responses = [
        await gateway.http.get("/tasks", headers=headers),
        await gateway.http.get("/tasks/nobody", headers=headers),
        await gateway.http.get("/tasks?pageSize=x", headers=headers),
    ]
    legacy = await gateway.http.post("/v1/message:send", json=body, headers={**LEGACY, "Accept": accept})

    assert {response.headers["Content-Type"] for response in responses} == {expected}
    assert (legacy.status_code, legacy.headers["Content-Type"]) == (200, "application/json")


async def test_errors_of_the_old_version_have_what_its_clients_read(gateway: RunningGateway) -> None:
    """The name of the error and its text, beside the details."""
    body = (await gateway.http.get("/v1/tasks/x", headers=LEGACY)).json()

    assert (body["type"], body["message"]) == ("TaskNotFoundError", "no task 'x' here")
    assert body["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/nonsense", 404, "ADDRESS_UNKNOWN"),
        ("GET", "/tasks/", 404, "ADDRESS_UNKNOWN"),
        ("GET", "/", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/tasks/x", 405, "METHOD_NOT_ALLOWED"),
        ("PATCH", "/healthz", 405, "METHOD_NOT_ALLOWED"),
    ],
)
async def test_where_nothing_is_an_error_is(
    gateway: RunningGateway, method: str, path: str, status: int, reason: str
) -> None:
    """In the shape of every other error, and never a redirect."""
    response = await gateway.http.request(method, path)

    assert response.status_code == status
    assert response.json()["error"]["details"][0]["reason"] == reason


async def test_head_answers_like_get(gateway: RunningGateway) -> None:
    """Without a body."""
    answer = await gateway.http.get("/tasks/x")
    head = await gateway.http.head("/tasks/x")

    assert (head.status_code, head.content) == (answer.status_code, b"")


@pytest.mark.parametrize(
    "address", ["/tasks/x:subscribe", "/agents/staged/tasks/x:subscribe", "/v1/tasks/x:subscribe"]
)
async def test_a_stream_has_no_head(gateway: RunningGateway, address: str) -> None:
    """It would stay open for as long as the task runs, and tell nothing."""
    headers = {"A2A-Version": "0.3" if "/v1/" in address else "1.0"}
    response = await gateway.http.head(address, headers=headers)

    assert (response.status_code, response.headers["Allow"]) == (405, "GET, POST")


async def test_files_of_the_old_version_are_encoded_twice(gateway: RunningGateway) -> None:
    """A file that was encoded once is refused: decoded twice it would be another."""
    part = {"file": {"fileWithBytes": "aGVsbG8gd29ybGQh", "mimeType": "text/plain"}}
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [part]}}

    code, message = error(await gateway.http.post("/v1/message:send", json=body, headers=LEGACY))

    assert code == 400
    assert "message.content[0].file.fileWithBytes is not encoded twice" in message

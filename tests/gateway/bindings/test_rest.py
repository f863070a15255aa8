"""Rules of addresses and queries: names, empty and wrong values, tenants, media types."""

from base64 import b64decode, b64encode

import httpx
import pytest

from tests.gateway.harness import RunningGateway, unique

LEGACY = {"A2A-Version": "0.3"}


def error(response: httpx.Response) -> tuple[int, str]:
    """Return the code of an error, which is the status too, and its text."""
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
    """Empty and unknown parameters are ignored."""
    response = await gateway.http.get(f"/tasks?{query}")
    assert response.status_code == 200
    assert response.json()["pageSize"] == (3 if "3&" in query else 50)


WRONG: list[tuple[str, str, int, str]] = [
    ("GET", "/tasks?pageSize=x", 400, "pageSize has to be a whole number of 32 bits"),
    ("GET", "/tasks?page_size=1.5", 400, "pageSize has to be a whole number of 32 bits"),
    ("GET", "/tasks?pageSize=99999999999", 400, "pageSize has to be a whole number of 32 bits"),
    ("GET", "/tasks?pageSize=" + "9" * 5_000, 400, "pageSize has to be"),
    ("GET", "/tasks?pageSize=101", 400, "pageSize is 101"),
    ("GET", "/tasks?status=KING", 400, "status has to be one of TASK_STATE_SUBMITTED"),
    ("GET", "/tasks?includeArtifacts=maybe", 400, "includeArtifacts has to be true or false"),
    ("GET", "/tasks?statusTimestampAfter=yesterday", 400, "statusTimestampAfter has to be a time as"),
    ("GET", "/tasks?tenant=nobody", 400, "tenant is 'nobody'"),
    ("GET", "/tasks?pageToken=%00%ff", 400, "pageToken"),
    ("GET", "/tasks?contextId=%0a", 400, "control characters"),
    ("GET", "/tasks/x?historyLength=x", 400, "historyLength has to be a whole number of 32 bits"),
    ("GET", "/tasks/x?history_length=-1", 400, "historyLength is -1"),
    ("GET", "/tasks/%00", 400, "id has control characters"),
    ("GET", "/tasks/a%0d%0ab:subscribe", 400, "control characters"),
    ("GET", "/tasks/%2e%2e", 400, "a step of a path"),
    ("GET", f"/tasks/{'x' * 300}", 400, "id has 300 bytes"),
    ("GET", "/tasks/no%20such%3F", 404, "no task 'no such?' here"),
    ("GET", "/tasks/a/b", 404, "nothing is at"),
    ("GET", "/tasks/a%2Fb", 404, "no task 'a/b' here"),
    ("GET", "/tasks/a%252Fb", 404, "no task 'a%2Fb' here"),
    ("GET", "/tasks/..%2f..%2fetc%2fpasswd", 404, "no task '../../etc/passwd' here"),
    ("GET", "/" + "x" * 8_000, 404, "nothing is at"),
    ("GET", "/nonsense", 404, "nothing is at"),
    ("GET", "/tasks/", 404, "nothing is at"),
    ("GET", "/message:nothing", 404, "nothing is at"),
    ("GET", "/", 405, "takes POST"),
    ("PUT", "/", 405, "takes POST"),
    ("TRACE", "/", 405, "takes POST"),
    ("X" * 1_000, "/message:send", 405, "takes POST"),
    ("GET", "/message:send", 405, "takes POST"),
    ("GET", "/message:stream", 405, "takes POST"),
    ("POST", "/tasks", 405, "takes GET"),
    ("DELETE", "/tasks/x", 405, "takes GET"),
    ("GET", "/tasks/any:cancel", 404, ""),
    ("PUT", "/tasks/any/pushNotificationConfigs/any", 405, "takes"),
    ("POST", "/extendedAgentCard", 405, "takes GET"),
    ("PATCH", "/healthz", 405, "takes GET"),
]


async def test_what_an_address_cannot_say_is_refused(gateway: RunningGateway) -> None:
    """A value is decoded once, and never echoed at length; the error names the parameter."""
    reasons = {
        404: {"ADDRESS_UNKNOWN", "TASK_NOT_FOUND"},
        405: {"METHOD_NOT_ALLOWED"},
        400: {"INVALID_PARAMS"},
    }
    for method, address, status, words in WRONG:
        answer = await gateway.http.request(method, address)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, status), address
        assert words in error["message"], address
        assert error["details"][0]["reason"] in reasons[status]
        assert len(answer.content) < 1_000
        assert ("Allow" in answer.headers) == (status == 405)


async def test_an_empty_value_takes_no_other_back(gateway: RunningGateway) -> None:
    """In either version, an empty value does not override another."""
    for address, headers in (("/tasks/x", {}), ("/v1/tasks/x", LEGACY)):
        refused = error(await gateway.http.get(f"{address}?historyLength=-1&historyLength=", headers=headers))
        assert refused == (400, "historyLength is -1; it must be 0 or more")


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
    "address", ["/tasks/x:subscribe", "/agents/staged/tasks/x:subscribe", "/v1/tasks/x:subscribe"]
)
async def test_a_stream_has_no_head(gateway: RunningGateway, address: str) -> None:
    """HEAD is refused: it would stay open for as long as the task runs, and return nothing."""
    headers = {"A2A-Version": "0.3" if "/v1/" in address else "1.0"}
    response = await gateway.http.head(address, headers=headers)
    assert (response.status_code, response.headers["Allow"]) == (405, "GET, POST")


@pytest.mark.parametrize(
    ("agent", "sent", "content"),
    [
        ("node", b"test", b"test"),
        ("node", b"\xff\xfe\x00", b"\xff\xfe\x00"),
        ("python-httpx/0.28.1", b"//4A", b"\xff\xfe\x00"),
        ("python-httpx/0.28.1", b"\xff\xfe\x00", b"\xff\xfe\x00"),
        ("python-httpx/0.28.1", b"any bytes", b"any bytes"),
    ],
)
async def test_files_of_the_old_version_come_back_as_its_clients_read_them(
    gateway: RunningGateway, agent: str, sent: bytes, content: bytes
) -> None:
    """As bytes; but in base64 for the SDK for Python, which fails at other bytes, and sends what it reads."""
    file = {"mimeType": "application/octet-stream", "name": "a"}
    part = {"file": {**file, "fileWithBytes": b64encode(sent).decode()}}
    body = {"message": {"messageId": unique("m"), "role": "ROLE_USER", "content": [part]}}
    headers = {**LEGACY, "User-Agent": agent}
    answer = (await gateway.http.post("/v1/message:send", json=body, headers=headers)).json()
    read = await gateway.http.get(f"/v1/tasks/{answer['task']['id']}", headers=headers)
    stored = (await gateway.call("GetTask", {"id": answer["task"]["id"]})).json()["result"]
    assert b64decode(stored["history"][0]["parts"][0]["raw"]) == content
    for task in (answer["task"], read.json()):
        shown = b64decode(task["history"][0]["content"][0]["file"]["fileWithBytes"])
        assert shown == (content if agent == "node" else b64encode(content))

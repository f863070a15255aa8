"""What only JSON-RPC has: envelopes, ids, one endpoint for two versions."""

import pytest

from tests.gateway.harness import AGENT, RunningGateway, unique

LEGACY = {"A2A-Version": "0.3"}


@pytest.mark.parametrize("path", ["/", f"/agents/{AGENT.id}", f"/agents/{AGENT.id}/"])
@pytest.mark.parametrize(("method", "version"), [("GetTask", "1.0"), ("tasks/get", "0.3")])
async def test_both_versions_have_one_endpoint(
    gateway: RunningGateway, path: str, method: str, version: str
) -> None:
    """With a slash at its end and without, and never a redirect."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "x"}}

    response = await gateway.http.post(path, json=body, headers={"A2A-Version": version})

    assert response.status_code == 200
    assert response.json()["error"]["code"] == -32001


@pytest.mark.parametrize("request_id", ["", "a", 0, -7, 2**53, None])
async def test_answers_have_the_id_of_their_request(
    gateway: RunningGateway, request_id: str | int | None
) -> None:
    """Any text, whole number or null, in results and in errors."""
    for params in ({}, {"pageSize": 0}):
        body = {"jsonrpc": "2.0", "id": request_id, "method": "ListTasks", "params": params}
        answer = (await gateway.http.post("/", json=body)).json()
        assert answer["id"] == request_id
        assert ("error" in answer) is bool(params)


@pytest.mark.parametrize(
    "request_id", [True, 1.5, {}, [], "x" * 1_000_000, "é" * 128, "a\0b", 2**63, -(2**64)]
)
async def test_other_ids_are_refused(gateway: RunningGateway, request_id: object) -> None:
    """The answer has no id, for it could not be told from another's."""
    body = {"jsonrpc": "2.0", "id": request_id, "method": "ListTasks"}

    answer = (await gateway.http.post("/", json=body)).json()

    assert (answer["id"], answer["error"]["code"]) == (None, -32600)
    assert "id has to be" in answer["error"]["message"]


async def test_an_id_that_is_no_text_is_refused(gateway: RunningGateway) -> None:
    """Half a character of UTF-16 could not be sent back."""
    body = b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ListTasks"}'

    answer = await gateway.http.post("/", content=body, headers={"Content-Type": "application/json"})

    assert (answer.json()["id"], answer.json()["error"]["code"]) == (None, -32600)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("message/send", {}),
        ("message/send", []),
        ("message/send", {"message": {"messageId": "m", "role": "king", "parts": []}}),
        ("message/send", {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text"}]}}),
        ("message/stream", {"message": {"messageId": 5, "role": "user", "parts": []}}),
        ("tasks/get", {"id": 5}),
        ("tasks/get", {}),
        ("tasks/cancel", {}),
        ("tasks/resubscribe", {"id": None}),
        ("tasks/pushNotificationConfig/set", {"taskId": "x"}),
        ("tasks/pushNotificationConfig/delete", {"id": "x"}),
    ],
)
async def test_parameters_of_the_old_version_that_do_not_fit(
    gateway: RunningGateway, method: str, params: object
) -> None:
    """-32602 as A2A 0.3 §8 has it; the text names a field, and nothing of our insides."""
    response = await gateway.call(method, params, **LEGACY)

    error = response.json()["error"]
    assert error["code"] == -32602
    assert "does not fit" in error["message"]
    assert "pydantic" not in response.text


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"kind": "file", "file": {}}, "message.parts[0].file.bytes does not fit: field required"),
        ({"kind": "data"}, "message.parts[0].data does not fit: field required"),
        ({"kind": "text", "text": 5}, "message.parts[0].text does not fit"),
    ],
)
async def test_the_kind_of_a_part_says_what_it_lacks(
    gateway: RunningGateway, part: object, words: str
) -> None:
    """Not what another kind would need."""
    params = {"message": {"messageId": "m", "role": "user", "parts": [part]}}

    assert words in (await gateway.call("message/send", params, **LEGACY)).json()["error"]["message"]


@pytest.mark.parametrize("headers", [{}, LEGACY], ids=["1.0", "0.3"])
async def test_a_request_has_no_other_members(gateway: RunningGateway, headers: dict[str, str]) -> None:
    """JSON-RPC 2.0 §4: it is the client's mistake, and no defect of ours."""
    method = "tasks/get" if headers else "GetTask"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "x"}, "context": {}}

    error = (await gateway.http.post("/", json=body, headers=headers)).json()["error"]

    assert (error["code"], "and no others" in error["message"]) == (-32600, True)


async def test_parts_are_counted_before_they_are_read(gateway: RunningGateway) -> None:
    """Whatever they hold: reading a hundred thousand of them takes long."""
    params = {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": 5}] * 1001}}

    error = (await gateway.call("message/send", params, **LEGACY)).json()["error"]

    assert (error["code"], error["message"]) == (
        -32602,
        "message.parts has 1001 parts; one message may have 1000",
    )


@pytest.mark.parametrize("field", ["messageId", "message_id"])
async def test_the_old_version_takes_both_spellings(gateway: RunningGateway, field: str) -> None:
    """The names of fields in camelCase and in snake_case."""
    params = {"message": {field: unique("m"), "role": "user", "parts": [{"kind": "text", "text": "hi"}]}}

    result = (await gateway.call("message/send", params, **LEGACY)).json()["result"]

    assert (result["kind"], result["status"]["state"]) == ("task", "completed")


async def test_a_method_that_there_is_not(gateway: RunningGateway) -> None:
    """Also ListTasks under a name of 0.3, which never had it."""
    for method in ("tasks/list", "Nonsense"):
        error = (await gateway.call(method, {}, **LEGACY)).json()["error"]
        assert error["code"] == -32601
        assert error["data"][0]["reason"] == "METHOD_NOT_FOUND"

"""What clients of A2A 0.3 send, as JSON."""

from typing import Any

import httpx

from tests.conformance.event_stream import data_of
from tests.conformance.messages import fresh


def said(behaviour: str, **fields: object) -> dict[str, Any]:
    """Return a message of 0.3, which makes the agent behave like that."""
    return {
        "kind": "message",
        "messageId": fresh(behaviour),
        "role": "user",
        "parts": [{"kind": "text", "text": "Please."}],
        **fields,
    }


async def call(http: httpx.AsyncClient, method: str, params: object) -> dict[str, Any]:
    """Return the answer to a JSON-RPC request; clients of 0.3 send no version."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await http.post("/", json=body)).json()


async def send(http: httpx.AsyncClient, behaviour: str, **fields: object) -> dict[str, Any]:
    """Return the task that a message leads to."""
    params = {"message": said(behaviour, **fields), "configuration": {"blocking": True}}
    return (await call(http, "message/send", params))["result"]


async def events_of(http: httpx.AsyncClient, method: str, params: object) -> list[str]:
    """Return the data of all events of a streaming method."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with http.stream("POST", "/", json=body) as response:
        assert response.headers["content-type"].split(";")[0] == "text/event-stream"
        return [data async for data in data_of(response)]

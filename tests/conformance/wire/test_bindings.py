"""Rules of each binding alone: A2A 1.0 §9, §11; 0.3 §7.2."""

from typing import Any

import httpx
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3 import types as v03
from google.protobuf.json_format import ParseDict

from tests.conformance.messages import ASKS, COMPLETES, STREAMS, VERSION, content
from tests.conformance.stack import Stack
from tests.support.wires.agent import Agent
from tests.support.wires.events import events_of
from tests.support.wires.wires import JSONRPC, NAMES


async def _send(stack: Stack, behaviour: str = COMPLETES, **fields: object) -> dict[str, Any]:
    body = {"message": content(behaviour, **fields)}
    response = await stack.http.post("/message:send", json=body, headers=VERSION)
    assert response.status_code == 200, response.text
    return response.json()["task"]


def _media_type(response: httpx.Response) -> str:
    return response.headers["content-type"].split(";")[0]


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_subscribing_is_a_stream(stack: Stack, verb: str) -> None:
    """POST by the table of methods, GET by the proto: both begin with the task (§5.3, §11.3.2)."""
    task = await _send(stack, ASKS)
    path = f"/tasks/{task['id']}:subscribe"
    async with stack.http.stream(verb, path, headers=VERSION) as response:
        assert (response.status_code, _media_type(response)) == (200, "text/event-stream")
        events = events_of(response)
        assert (await anext(events)).data["task"]["id"] == task["id"]
    await stack.http.post(f"/tasks/{task['id']}:cancel", headers=VERSION)


async def test_a_cancel_needs_no_body(stack: Stack) -> None:
    """The id is in the path (§11.3.2); a body is accepted, too."""
    for body in (None, {}, {"metadata": {"why": "tired"}}):
        task = await _send(stack, ASKS)
        response = await stack.http.post(f"/tasks/{task['id']}:cancel", json=body, headers=VERSION)
        assert response.status_code == 200
        assert response.json()["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.parametrize("behaviour", [STREAMS, ASKS])
@pytest.mark.parametrize("name", NAMES[3:])
async def test_a_stream_of_0_3_has_one_final_update(
    agents: dict[str, Agent], name: str, behaviour: str
) -> None:
    """The task first, one final status last, also if the task waits for its user (0.3 §7.2)."""
    wire = agents[name].wire
    events = [event async for event in wire.stream("SendStreamingMessage", {"message": content(behaviour)})]
    for event in events:
        if wire.binding == JSONRPC:
            v03.SendStreamingMessageResponse.model_validate(event.data)
        else:
            ParseDict(event.data, pb03.StreamResponse())
    first, *updates = [event.result for event in events]
    assert "task" in {first.get("kind"), *first}
    told = [one.get("statusUpdate", one) for one in updates]
    finals = [bool(one.get("final")) for one in told if "status" in one]
    assert finals == [False] * (len(finals) - 1) + [True]

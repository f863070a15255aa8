"""Extensions: A2A 1.0 §3.2.6, §4.6."""

from dataclasses import replace
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb

from everloop.runtime.protocol.tasks import EVENTS_EXTENSION
from tests.conformance.bindings import VERSION, Binding
from tests.conformance.messages import COMPLETES, STREAMS, all_of, content, message
from tests.conformance.stack import Stack

UNKNOWN = "https://example.com/extensions/nobody-knows/v1"


def _using(agent: Binding, *uris: str) -> Binding:
    return replace(agent, headers={**VERSION, "A2A-Extensions": ", ".join(uris)})


def _extended(events: list[pb.StreamResponse]) -> list[pb.StreamResponse]:
    return [event for event in events if EVENTS_EXTENSION in event.status_update.metadata.fields]


async def test_an_extension_is_active_if_the_client_asks_for_it(agent: Binding) -> None:
    """What an extension adds is sent to clients that name its URI, and to no others (§4.6.1)."""
    with_it = await all_of(_using(agent, EVENTS_EXTENSION).send_streaming(message(STREAMS)))
    without = await all_of(agent.send_streaming(message(STREAMS)))
    assert _extended(with_it)
    assert not _extended(without)


async def test_several_extensions_stand_in_one_header(agent: Binding) -> None:
    """They are separated by commas; one that nobody knows does not disturb the others (§3.2.6, §4.6.3)."""
    events = await all_of(_using(agent, UNKNOWN, EVENTS_EXTENSION).send_streaming(message(STREAMS)))
    assert _extended(events)


async def test_an_unknown_extension_is_ignored(agent: Binding) -> None:
    """The call goes on without it (§4.6.3)."""
    task = await _using(agent, UNKNOWN).send(message(COMPLETES))
    assert task.status.state == pb.TASK_STATE_COMPLETED


async def test_another_version_of_an_extension_is_not_this_one(agent: Binding) -> None:
    """There is no falling back to a version that the client did not name (§4.6.3)."""
    newer = EVENTS_EXTENSION.removesuffix("v1") + "v2"
    events = await all_of(_using(agent, newer).send_streaming(message(STREAMS)))
    assert not _extended(events)


async def test_the_declared_extensions_are_those_that_work(stack: Stack) -> None:
    """Whatever can be activated stands in the card; none of them is required (§4.6.1)."""
    card: dict[str, Any] = (await stack.http.get("/v1/.well-known/agent-card.json")).json()
    declared = card["capabilities"]["extensions"]
    assert EVENTS_EXTENSION in {one["uri"] for one in declared}
    assert not [one for one in declared if one.get("required")]


@pytest.mark.parametrize("name", ["A2A-Extensions", "a2a-extensions", "X-A2A-Extensions"])
async def test_the_answer_names_the_active_extensions(stack: Stack, name: str) -> None:
    """The header of the answer says what was activated; 0.3 clients use the header with X- (own rule)."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": content(COMPLETES)}}
    headers = {**VERSION, name: f"{UNKNOWN}, {EVENTS_EXTENSION}"}
    if name.startswith("X-"):
        said = {**content(COMPLETES), "role": "user", "kind": "message"}
        said["parts"] = [{"kind": "text", "text": "Please."}]
        body |= {"method": "message/send", "params": {"message": said}}
        headers.pop("A2A-Version")
    response = await stack.http.post("/", json=body, headers=headers)
    assert "result" in response.json()
    assert response.headers[name] == EVENTS_EXTENSION

"""Extensions: A2A 1.0 §3.2.6, §4.6."""

from dataclasses import replace
from typing import Any

from a2a.types import a2a_pb2 as pb

from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from tests.conformance.messages import STREAMS, VERSION, all_of, message
from tests.conformance.stack import Stack
from tests.support.wires.agent import Agent

UNKNOWN = "https://example.com/extensions/nobody-knows/v1"


def _using(agent: Agent, *uris: str) -> Agent:
    return replace(agent, headers={**VERSION, "A2A-Extensions": ", ".join(uris)})


def _extended(events: list[pb.StreamResponse]) -> list[pb.StreamResponse]:
    return [event for event in events if EVENTS_EXTENSION in event.status_update.metadata.fields]


async def test_an_extension_is_active_if_the_client_asks_for_it(agent: Agent) -> None:
    """Content of an extension is sent to clients that name its URI, and to no others (§3.2.6, §4.6.1).

    An unknown URI is ignored.
    """
    with_it = await all_of(_using(agent, UNKNOWN, EVENTS_EXTENSION).send_streaming(message(STREAMS)))
    without = await all_of(agent.send_streaming(message(STREAMS)))
    assert _extended(with_it)
    assert not _extended(without)


async def test_another_version_of_an_extension_is_not_this_one(agent: Agent) -> None:
    """The server does not fall back to a version that the client did not name (§4.6.3)."""
    newer = EVENTS_EXTENSION.removesuffix("v1") + "v2"
    events = await all_of(_using(agent, newer).send_streaming(message(STREAMS)))
    assert not _extended(events)


async def test_the_declared_extensions_are_those_that_work(stack: Stack) -> None:
    """All extensions that can be activated are in the card; none of them is required (§4.6.1)."""
    card: dict[str, Any] = (await stack.http.get("/v1/.well-known/agent-card.json")).json()
    declared = card["capabilities"]["extensions"]
    assert EVENTS_EXTENSION in {one["uri"] for one in declared}
    assert not [one for one in declared if one.get("required")]

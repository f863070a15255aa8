"""Agent cards: A2A 1.0 §4.4, §8, §14.3; the fields of 0.3 beside them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from a2a.types import a2a_pb2 as pb

from tests.conformance.messages import BINDINGS, COMPLETES, message
from tests.conformance.stack import Stack
from tests.support.wires.agent import Agent, refusal
from tests.support.wires.wires import GRPC, JSONRPC

MERGED, PURE = "/.well-known/agent-card.json", "/v1/.well-known/agent-card.json"
CARDS = pytest.mark.parametrize("path", [MERGED, PURE])

REQUIRED = {
    "name",
    "description",
    "version",
    "supportedInterfaces",
    "capabilities",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
}


async def _card(stack: Stack, path: str) -> dict[str, Any]:
    response = await stack.http.get(path)
    response.raise_for_status()
    return response.json()


@CARDS
async def test_a_card_has_all_required_fields(stack: Stack, path: str) -> None:
    """None is missing, and no required list is empty (§4.4.1, §5.7)."""
    card = await _card(stack, path)
    assert card.keys() >= REQUIRED
    for name in REQUIRED - {"capabilities"}:
        assert card[name], name


@CARDS
async def test_all_interfaces_are_declared(stack: Stack, path: str) -> None:
    """Each served binding is in the card with URL and version, JSONRPC first (§5.2, §8.3.1)."""
    interfaces = (await _card(stack, path))["supportedInterfaces"]
    assert interfaces[0]["protocolBinding"] == JSONRPC
    declared = {one["protocolBinding"] for one in interfaces if one["protocolVersion"] == "1.0"}
    assert declared == set(BINDINGS)
    for one in interfaces:
        if one["protocolBinding"] == GRPC:
            host, _, port = one["url"].rpartition(":")
            assert (host.rpartition("/")[0], port.isdigit()) == ("", True), one["url"]
        else:
            assert urlsplit(one["url"]).scheme in {"http", "https"}


async def test_each_declared_interface_answers(agent: Agent, stack: Stack) -> None:
    """A client with URL and tenant of the card is served (§8.3.1)."""
    interfaces = (await _card(stack, PURE))["supportedInterfaces"]
    mine = next(one for one in interfaces if one["protocolBinding"] == agent.binding)
    expected = stack.grpc_address if agent.binding == GRPC else stack.url
    assert mine["url"].rstrip("/") == expected.rstrip("/")
    request = message(COMPLETES)
    request.tenant = mine.get("tenant", "")
    assert (await agent.send(request)).status.state == pb.TASK_STATE_COMPLETED


async def test_capabilities_say_what_is_served(stack: Stack, agent: Agent) -> None:
    """Streaming and push notifications are; an extended card needs authentication, which is off (§13.3)."""
    capabilities = (await _card(stack, PURE))["capabilities"]
    assert capabilities["streaming"] is True
    assert capabilities["pushNotifications"] is True
    assert not capabilities.get("extendedAgentCard")
    refused = await refusal(agent.call("GetExtendedAgentCard", pb.GetExtendedAgentCardRequest()))
    assert refused.reason == "UNSUPPORTED_OPERATION"
    assert "does not ask who calls" in refused.message


async def test_extensions_are_declared_by_uri(stack: Stack) -> None:
    """Each extension has a URI, with a version in it (§4.6.1, §4.6.3)."""
    for extension in (await _card(stack, PURE))["capabilities"].get("extensions", []):
        assert urlsplit(extension["uri"]).scheme
        assert any(step.startswith("v") and step[1:].isdigit() for step in extension["uri"].split("/"))


async def test_each_skill_has_its_required_fields(stack: Stack) -> None:
    """Id, name, description and tags; ids are unique (§4.4.5)."""
    skills: list[Mapping[str, Any]] = (await _card(stack, PURE))["skills"]
    for skill in skills:
        assert skill["id"]
        assert skill["name"]
        assert skill["description"]
        assert skill["tags"]
    assert len({skill["id"] for skill in skills}) == len(skills)


async def test_modes_are_media_types(stack: Stack) -> None:
    """Default modes are media types, not ranges of them (§4.4.1)."""
    card = await _card(stack, PURE)
    for mode in (*card["defaultInputModes"], *card["defaultOutputModes"]):
        assert mode.count("/") == 1, mode
        assert "*" not in mode


async def test_no_card_holds_a_secret(stack: Stack) -> None:
    """A card shows no internals: no address of Redis or Temporal (§8, §14.3)."""
    for path in (MERGED, PURE):
        text = (await stack.http.get(path)).text.lower()
        assert not any(word in text for word in ("redis", "temporal", "password", "secret"))

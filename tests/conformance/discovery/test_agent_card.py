"""Agent cards: A2A 1.0 §4.4, §8, §14.3; the fields of 0.3 beside them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from tests.conformance.bindings import BINDINGS, GRPC, JSONRPC, Binding, refusal
from tests.conformance.messages import COMPLETES, message
from tests.conformance.stack import Stack

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
OF_0_3 = {
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "protocolVersion",
    "supportsAuthenticatedExtendedCard",
    "security",
}


async def _card(stack: Stack, path: str) -> dict[str, Any]:
    response = await stack.http.get(path)
    response.raise_for_status()
    return response.json()


@CARDS
async def test_there_is_a_card_at_the_well_known_address(stack: Stack, path: str) -> None:
    """Anybody finds the card, as JSON (§8.1, §8.2, §14.3)."""
    response = await stack.http.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"].split(";")[0] in {"application/json", "application/a2a+json"}


@CARDS
async def test_a_card_has_all_required_fields(stack: Stack, path: str) -> None:
    """None is missing, and no required list is empty (§4.4.1, §5.7)."""
    card = await _card(stack, path)
    assert card.keys() >= REQUIRED
    for name in REQUIRED - {"capabilities"}:
        assert card[name], name


async def test_the_pure_card_has_no_field_that_1_0_does_not_know(stack: Stack) -> None:
    """A reader that refuses unknown fields can read it (own rule)."""
    card = await _card(stack, PURE)
    ParseDict(card, pb.AgentCard(), ignore_unknown_fields=False)
    assert not OF_0_3 & card.keys()
    assert {one["protocolVersion"] for one in card["supportedInterfaces"]} == {"1.0"}


async def test_the_pure_card_is_the_same_card(stack: Stack) -> None:
    """What both say, they say alike; the one at the root has more (own rule)."""
    merged, pure = await _card(stack, MERGED), await _card(stack, PURE)
    same = REQUIRED - {"supportedInterfaces", "capabilities", "skills"}
    assert {name: merged[name] for name in same} == {name: pure[name] for name in same}


async def test_the_card_at_the_root_can_be_read_by_0_3(stack: Stack) -> None:
    """It has the fields that 0.3 requires beside those of 1.0 (0.3 §5.5)."""
    card = await _card(stack, MERGED)
    assert card["protocolVersion"].startswith("0.3")
    assert card["url"].startswith("http")
    assert card["preferredTransport"] == "JSONRPC"
    assert not card.get("supportsAuthenticatedExtendedCard")


async def test_0_3_finds_every_interface_in_one_list(stack: Stack) -> None:
    """The additional interfaces should name the preferred one again (0.3 §5.6.2)."""
    card = await _card(stack, MERGED)
    offered = {(one["url"], one["transport"]) for one in card["additionalInterfaces"]}
    assert (card["url"], card["preferredTransport"]) in offered
    assert {transport for _, transport in offered} == set(BINDINGS)


@CARDS
async def test_all_interfaces_are_declared(stack: Stack, path: str) -> None:
    """Each binding that is served stands in the card with URL and version, JSONRPC first (§5.2, §8.3.1)."""
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


async def test_each_declared_interface_answers(agent: Binding, stack: Stack) -> None:
    """A client that takes URL and tenant from the card gets served (§8.3.1)."""
    interfaces = (await _card(stack, PURE))["supportedInterfaces"]
    mine = next(one for one in interfaces if one["protocolBinding"] == agent.name)
    expected = stack.grpc_address if agent.name == GRPC else stack.url
    assert mine["url"].rstrip("/") == expected.rstrip("/")
    request = message(COMPLETES)
    request.tenant = mine.get("tenant", "")
    assert (await agent.send(request)).status.state == pb.TASK_STATE_COMPLETED


async def test_capabilities_say_what_is_served(stack: Stack) -> None:
    """Streaming and push notifications are; an extended card takes a caller, whom nobody is here (§13.3)."""
    capabilities = (await _card(stack, PURE))["capabilities"]
    assert capabilities["streaming"] is True
    assert capabilities["pushNotifications"] is True
    assert not capabilities.get("extendedAgentCard")


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


@CARDS
async def test_cards_can_be_cached(stack: Stack, path: str) -> None:
    """Cache-Control with max-age, ETag and Last-Modified (§8.6.1)."""
    headers = (await stack.http.get(path)).headers
    assert "max-age=" in headers["cache-control"]
    assert headers["etag"].strip('"W/')
    assert headers["last-modified"].endswith("GMT")


@CARDS
async def test_an_unchanged_card_is_not_sent_again(stack: Stack, path: str) -> None:
    """Conditional requests are answered with 304 and no body (§8.6.2, RFC 9110 §13)."""
    first = (await stack.http.get(path)).headers
    for condition in (
        {"If-None-Match": first["etag"]},
        {"If-None-Match": "*"},
        {"If-Modified-Since": first["last-modified"]},
    ):
        again = await stack.http.get(path, headers=condition)
        assert (again.status_code, again.content) == (304, b""), condition
        assert again.headers["etag"] == first["etag"]
    other = await stack.http.get(path, headers={"If-None-Match": '"another"'})
    assert other.status_code == 200


async def test_an_extended_card_that_is_not_declared_is_refused(agent: Binding) -> None:
    """Where nobody authenticates there is none, on any binding (§3.1.11, §13.3)."""
    refused = await refusal(agent.call("GetExtendedAgentCard", pb.GetExtendedAgentCardRequest()))
    assert refused.reason == "UNSUPPORTED_OPERATION"


async def test_no_card_holds_a_secret(stack: Stack) -> None:
    """A card tells nothing of the inside: no address of Redis or Temporal (§8, §14.3)."""
    for path in (MERGED, PURE):
        text = (await stack.http.get(path)).text.lower()
        assert not any(word in text for word in ("redis", "temporal", "password", "secret"))

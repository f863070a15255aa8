"""Agent cards."""

import tomllib
from pathlib import Path

import pytest
from a2a.utils.proto_utils import validate_proto_required_fields

from agents.agent import Agent
from gateway.cards import VERSION, agent_card
from gateway.settings import GatewaySettings

AGENT = Agent(id="writer", name="Writer", description="Writes.")


def test_a_card_has_all_that_a2a_requires() -> None:
    """Every field that A2A 1.0 §4.4.1 requires is there, and the interface is where clients reach it."""
    card = agent_card(AGENT, "https://agents.example/")

    validate_proto_required_fields(card)
    (interface,) = card.supported_interfaces
    assert (interface.url, interface.protocol_binding, interface.protocol_version) == (
        "https://agents.example/",
        "JSONRPC",
        "1.0",
    )
    assert card.capabilities.streaming
    assert not card.capabilities.push_notifications
    assert [skill.id for skill in card.skills] == ["writer"]


def test_the_version_of_the_card_is_that_of_the_package() -> None:
    """There is one version, and pyproject.toml says it."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))

    assert project["project"]["version"] == VERSION


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "http://127.0.0.1:8080/"),
        ({"host": "0.0.0.0"}, "http://localhost:8080/"),
        ({"host": "::", "port": 1}, "http://localhost:1/"),
        ({"host": "::1"}, "http://[::1]:8080/"),
        ({"public_url": "https://a.example"}, "https://a.example/"),
        ({"public_url": "https://a.example/agents/"}, "https://a.example/agents/"),
    ],
    ids=str,
)
def test_the_public_address_defaults_to_where_we_listen(settings: dict[str, object], url: str) -> None:
    """It is an address that a client can use, with one slash at its end."""
    assert GatewaySettings.model_validate(settings).url == url

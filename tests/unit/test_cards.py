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


@pytest.mark.parametrize(
    ("takes", "named"),
    [
        (
            ("image/*", "application/pdf"),
            ["image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"],
        ),
        (("audio/wav", "*/*", "text/plain"), ["audio/wav"]),
        ((), []),
    ],
)
def test_a_card_names_the_files_that_the_agent_takes(takes: tuple[str, ...], named: list[str]) -> None:
    """Media types and no ranges: text and JSON, what the model is given as it is, and any file."""
    agent = Agent(id="writer", name="Writer", description="Writes.", model_takes=takes)

    card = agent_card(agent, "https://agents.example/")

    assert card.default_input_modes == ["text/plain", "application/json", *named, "application/octet-stream"]
    assert card.default_output_modes == ["text/plain", "application/json", "application/octet-stream"]


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

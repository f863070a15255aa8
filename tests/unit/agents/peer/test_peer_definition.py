"""Definitions of a peer by an agent's author."""

import json
import subprocess
import sys

import pytest

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.peer.peer_definition import Peer, card_address
from everloop.agents.peer.peer_plugin import peer

CARD = "/.well-known/agent-card.json"


@pytest.mark.parametrize(
    ("url", "name", "card"),
    [
        ("https://writer.example.com", "ask_writer_example_com", f"https://writer.example.com{CARD}"),
        (
            "https://w.example/agents/poet/",
            "ask_w_example_agents_poet",
            f"https://w.example/agents/poet{CARD}",
        ),
        (f"http://127.0.0.1:8000{CARD}", "ask_127_0_0_1_8000", f"http://127.0.0.1:8000{CARD}"),
    ],
)
def test_the_address_makes_the_name(url: str, name: str, card: str) -> None:
    """From the address of the card as well as from the one that contains it."""
    assert peer(url).tools[0].name == name
    assert card_address(url) == card


@pytest.mark.parametrize(
    ("url", "settings", "problem"),
    [
        ("writer.example", {}, "http:// or https:// and a host"),
        ("https://ann:pass@w.example", {}, "has a user name or a password"),
        ("https://w.example", {"name": "a b"}, "letters, digits, - and _"),
        ("https://w.example", {"headers": {"a b": "c"}}, "is no name of a header"),
        ("https://w.example", {"headers": {"a": "s3cret\n"}}, "the value of the header 'a' is not"),
    ],
)
def test_a_wrong_definition_is_refused(url: str, settings: dict[str, str], problem: str) -> None:
    """The error names the remedy, without secrets."""
    with pytest.raises(AgentDefinitionError, match=problem) as refused:
        peer(url, **settings)  # pyright: ignore[reportArgumentType] -- wrong on purpose

    assert "pass@" not in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_defining_a_peer_loads_no_client() -> None:
    """Every process imports agents; only callers of a peer need the A2A client."""
    program = (
        "import everloop, json, sys; everloop.peer('https://w.example'); "
        "print(json.dumps('a2a' in sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout

    assert json.loads(printed) is False


def test_messages_show_no_query() -> None:
    """It may contain a key."""
    assert Peer("https://w.example/x.json?key=s3cret", "w").label == "https://w.example/x.json"


def test_headers_are_not_printed() -> None:
    """The printed definition contains no secrets."""
    assert "s3cret" not in repr(Peer("https://w.example", "w", {"authorization": "s3cret"}))

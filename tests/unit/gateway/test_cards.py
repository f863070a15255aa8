"""Agent cards, and the key that signs them."""

from pathlib import Path

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from jwt import PyJWK

from everloop.agents.agent import Agent, Skill
from everloop.agents.registry import AgentRegistry
from everloop.gateway.cards.cards import Cards, CardSettings
from everloop.gateway.cards.signing import CardKey, CardKeyError, CardKeySettings, load_card_key
from everloop.gateway.settings import GatewaySettings

URL = "https://agents.example/"
AGENT = Agent(id="writer", name="Writer", description="Writes.")
OTHER = Agent(id="reader", name="Reader", description="Reads.")


def cards_of(*agents: Agent, grpc_url: str = "", push: bool = False) -> Cards:
    return Cards(AgentRegistry(agents or (AGENT,)), CardSettings(URL, grpc_url, push))


def interfaces_of(card: pb.AgentCard) -> list[tuple[str, str, str, str]]:
    return [
        (one.protocol_binding, one.protocol_version, one.url, one.tenant) for one in card.supported_interfaces
    ]


def test_the_interfaces_of_the_default_agent() -> None:
    """JSON-RPC comes first, because clients use the first one that they support; those of 0.3 come last."""
    cards = cards_of(AGENT, OTHER, grpc_url="agents.example:443")
    current = [
        ("JSONRPC", "1.0", "https://agents.example/", ""),
        ("HTTP+JSON", "1.0", "https://agents.example", ""),
        ("GRPC", "1.0", "agents.example:443", ""),
    ]
    of_old = [(binding, "0.3", url, tenant) for binding, _, url, tenant in current]
    assert interfaces_of(cards.pure(AGENT)) == current
    assert interfaces_of(cards.merged(AGENT)) == current + of_old
    assert interfaces_of(cards.over_http(AGENT)) == current[:2] + of_old[:2]


def test_the_interfaces_of_an_agent_beside_it() -> None:
    """Over HTTP the address names the agent, over gRPC the tenant, which 0.3 does not have."""
    cards = cards_of(AGENT, OTHER, grpc_url="agents.example:443")
    assert interfaces_of(cards.merged(OTHER)) == [
        ("JSONRPC", "1.0", "https://agents.example/agents/reader/", ""),
        ("HTTP+JSON", "1.0", "https://agents.example/agents/reader", ""),
        ("GRPC", "1.0", "agents.example:443", "reader"),
        ("JSONRPC", "0.3", "https://agents.example/agents/reader/", ""),
        ("HTTP+JSON", "0.3", "https://agents.example/agents/reader", ""),
    ]


def test_a_card_tells_what_the_definition_does() -> None:
    """Skills, modes and version of the agent win over our defaults."""
    skill = Skill(
        "haiku", "Haiku", "Writes haiku.", tags=["poems"], examples=["of frogs"], input_modes=["a/b"]
    )
    plain = Skill("plain", "Plain", "Writes.")
    agent = Agent(
        id="poet",
        name="Poet",
        description="Writes poems.",
        skills=[skill, plain],
        input_modes=["text/plain"],
        output_modes=["text/markdown"],
        version="7.1",
    )
    card = cards_of(agent).pure(agent)
    assert card.version == "7.1"
    assert (card.default_input_modes, card.default_output_modes) == (["text/plain"], ["text/markdown"])
    assert card.skills[0] == pb.AgentSkill(
        id="haiku",
        name="Haiku",
        description="Writes haiku.",
        tags=["poems"],
        examples=["of frogs"],
        input_modes=["a/b"],
    )
    assert card.skills[1].tags == ["plain"]  # A2A requires one
    validate_proto_required_fields(card)


@pytest.mark.parametrize(
    ("settings", "url", "grpc_address"),
    [
        ({}, "http://127.0.0.1:8080/", ""),
        ({"grpc_port": 9}, "http://127.0.0.1:8080/", "127.0.0.1:9"),
        ({"host": "0.0.0.0", "grpc_port": 9}, "http://localhost:8080/", "localhost:9"),
        ({"host": "::", "port": 1}, "http://localhost:1/", ""),
        ({"host": "::1", "grpc_port": 9}, "http://[::1]:8080/", "[::1]:9"),
        ({"public_url": "https://a.example", "grpc_url": "a.example:443"}, "https://a.example/", ""),
        (
            {"public_url": "https://a.example/agents/", "grpc_port": 9, "grpc_url": "a.example:443"},
            "https://a.example/agents/",
            "a.example:443",
        ),
    ],
    ids=str,
)
def test_the_public_address_defaults_to_where_we_listen(
    settings: dict[str, object], url: str, grpc_address: str
) -> None:
    """Clients can use these addresses; that of gRPC is there only if gRPC is served."""
    read = GatewaySettings.model_validate(settings)
    assert (read.url, read.grpc_address) == (url, grpc_address)


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
    """Media types and no ranges: text and JSON, the types that the model reads directly, and any file."""
    agent = Agent(id="writer", name="Writer", description="Writes.", model_takes=takes)
    card = cards_of(agent).pure(agent)
    assert card.default_input_modes == ["text/plain", "application/json", *named, "application/octet-stream"]
    assert card.default_output_modes == ["text/plain", "application/json", "application/octet-stream"]


PRIVATE = (Encoding.PEM, PrivateFormat.PKCS8)

KEYS = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    "RS256": rsa.generate_private_key(65_537, 2_048),
}


def key_file(directory: Path, content: bytes) -> CardKeySettings:
    path = directory / "card-key.pem"
    path.write_bytes(content)
    return CardKeySettings(card_key=path)


def loaded(directory: Path, algorithm: str) -> CardKey:
    key = load_card_key(key_file(directory, KEYS[algorithm].private_bytes(*PRIVATE, NoEncryption())))
    assert key
    return key


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_signed_card_is_verified_with_the_public_key(tmp_path: Path, algorithm: str) -> None:
    """By the SDK's own verifier; a changed card fails the verification (A2A 1.0 §8.4)."""
    key = loaded(tmp_path, algorithm)
    card = key.sign(pb.AgentCard(name="Writer", description="Schreibt schöne Wörter."), URL)
    verify = create_signature_verifier(lambda _kid, _jku: PyJWK(dict(key.public)), [algorithm])
    verify(card)
    card.name = "Somebody else"
    with pytest.raises(InvalidSignaturesError):
        verify(card)


@pytest.mark.parametrize("algorithm", KEYS)
def test_nothing_private_is_in_the_key_set(tmp_path: Path, algorithm: str) -> None:
    """None of the members that RFC 7518 and RFC 8037 have for private keys."""
    public = loaded(tmp_path, algorithm).public
    assert not {"d", "p", "q", "dp", "dq", "qi", "k", "oth"} & set(public)


WRONG = {
    "no key": b"-----BEGIN NONSENSE-----\n",
    "not even text": b"\xff\x00",
    "a public key": KEYS["ES256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    "a password": KEYS["ES256"].private_bytes(*PRIVATE, BestAvailableEncryption(b"secret")),
    "another curve": ec.generate_private_key(ec.SECP384R1()).private_bytes(*PRIVATE, NoEncryption()),
    "a short key": rsa.generate_private_key(65_537, 1_024).private_bytes(*PRIVATE, NoEncryption()),  # noqa: S505 -- to be refused
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_a_key_that_cannot_sign_is_named(tmp_path: Path, content: bytes) -> None:
    """In one line: the setting, the file, and the expected form."""
    with pytest.raises(CardKeyError) as caught:
        load_card_key(key_file(tmp_path, content))
    message = str(caught.value)
    assert message.startswith("EVERLOOP_CARD_KEY: ")
    assert "card-key.pem" in message
    assert "expected: a private key in PEM format" in message
    assert "\n" not in message


def test_a_key_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the reason of the operating system."""
    with pytest.raises(CardKeyError, match=r"EVERLOOP_CARD_KEY: .*none\.pem: No such file"):
        load_card_key(CardKeySettings(card_key=tmp_path / "none.pem"))

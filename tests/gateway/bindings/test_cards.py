"""Agent cards, the catalogue and the keys of signatures, as clients get them."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

import httpx
import pytest
import pytest_asyncio
from a2a.client.card_resolver import A2ACardResolver
from a2a.compat.v0_3 import types as old
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt import InvalidSignatureError, PyJWK, PyJWKSet, api_jws
from jwt.utils import base64url_decode, base64url_encode
from starlette.applications import Starlette
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.agents.plugins import Plugin
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import Tool
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.schemes import Authenticator
from everloop.gateway.cards.card_routes import card_routes
from everloop.gateway.cards.cards import Cards, CardSettings
from everloop.gateway.cards.signing import CardKey, CardKeySettings, load_card_key
from everloop.stores.log.log_store import TaskViews
from tests.gateway.grpc_harness import GrpcGateway, running_grpc_gateway
from tests.support.a2a_client import BINDINGS, Binding, connected

WRITER = Agent(id="writer", name="Writer", description="Writes.")


def search(words: str) -> str:
    return words


READER = Agent(
    id="reader",
    name="Reader",
    description="Reads “quotes”.",
    plugins=[Plugin(tools=(Tool(search, "search", "Searches."),))],
)

SCHEMES = {
    "key": pb.SecurityScheme(
        api_key_security_scheme=pb.APIKeySecurityScheme(name="X-Key", location="header")
    ),
    "token": pb.SecurityScheme(http_auth_security_scheme=pb.HTTPAuthSecurityScheme(scheme="Bearer")),
    "tls": pb.SecurityScheme(mtls_security_scheme=pb.MutualTlsSecurityScheme(description="a certificate")),
}

CARD = ".well-known/agent-card.json"
OLD_CARD = ".well-known/agent.json"
PURE_CARD = "v1/.well-known/agent-card.json"
PREFIXES = ["", "agents/writer/", "agents/reader/"]


class Open(Authenticator):
    """Authenticates every caller, and lists the schemes of the card."""

    def security_schemes(self) -> Mapping[str, pb.SecurityScheme]:
        return SCHEMES


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> CardKey:
    path = tmp_path_factory.mktemp("key") / "key.pem"
    private = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    loaded = load_card_key(CardKeySettings(card_key=path))
    assert loaded
    return loaded


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def gateway(client: Client, views: TaskViews, key: CardKey) -> AsyncGenerator[GrpcGateway]:
    """A gateway whose cards have all that there is in cards."""
    async with running_grpc_gateway(
        client, views, queue="none", agents=[WRITER, READER], access=AccessControl(Open()), card_key=key
    ) as gateway:
        yield gateway


@pytest.fixture
def http(gateway: GrpcGateway) -> httpx.AsyncClient:
    return gateway.http.http


async def card_at(http: httpx.AsyncClient, path: str) -> dict[str, Any]:
    response = await http.get(path)
    assert response.headers["Content-Type"] == "application/json"
    return response.raise_for_status().json()


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_the_pure_card_has_the_fields_of_1_0_and_no_others(
    http: httpx.AsyncClient, prefix: str
) -> None:
    """A reader that refuses fields it does not know takes it; it names no interface of another version."""
    content = await card_at(http, f"{prefix}{PURE_CARD}")
    card = ParseDict(content, pb.AgentCard(), ignore_unknown_fields=False)
    assert {one.protocol_version for one in card.supported_interfaces} == {"1.0"}
    assert card.supported_interfaces[0].protocol_binding == "JSONRPC"
    assert dict(card.security_schemes) == SCHEMES


@pytest.mark.parametrize("path", [CARD, OLD_CARD])
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_the_merged_card_is_a_card_of_0_3_too(http: httpx.AsyncClient, prefix: str, path: str) -> None:
    """It has every field that 0.3 requires, under its name in 0.3, and those of 1.0 besides."""
    content = await card_at(http, f"{prefix}{path}")
    card = old.AgentCard.model_validate(content)
    assert content["supportedInterfaces"][0]["protocolVersion"] == "1.0"
    assert card.protocol_version == "0.3"
    assert card.preferred_transport == "JSONRPC"
    assert card.url == content["supportedInterfaces"][0]["url"]
    assert card.supports_authenticated_extended_card
    assert (card.url, "JSONRPC") in [(one.url, one.transport) for one in card.additional_interfaces or []]
    assert card.security == [{"key": []}, {"token": []}, {"tls": []}]


async def test_an_agent_has_one_card_wherever_it_is_asked_for(http: httpx.AsyncClient) -> None:
    """The default agent's is at the root and at its own address, and names the root."""
    at_the_root, at_its_own = await card_at(http, CARD), await card_at(http, f"agents/writer/{CARD}")
    assert at_the_root == at_its_own
    assert at_the_root["url"] == str(http.base_url)


async def test_the_catalogue_names_every_agent(http: httpx.AsyncClient) -> None:
    """With the address that each is called at, and that of its card, where the same name stands."""
    catalogue = (await http.get("/agents")).raise_for_status().json()
    assert [(entry["id"], entry["name"], entry["description"]) for entry in catalogue] == [
        ("writer", "Writer", "Writes."),
        ("reader", "Reader", "Reads “quotes”."),
    ]
    for entry in catalogue:
        card = await card_at(http, entry["card"])
        assert (card["name"], card["url"]) == (entry["name"], entry["url"])


ALL = [CARD, OLD_CARD, PURE_CARD, f"agents/reader/{CARD}", "agents", ".well-known/jwks.json"]


@pytest.mark.parametrize("path", ALL)
async def test_clients_may_keep_what_they_have(http: httpx.AsyncClient, path: str) -> None:
    """Cache-Control, ETag and Last-Modified save the second transfer of a card (A2A 1.0 §8.6.1)."""
    first = await http.get(path)
    tag, modified = first.headers["ETag"], first.headers["Last-Modified"]
    before = format_datetime(parsedate_to_datetime(modified) - timedelta(seconds=1), usegmt=True)

    async def status(**conditions: str) -> int:
        headers = {name.replace("_", "-"): value for name, value in conditions.items()}
        response = await http.get(path, headers=headers)
        assert response.headers["ETag"] == tag
        assert bool(response.content) == (response.status_code == 200)
        return response.status_code

    assert "max-age=" in first.headers["Cache-Control"]
    assert await status(If_None_Match=tag) == 304
    assert await status(If_None_Match=f'"other", {tag}') == 304
    assert await status(If_None_Match="*") == 304
    assert await status(If_None_Match='"other"') == 200
    assert await status(If_Modified_Since=modified) == 304
    assert await status(If_Modified_Since=before) == 200
    assert await status(If_Modified_Since="yesterday") == 200
    assert await status(If_Modified_Since=f"Mon, 01 Jan {'9' * 20} 00:00:00 GMT") == 200
    assert await status(If_None_Match='"other"', If_Modified_Since=modified) == 200


async def test_gateways_of_the_same_key_give_the_same_tag(key: CardKey) -> None:
    """Signatures differ each time they are made; clients of several gateways are to notice nothing."""
    cards = [Cards(AgentRegistry([WRITER]), CardSettings("http://test/"), key) for _ in range(2)]
    transports = [httpx.ASGITransport(Starlette(routes=card_routes(each))) for each in cards]
    answers: list[httpx.Response] = []
    for transport in transports:
        async with httpx.AsyncClient(base_url="http://test/", transport=transport) as http:
            answers.append(await http.get(CARD))
    assert answers[0].content != answers[1].content
    assert answers[0].headers["ETag"] == answers[1].headers["ETag"]


async def verifier(http: httpx.AsyncClient) -> Callable[[pb.AgentCard], None]:
    """Return what verifies cards with the keys that the gateway serves."""
    keys = PyJWKSet.from_dict((await http.get(".well-known/jwks.json")).raise_for_status().json())

    def find(key_id: str | None, url: str | None) -> PyJWK:
        assert url == f"{http.base_url}.well-known/jwks.json"
        return keys[key_id or ""]

    return create_signature_verifier(find, ["ES256"])


@pytest.mark.parametrize("path", [CARD, PURE_CARD])
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_the_official_client_verifies_the_card(http: httpx.AsyncClient, prefix: str, path: str) -> None:
    """With the keys at the address in the signature, as it comes over the network (A2A 1.0 §8.4.3)."""
    card = await A2ACardResolver(http, str(http.base_url)).get_agent_card(
        f"{prefix}{path}", signature_verifier=await verifier(http)
    )
    assert card.signatures


def canonical(content: object) -> bytes:
    """Return JSON as RFC 8785 writes it: cards have no names beyond ASCII, and no numbers."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def is_signed(content: Mapping[str, Any], keys: PyJWKSet) -> bool:
    """Whether a signature is over all of a card but its signatures, as RFC 7515 and RFC 8785 say."""
    signed = {name: value for name, value in content.items() if name != "signatures"}
    for each in content["signatures"]:
        protected, signature = each["protected"].encode(), each["signature"].encode()
        key = keys[json.loads(base64url_decode(protected))["kid"]]
        with suppress(InvalidSignatureError):
            api_jws.decode(b".".join((protected, base64url_encode(canonical(signed)), signature)), key)
            return True
    return False


@pytest.mark.parametrize("path", [CARD, PURE_CARD, f"http/{CARD}", f"blocking/{CARD}"])
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_strict_reader_verifies_the_card_as_it_is_served(
    http: httpx.AsyncClient, prefix: str, path: str
) -> None:
    """The official one leaves out what is empty: each scheme's requirements."""
    keys = PyJWKSet.from_dict(await card_at(http, ".well-known/jwks.json"))
    content = await card_at(http, f"{prefix}{path}")
    of_1_0 = MessageToDict(ParseDict(content, pb.AgentCard(), ignore_unknown_fields=True))
    assert content["securityRequirements"]
    assert is_signed(content, keys)
    assert is_signed(of_1_0, keys)
    assert not is_signed({**content, "name": "Somebody else"}, keys)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_official_client_verifies_the_extended_card(
    gateway: GrpcGateway, http: httpx.AsyncClient, binding: Binding
) -> None:
    """It is signed too, for it says more."""
    verify = await verifier(http)
    async with connected(f"{gateway.url}agents/reader/", binding=binding) as caller:
        card = await caller.get_extended_agent_card(
            pb.GetExtendedAgentCardRequest(), signature_verifier=verify
        )
    assert card.name == "Reader"
    assert [skill.id for skill in card.skills] == ["reader", "tool.search"]


@pytest.mark.parametrize("path", ["v1/card", ""])
async def test_the_extended_card_of_0_3_lists_every_interface(http: httpx.AsyncClient, path: str) -> None:
    """That of JSON-RPC too, which is the preferred one (0.3 §5.6.2)."""
    if path:
        content = (await http.get(path, headers={"A2A-Version": "0.3"})).json()
        transports = [one["transport"] for one in content["additionalInterfaces"]]
    else:
        body = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}
        content = (await http.post("/", json=body, headers={"A2A-Version": "0.3"})).json()["result"]
        transports = [one["transport"] for one in content["additionalInterfaces"]]
    assert transports == ["JSONRPC", "HTTP+JSON", "GRPC"]


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_card_without_streaming_can_be_asked_for(http: httpx.AsyncClient, prefix: str) -> None:
    """Some clients print each piece of an answer, and then all of it; it has no gRPC either."""
    card = await A2ACardResolver(http, str(http.base_url)).get_agent_card(
        f"{prefix}blocking/{CARD}", signature_verifier=await verifier(http)
    )
    content = await card_at(http, f"{prefix}blocking/{CARD}")
    usual = await card_at(http, f"{prefix}http/{CARD}")
    assert {one.protocol_binding for one in card.supported_interfaces} == {"JSONRPC", "HTTP+JSON"}
    assert usual["capabilities"]["streaming"] is True
    assert content["capabilities"] == {**usual["capabilities"], "streaming": False}


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_card_without_grpc_can_be_asked_for(http: httpx.AsyncClient, prefix: str) -> None:
    """Some clients refuse a card in which an address is no URL; it is signed like the other one."""
    card = await A2ACardResolver(http, str(http.base_url)).get_agent_card(
        f"{prefix}http/{CARD}", signature_verifier=await verifier(http)
    )
    usual = await card_at(http, f"{prefix}{CARD}")
    assert {one.protocol_binding for one in card.supported_interfaces} == {"JSONRPC", "HTTP+JSON"}
    assert "GRPC" in {one["protocolBinding"] for one in usual["supportedInterfaces"]}

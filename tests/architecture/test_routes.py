"""The reference has every address that a gateway serves, and every operation of A2A."""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.routing import Route
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.agents.registry import AgentRegistry
from everloop.gateway.app import build_app
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.api_keys import ApiKeyScheme, add_key, new_key
from everloop.gateway.auth.schemes import Authenticator
from everloop.gateway.cards.signing import CardKey
from everloop.gateway.operations.operation import LEGACY_OPERATIONS, OPERATIONS
from everloop.gateway.settings import GatewaySettings
from everloop.runtime.encryption.cipher import Cipher, Key
from everloop.runtime.redis import connect_redis
from everloop.runtime.temporal.encryption_codec import EncryptionCodec
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.support.stores import stores_of

PAGES = [Path("docs/reference/http.md"), *sorted(Path("docs/reference/http").glob("*.md"))]

NAMED = re.compile(r"`((?:DELETE|GET|PATCH|POST) /[^`\s?]*)`")

SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)

TAB = re.compile(r'^=== "(\w+)"\n((?:(?: {4}.*)?\n)*)', re.MULTILINE)

LANGUAGES = {"curl", "Python", "JavaScript"}

SECTIONS = {
    (page, heading): body
    for page in PAGES
    for heading, body in SECTION.findall(page.read_text(encoding="utf-8"))
    if NAMED.search(heading)
}


@pytest.fixture
async def served(tmp_path: Path) -> Iterable[Route]:
    """The routes of a gateway that has everything on, and has asked no server yet."""
    codec = EncryptionCodec(Cipher([Key("k1", bytes(32))]), repeatable_from=0)
    converter = dataclasses.replace(WIRE_DATA_CONVERTER, payload_codec=codec)
    client = await Client.connect("127.0.0.1:1", lazy=True, data_converter=converter)
    views = TaskViews(connect_redis("redis://127.0.0.1:1"))
    add_key(tmp_path / "keys", new_key("ann", ["tasks:read"], None)[1])
    nothing = cast("Any", None)  # what schedules keep is asked for by calls alone
    app = build_app(
        GatewaySettings(),
        client,
        stores_of(views),
        AgentRegistry([Agent(id="first", name="First", description="The only one.")]),
        nothing,
        access=AccessControl(Authenticator([ApiKeyScheme(tmp_path / "keys")])),
        card_key=_card_key(),
    )
    return [route for route in app.routes if isinstance(route, Route)]


def _card_key() -> CardKey:
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return CardKey(pem, "ES256", {"kid": "k1"})


async def test_the_reference_names_every_route(served: Iterable[Route]) -> None:
    """By method and path; addresses below an agent, a tenant, or /v1 of A2A 0.3 are named once."""
    named = {_plain(each) for page in PAGES for each in NAMED.findall(page.read_text(encoding="utf-8"))}

    missing = {call for route in served for call in _calls_of(route)} - named

    assert sorted(missing) == []


def test_the_reference_names_every_operation() -> None:
    """As A2A 1.0 calls it over JSON-RPC and gRPC, and as 0.3 does."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

    assert [name for name in (*OPERATIONS, *LEGACY_OPERATIONS) if f"`{name}`" not in text] == []


@pytest.mark.parametrize(("page", "heading"), SECTIONS, ids=str)
def test_a_route_has_an_example_in_each_language(page: Path, heading: str) -> None:
    """The section of an address says what it takes and answers, and calls it in curl, Python, JavaScript."""
    tabs = dict(TAB.findall(SECTIONS[page, heading]))
    addresses = [_plain(each).partition(" ")[2] for each in NAMED.findall(heading)]

    assert {"scope", "answer"} <= set(re.findall(r"^\| (\w+) \|", SECTIONS[page, heading], re.MULTILINE))
    assert tabs.keys() == LANGUAGES
    assert [each for each in addresses if not _pattern(each).search(tabs["curl"])] == []


def _calls_of(route: Route) -> Iterator[str]:
    """Yield the methods of a route, each with its path."""
    path = re.sub(r"^(?:/agents/(?:\{agent\}|first))?(?:/\{tenant\})?(?=/|$)", "", _plain(route.path)) or "/"
    path = re.sub(r"^/v1(?=/(?:message:|tasks/))", "", path)
    methods: set[str] = route.methods or set()
    yield from (f"{method} {path}" for method in methods - {"HEAD", "OPTIONS"})


def _plain(text: str) -> str:
    """Return an address without the names of what its braces stand for."""
    return re.sub(r"\{(?!agent\}|tenant\})[^}]*\}", "{}", text)


def _pattern(path: str) -> re.Pattern[str]:
    """Return what finds an address in a command, where ids stand in place of braces."""
    return re.compile(re.escape(path).replace(r"\{\}", r"[^/\s\"'?]+"))

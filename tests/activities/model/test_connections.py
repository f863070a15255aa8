"""Connections to providers: keys, redirects, certificates and reuse."""

import asyncio
from contextlib import aclosing, suppress
from typing import Any

import pytest

from everloop.local.servers import LOOPBACK
from everloop.models.catalogue import Provider
from everloop.models.chat import Chat
from everloop.models.interface import Ended, ModelRequest, TextDelta
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.failures import MODEL_REFUSED
from tests.support.rigs.model_rig import model_rig
from tests.support.servers.scripted_openai import Raw, Refusal, Reply, ScriptedOpenAI
from tests.support.servers.tls import certificate_of

PATHS = {"chat": "/chat/completions", "responses": "/responses"}
KEYS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {"authorization": "Bearer sk-secret"}),
    ({"key": ""}, {}),
    ({"key": "", "headers": {"authorization": "Basic a"}}, {"authorization": "Basic a"}),
    ({"key_header": "api-key"}, {"api-key": "sk-secret"}),
    ({"key": "", "key_header": "api-key"}, {}),
]


@pytest.mark.parametrize(("known", "sent"), KEYS)
@pytest.mark.parametrize("kind", PATHS)
async def test_a_key_is_sent_as_the_provider_wants_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, known: dict[str, Any], sent: dict[str, str]
) -> None:
    """A key is sent in the provider's form, or none; variables of an OpenAI account are not used."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-environment")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-the-environment")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-of-the-environment")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway-Key: of-the-environment")
    async with model_rig([Refusal(401)], kind=kind, **known) as rig:
        await rig.fail()
        headers = rig.provider.requests[0].headers
    assert {name: headers[name] for name in ("authorization", "api-key") if name in headers} == sent
    assert "environment" not in str(headers)


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("status", [302, 307])
async def test_no_redirect_takes_key_and_prompt_elsewhere(kind: str, status: int) -> None:
    """No redirect is followed, because the client would send prompt and key headers along."""
    async with ScriptedOpenAI([Reply(["Hi"])]) as other:
        away = Refusal(status, headers={"location": other.base_url + PATHS[kind]})
        async with model_rig([away], kind=kind, key_header="api-key") as rig:
            failure = await rig.fail()
        assert not other.requests
    assert failure.type == MODEL_REFUSED
    assert "not followed" in failure.message


async def test_a_certificate_that_is_not_trusted_is_named() -> None:
    """An untrusted certificate is named, not reported as a network failure."""
    at_server, _ = certificate_of("localhost")

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0, ssl=at_server) as server:
        port = server.sockets[0].getsockname()[1]
        async with model_rig() as rig:
            rig.know(Provider("office", base_url=f"https://localhost:{port}/v1"))
            rig.port = rig.port_to("office/m")
            failure = await rig.fail()
    assert (
        "the certificate of the provider 'office' is not trusted (self-signed certificate)" in failure.message
    )
    assert "SSL_CERT_FILE" in failure.message


async def test_a_connection_serves_one_reply_after_the_other() -> None:
    """A connection serves several replies: bytes after the last event are read, to save another handshake."""
    whole = b'data: {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
                writer.write(b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(whole), whole))
                await writer.drain()
                await asyncio.sleep(0)  # the end of the body is another piece
                writer.write(b"0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        chat = Chat(Provider("test", base_url=f"http://{LOOPBACK}:{port}"))
        for _ in range(3):
            async with aclosing(chat.stream(ModelRequest("test/m", ()), "m")) as deltas:
                assert [type(delta) async for delta in deltas] == [TextDelta, Ended]
        await chat.close()
    assert connections == 1


async def test_a_number_of_many_digits_reaches_the_provider() -> None:
    """A number beyond 64 bits in a tool's schema reaches the provider unchanged."""
    async with ScriptedOpenAI([Reply(["Hi"])]) as server:
        chat = Chat(Provider("test", base_url=server.base_url))
        settings = ModelSettings(extra_body={"most": 10**30})
        async with aclosing(chat.stream(ModelRequest("test/m", (), settings=settings), "m")) as deltas:
            assert [type(delta) async for delta in deltas][-1] is Ended
        await chat.close()
    assert server.requests[0].body["most"] == 10**30


async def test_halves_of_a_character_are_read_as_they_come() -> None:
    """Unpaired surrogate escapes are read, because some providers cut a character in two."""
    halves = [Raw(rf'{{"choices": [{{"delta": {{"content": "\u{half}"}}}}]}}') for half in ("d83d", "de00")]
    async with model_rig([Reply(halves)]) as rig:
        assert (await rig.run()).text == "😀"

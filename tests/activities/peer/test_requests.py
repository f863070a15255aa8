"""The tool that asks a peer, on an agent behind the a2a-sdk's own request handler."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from everloop.agents.peer import peer_connection
from everloop.agents.peer.peer_answers import MAX_SENT
from everloop.agents.peer.peer_plugin import peer
from everloop.runtime.outbound.policy import Allowance, WebhookPolicy
from everloop.workflows.contract.questions import QuestionKind
from everloop.workflows.contract.tasks import Identity
from tests.support.rigs.peer_rig import PeerRig, Settings, ann
from tests.support.servers.peer_agent import FILE, RemoteAgent
from tests.support.servers.peer_server import running_peer
from tests.support.servers.tls import certificate_of, running_tls_proxy

Test = TypeVar("Test", bound=Callable[..., object])

BINDINGS = ["JSONRPC", "HTTP+JSON", "GRPC"]
ROOT = Path(__file__).parents[3]
FRESH = """
import asyncio
import {first}
from everloop.runtime.redis import connect_redis
from tests.support.rigs.peer_rig import PeerRig, ann
from tests.support.servers.peer_server import running_peer
from tests.support.servers.tls import running_tls_proxy
from tests.support.stores import DATABASES

async def main():
    DATABASES.append(connect_redis("{redis}"))
    async with running_peer(version="0.3", binding="GRPC") as remote:
        print(await PeerRig(ann(remote)).run("say hi"))

asyncio.run(main())
"""


def each_way(test: Test) -> Test:
    """Run a test for each version over each binding that we speak with peers."""
    by_version = pytest.mark.parametrize("version", ["1.0", "0.3"])
    return by_version(pytest.mark.parametrize("binding", BINDINGS)(test))


@pytest_asyncio.fixture
async def remote() -> AsyncGenerator[RemoteAgent]:
    async with running_peer() as running:
        yield running


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "polling"])
@each_way
async def test_an_agent_of_any_version_answers(version: str, binding: str, *, streaming: bool) -> None:
    """An agent of any version answers, asks and rejects over each binding, with and without streaming."""
    async with running_peer(version=version, binding=binding, streaming=streaming) as remote:
        waiting, asking, refusing, greeting = (PeerRig(ann(remote)) for _ in range(4))
        attempt = await waiting.begin(remote)
        remote.gate.set()
        answer = await attempt
        question = await asking.ask("ask once")
        asking.answer(question, "blue")
        answered = await asking.run("ask once")
        refused = await refusing.fail("reject too much")
        greeted = await greeting.run("greet Bob")
    assert answer.startswith("done 1\n\n(context: ")
    assert waiting.progress in ([["half done"]] if streaming else [["half done"], []])
    assert (question.kind, question.text) == (QuestionKind.CLARIFICATION, "Which one?")
    assert answered.startswith("took blue\n")
    assert refused == f"PeerTaskError: the agent at {remote.url} refused the task: too much"
    assert greeted == "Hello, Bob!\n\n(context: c)"


@each_way
async def test_an_answer_in_pieces_is_one_text(version: str, binding: str) -> None:
    """Servers of the SDK for JavaScript name the type of each piece."""
    async with running_peer(version=version, binding=binding) as remote:
        answer = await PeerRig(ann(remote)).run("write js, echo:, hello")
    assert answer.startswith("js echo: hello\n\n(context: ")


@each_way
async def test_an_agent_without_get_task_is_followed_by_its_stream(version: str, binding: str) -> None:
    """Without GetTask, answer and question are read from the stream."""
    async with running_peer(version=version, binding=binding) as remote:
        remote.lacks.add("GetTask")
        answer = await PeerRig(ann(remote)).run("write all,of,it")
        question = await PeerRig(ann(remote)).ask("ask once")
        refused = await PeerRig(ann(remote)).fail("reject too much")
    assert answer.startswith("allofit\n\n(context: ")
    assert question.text == "Which one?"
    assert "refused the task: too much" in refused


@pytest.mark.parametrize(
    ("version", "binding"),
    # The SDK's own server of 0.3 breaks the connection over HTTP+JSON.
    [("0.3", "JSONRPC"), ("0.3", "GRPC"), *(("1.0", binding) for binding in BINDINGS)],
)
async def test_an_agent_that_does_not_stream_after_all_is_sent_a_message(version: str, binding: str) -> None:
    """An agent that refuses the stream that its card declares gets the request as a message."""
    async with running_peer(version=version, binding=binding) as remote:
        remote.lacks.add("SendStreamingMessage")
        rig = PeerRig(ann(remote))
        attempt = await rig.begin(remote)
        remote.gate.set()
        answer, again = await attempt, await rig.run("greet Bob")
    assert answer.startswith("done 1\n\n(context: ")
    assert again.startswith("done 1")
    assert len(remote.message_ids) == 1


async def test_a_card_that_asks_too_much_is_refused_by_name(remote: RemoteAgent) -> None:
    """An unsupported card is refused with its versions, extensions or invalid field; no request is sent."""
    extension = remote.card.capabilities.extensions.add(uri="https://pay.example/v1", required=True)
    required = await PeerRig(ann(remote)).fail("say hi")
    extension.required = False
    remote.card.supported_interfaces[0].protocol_version = "2.0"
    too_new = await PeerRig(ann(remote)).fail("say hi")
    remote.card.supported_interfaces[0].protocol_version = "1.0.2"
    remote.nonsense = {"capabilities": {"streaming": "yes"}}
    unreadable = await PeerRig(ann(remote)).fail("say hi")
    remote.nonsense = None
    answer = await PeerRig(ann(remote)).run("say hi")
    assert "requires the extension 'https://pay.example/v1'" in required
    assert "A2A 2.0, and this agent speaks 1.0 and 0.3" in too_new
    assert "its card is no A2A (capabilities.streaming: " in unreadable
    assert answer.startswith("hi\n")
    assert len(remote.messages) == 1


@pytest.mark.parametrize("first", ["everloop.gateway.app", "tests.support.servers.peer_server"])
async def test_a_process_that_serves_0_3_also_speaks_it(redis_url: str, first: str) -> None:
    """A process that serves 0.3 also calls it, over gRPC, in any order of imports of the SDK."""
    program = FRESH.format(first=first, redis=redis_url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert printed.decode().startswith("hi\n")


async def test_artifacts_are_taken_over(remote: RemoteAgent) -> None:
    """Artifacts are copied once under ids of their own: text, data, and files as bytes or from the peer.

    A file elsewhere, or a deleted one, stays a URL.
    """
    rig = PeerRig(ann(remote))

    first, second = await rig.run("write"), await rig.run("write")
    written = await rig.written()

    assert first == second
    assert set(written) == {"text", "data", "bytes", "own", "foreign", "gone"}
    assert written["text"][0].name == "A text"
    contents = [written[name][1] for name in ("text", "data", "bytes", "own")]
    assert contents == [b"A text.", b'{"rows":[1,2]}', FILE, FILE]
    parts = {name: artifact.parts for name, (artifact, _) in written.items()}
    assert [(part.kind, part.media_type, part.filename) for part in parts["bytes"]] == [
        ("file", "application/x-one", "one.bin"),
        ("text", "", ""),
    ]
    assert parts["own"][0].filename == "two.bin"
    assert [parts[name][0].url for name in ("foreign", "gone")] == [
        "http://elsewhere.example/f",
        f"{remote.url}/gone",
    ]
    assert first.startswith("A text.\n\n")
    assert "\n\nAll is written.\n\nArtifacts: ann-text-" in first
    assert "its file could not be fetched (HTTP 404)" in first
    assert first.count("could not be fetched") == 1
    assert "elsewhere" not in first
    assert len(remote.messages) == 1


async def test_files_and_the_context_go_with_the_request(remote: RemoteAgent) -> None:
    """Our artifacts are sent as parts of their kinds, in the named context."""
    rig = PeerRig(ann(remote))
    await rig.artifacts.write_file("photo", FILE, media_type="image/png", filename="photo.png")
    await rig.artifacts.write_file("words", "some words")
    await rig.artifacts.write_data("table", {"rows": 2})
    answer = await rig.run("say hi", context="earlier", files=["photo", "words", "table"])
    (message,) = remote.messages
    _, photo, words, table = message.parts
    assert (photo.raw, photo.media_type, photo.filename) == (FILE, "image/png", "photo.png")
    assert words.raw == b"some words"
    assert table.data.struct_value["rows"] == 2
    assert message.context_id == "earlier"
    assert answer.endswith("(context: earlier)")


async def test_too_large_files_are_not_sent(remote: RemoteAgent) -> None:
    """Files beyond the limit are not sent, and the model reads which one."""
    rig = PeerRig(ann(remote))
    await rig.artifacts.write_file("large", b"x" * (MAX_SENT + 1))
    failed = await rig.fail("say hi", files=["large"])
    assert "with 'large' the files have more than" in failed
    assert remote.messages == []


@each_way
async def test_each_request_tells_who_asks_and_for_which_trace(
    version: str, binding: str, spans: InMemorySpanExporter
) -> None:
    """Each request has headers for the task's caller and its trace; secrets are redacted.

    The message's id is also its idempotency key.
    """

    async def headers(identity: Identity) -> Mapping[str, str]:
        return {"X-Caller": f"{identity.subject}-s3cret"}

    auth = Identity(scheme="bearer", subject="bob")
    async with running_peer(version=version, binding=binding) as remote:
        rig = PeerRig(ann(remote, Settings(headers=headers)), auth=auth)
        with trace.get_tracer("test").start_as_current_span("call") as span:
            answer = await rig.run("say bob-s3cret knows")
    trace_id = f"{span.get_span_context().trace_id:032x}"
    assert {heard["x-caller"] for heard in remote.headers} == {"bob-s3cret"}
    assert all(heard["traceparent"].startswith(f"00-{trace_id}-") for heard in remote.headers)
    assert remote.headers[0]["idempotency-key"] == remote.message_ids[0]
    assert answer.startswith("[secret] knows\n")


async def test_headers_that_cannot_be_made_are_not_told(remote: RemoteAgent) -> None:
    """An error of the function for headers is reported without its text, which may hold a secret."""

    def headers(identity: Identity) -> Mapping[str, str]:
        raise ValueError("s3cret")

    failed = await PeerRig(ann(remote, Settings(headers=headers))).fail("say hi")
    assert failed.endswith("the function that makes them raised ValueError")
    assert "s3cret" not in failed


async def test_a_card_cannot_send_us_anywhere(remote: RemoteAgent) -> None:
    """Another origin at a private address is asked only if the agent's author allows it."""
    card_at, named = remote.url.replace("127.0.0.1", "localhost"), remote.url.removeprefix("http://")
    headers = {"Authorization": "Bearer s3cret-token"}
    refused = await PeerRig(peer(card_at, name="ann", headers=headers)).fail("say hi")
    heard_before = list(remote.methods)
    answer = await PeerRig(peer(card_at, name="ann", headers=headers, hosts=[named])).run("say hi")
    assert "peer(hosts=[" in refused
    assert heard_before == []
    assert answer.startswith("hi\n")
    assert {heard["authorization"] for heard in remote.headers} == {"Bearer s3cret-token"}


async def test_no_card_leads_elsewhere_by_grpc(remote: RemoteAgent) -> None:
    """A card leads nowhere by gRPC, where the address policy does not apply."""
    (interface,) = remote.card.supported_interfaces
    interface.url, interface.protocol_binding = "https://localhost:1/", "GRPC"
    assert "peer(hosts=[" in await PeerRig(ann(remote)).fail("say hi")


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_credentials_stay_at_the_origin_of_the_card(
    monkeypatch: pytest.MonkeyPatch, *, is_allowed: bool
) -> None:
    """Credentials are only sent to the card's origin.

    A public address elsewhere is asked by https, without them; a private one is not connected to.
    """
    server, client = certificate_of("elsewhere.example")
    allowance = Allowance(hosts=frozenset({("elsewhere.example", None)} if is_allowed else set()))

    async def resolved(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(peer_connection, "system_tls", lambda: client)
    monkeypatch.setattr(peer_connection, "WebhookPolicy", lambda: WebhookPolicy(allowance, resolved))
    async with (
        running_peer() as remote,
        running_tls_proxy(int(remote.url.rpartition(":")[2]), server) as port,
    ):
        remote.card.supported_interfaces[0].url = f"https://elsewhere.example:{port}/"
        rig = PeerRig(
            peer(remote.url, name="ann", headers={"X-Key": "s3cret-key"}, timeout=timedelta(seconds=3))
        )
        said = await (rig.run("say hi") if is_allowed else rig.fail("say hi"))
    assert {heard.get("x-key") for heard in remote.headers} == ({None} if is_allowed else set())
    assert ("hi" in said) is is_allowed
    assert "127.0.0.1:" not in said.replace(remote.url, "")

"""The client against the SDK's own server: all of A2A works, and missing features are clear errors."""

import asyncio

import pytest

from everloop.client import (
    ArtifactChanged,
    Client,
    Done,
    Event,
    ExtensionMissingError,
    InvalidError,
    NotFoundError,
    Part,
    Question,
    Reconnecting,
    TaskNotCompletedError,
    TaskState,
    TextDelta,
    UnauthenticatedError,
    UnreachableError,
)
from tests.support.servers.peer_agent import FILE, RemoteAgent
from tests.support.servers.peer_server import running_peer

SERVERS = {
    "JSON-RPC": {"binding": "JSONRPC", "streaming": True},
    "REST": {"binding": "HTTP+JSON", "streaming": True},
    "no streams": {"binding": "JSONRPC", "streaming": False},
}


@pytest.mark.parametrize("kind", SERVERS)
async def test_what_a2a_has_works(kind: str) -> None:
    """Messages, answers without a task, questions, artifacts, files, lists, and cancelling."""
    async with running_peer(**SERVERS[kind]) as peer, Client(peer.url) as client:  # pyright: ignore[reportArgumentType] -- a table
        greeted = await client.send("greet Ann")
        wrote = await client.send("write", context_id="c-1")
        parts = {one.id: one for one in wrote.artifacts}
        own = await client.read(parts["own"].parts[0])
        listed = [one.id for one in await client.artifacts("c-1")]
        asked = await client.send("ask")
        answered = await client.answer(asked.id, "the red one")
        approved = await client.approve((await client.send("ask")).id, approved=False, note="never")
        failed = await client.send("fail it broke")
        waiting = await client.send("wait", detach=True)
        await peer.begun.wait()
        canceled = await client.cancel(waiting.id)
        watched = [event async for event in client.watch(canceled.id)][-1]
        tasks = [task.state async for task in client.tasks()]
        (agent,) = await client.agents()

    assert (greeted.id, greeted.text, greeted.state) == ("", "Hello, Ann!", TaskState.COMPLETED)
    assert "All is written." in wrote.text
    assert parts["text"].text == "A text."
    assert parts["data"].data == {"rows": [1, 2]}
    assert (parts["bytes"].parts[0].raw, own) == (FILE, FILE)
    assert listed == ["text", "data", "bytes", "own", "foreign", "gone"]
    (question,) = asked.questions
    assert (question.text, question.kind, asked.is_done) == ("Which one?", "clarification", False)
    assert answered.text == "took the red one"
    assert approved.text == "took no, never"
    assert (failed.state, failed.error) == (TaskState.FAILED, "it broke")
    with pytest.raises(TaskNotCompletedError, match="is failed: it broke"):
        failed.raise_for_state()
    assert isinstance(watched, Done)
    assert canceled.state is watched.result.state is TaskState.CANCELED
    assert sorted(tasks) == ["canceled", "completed", "completed", "completed", "failed"]
    assert agent.name == "Colleague"


async def test_a_stream_without_ids_goes_on_all_the_same() -> None:
    """The server sends the whole task again; the client reports only new content of it."""
    async with running_peer() as peer, Client(peer.url) as client:
        peer.cut = 2
        events: list[Event] = []
        async for event in client.stream("wait for it"):
            events.append(event)
            if isinstance(event, Reconnecting):
                peer.gate.set()

    assert peer.methods.count("SendStreamingMessage") == 1
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "done for it"
    assert len([event for event in events if isinstance(event, ArtifactChanged)]) <= 1
    assert isinstance(events[-1], Done)
    assert events[-1].result.state is TaskState.COMPLETED


async def test_where_nobody_may_subscribe_the_task_is_read() -> None:
    """Until it has ended, or asks."""
    async with running_peer() as peer, Client(peer.url) as client:
        peer.lacks.add("SubscribeToTask")
        peer.cut = 2
        sending = asyncio.create_task(client.send("wait on"))
        await peer.until_called("GetTask", 2)
        peer.gate.set()
        result = await sending
        watched = [event async for event in client.watch(result.id)]

    assert result.text == "done on"
    assert isinstance(watched[-1], Done)


async def test_a_message_that_may_have_arrived_is_not_sent_twice() -> None:
    """Servers other than Everloop may take it for another one; the caller decides."""
    async with running_peer() as peer, Client(peer.url) as client:
        peer.cut = 0
        with pytest.raises(UnreachableError) as lost:
            await client.send("ask")

    assert not lost.value.is_unsent
    assert peer.methods.count("SendStreamingMessage") == 1


async def test_questions_come_with_their_schema() -> None:
    """Also from a server that describes them as an Everloop does."""
    async with running_peer() as peer, Client(peer.url) as client:
        events = [event async for event in client.stream("want integer")]

    (question,) = [event for event in events if isinstance(event, Question)]
    assert (question.kind, question.text, question.json_schema) == ("data", "Which?", {"type": "integer"})


async def test_credentials_go_to_the_server_that_was_named() -> None:
    """As a token or a key; to no other server in the card or a part, unless it was named too."""
    async with running_peer() as peer, running_peer() as other:
        peer.wants = "t-1"
        async with Client(peer.url, token="t-0") as wrong:
            with pytest.raises(UnauthenticatedError, match="give api_key=, token= or cert="):
                await wrong.send("say hello")
        tokens = iter(["Bearer t-1", "t-1", "t-1"])
        async with Client(peer.url, token=lambda: next(tokens), api_key="k-1") as client:
            assert (await client.send("say hello")).text == "hello"
            await client.read(Part(url=f"{other.url}/file"))
        assert peer.headers[-1]["x-api-key"] == "k-1"
        assert peer.headers[-1]["a2a-version"] == "1.0"
        assert "authorization" not in other.headers[-1]
        assert "x-api-key" not in other.headers[-1]
        _send_elsewhere(peer, other.url.replace("127.0.0.1", "localhost"))
        async with Client(peer.url, token="t-1") as careful:
            with pytest.raises(InvalidError, match=r"of another server.*hosts=\['localhost'\]"):
                await careful.send("say hello")
        async with Client(peer.url, token="t-1", hosts=["localhost"]) as trusting:
            assert (await trusting.send("say hello")).text == "hello"
        assert other.headers[-1]["authorization"] == "Bearer t-1"


def _send_elsewhere(peer: RemoteAgent, url: str) -> None:
    peer.card.supported_interfaces[0].url = f"{url}/"


async def test_what_only_an_everloop_has_is_said_in_words() -> None:
    """So are unsupported servers: those of A2A 0.3."""
    async with running_peer() as peer, Client(peer.url) as client:
        with pytest.raises(ExtensionMissingError, match=r"it is no Everloop.*works: send, stream, watch"):
            await client.usage("t")
        with pytest.raises(ExtensionMissingError, match="/artifacts/c"):
            await client.stored_artifacts("c")
        with pytest.raises(NotFoundError):
            await client.artifact("c", "none")
    async with running_peer(version="0.3") as old, Client(old.url) as client:
        with pytest.raises(InvalidError, match=r"neither JSON-RPC nor REST of A2A 1\.0"):
            await client.send("say hello")

"""A peer is asked once and answers once, whatever breaks, is asked back or is cancelled in between."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
import pytest_asyncio
from pydantic import JsonValue
from starlette.responses import JSONResponse
from temporalio.activity import ActivityCancellationDetails

from everloop.agents.peer.plugin import peer
from everloop.local.servers import LOOPBACK, free_port
from everloop.workflows.contract.names import call_key
from everloop.workflows.contract.questions import QuestionKind, answer_with
from tests.acceptance.client.test_scripted_servers import Json, chunk, event, running, status, task
from tests.support.rigs.peer_rig import PeerRig, Settings, ann
from tests.support.rigs.tool_rig import ToolRig
from tests.support.servers.peer_agent import RemoteAgent
from tests.support.servers.peer_server import running_peer


@pytest_asyncio.fixture(params=["1.0", "0.3"])
async def remote(request: pytest.FixtureRequest) -> AsyncGenerator[RemoteAgent]:
    async with running_peer(version=request.param) as running:
        yield running


def _sent(remote: RemoteAgent) -> int:
    return sum(method in {"SendStreamingMessage", "message/stream"} for method in remote.methods)


async def test_the_next_attempt_goes_on_with_the_task_of_the_last_one(remote: RemoteAgent) -> None:
    """It subscribes to the task that was kept; the peer is asked once, and not told to stop."""
    rig = PeerRig(ann(remote))
    await rig.lose(await rig.begin(remote))
    attempt = asyncio.create_task(rig.run("wait 1"))
    await remote.until_called(remote.subscribe_method)
    remote.gate.set()
    assert (await attempt).startswith("done 1\n")
    assert len(remote.messages) == _sent(remote) == 1
    assert not remote.canceled.is_set()


async def test_a_stream_that_breaks_is_taken_up_again(remote: RemoteAgent) -> None:
    """The task is subscribed to; what it did in between is not lost, and not told twice."""
    rig = PeerRig(ann(remote))
    remote.cut = 2  # the task and the first status
    attempt = await rig.begin(remote)
    await remote.until_called(remote.subscribe_method)
    remote.gate.set()
    assert (await attempt).startswith("done 1\n")
    assert rig.progress == ["half done"]
    assert len(remote.messages) == 1


async def test_a_stream_with_ids_goes_on_after_the_last_event() -> None:
    """The peer sends nothing twice, and the answer is whole."""
    async with running() as server:
        server.extensions = []
        first = [event(task("WORKING"), "1"), event(chunk("response", "ab"), "2"), "cut"]
        read: Json = {"jsonrpc": "2.0", "id": 1, "result": task("COMPLETED")["task"]}
        rest = [event(chunk("response", "cd"), "3"), event(status("COMPLETED"), "4")]
        server.script = [first, rest, JSONResponse(read)]
        answer = await PeerRig(peer(server.url, name="ann")).run("say hi")
    assert answer == "abcd\n\n(context: c)"
    assert [headers.get("last-event-id") for headers in server.headers] == [None, "2", None]


async def test_without_subscriptions_the_task_is_polled(remote: RemoteAgent) -> None:
    """A peer that refuses to be subscribed to is asked for the task, again and again."""
    rig = PeerRig(ann(remote))
    remote.lacks.add("SubscribeToTask")
    remote.cut = 2
    attempt = await rig.begin(remote)
    await remote.until_called(remote.subscribe_method)
    await remote.until_called(remote.get_method, remote.methods.count(remote.get_method) + 2)
    remote.gate.set()
    assert (await attempt).startswith("done 1\n")
    assert remote.methods.count(remote.subscribe_method) == 1
    assert len(remote.messages) == 1


async def test_a_request_whose_answer_was_lost_is_sent_again_as_the_same(remote: RemoteAgent) -> None:
    """In the same attempt and in the next one: messageId and Idempotency-Key let the peer know."""
    rig = PeerRig(ann(remote))
    remote.cut = 0
    await rig.run("say hi")
    rig.kept = None
    await rig.run("say hi")
    ids = remote.message_ids
    keys = {headers["idempotency-key"] for headers in remote.headers if "idempotency-key" in headers}
    assert len(ids) == 3
    assert {*ids} == keys
    assert len(keys) == 1


async def test_a_request_that_must_not_be_repeated_is_not(remote: RemoteAgent) -> None:
    """When the connection breaks before the peer has named a task, the model reads that nobody knows."""
    rig = PeerRig(ann(remote, Settings(idempotent=False)))
    remote.cut = 0
    failed = await rig.fail("say hi")
    assert "nobody knows whether it has taken the request" in failed
    assert len(remote.messages) == 1
    assert not rig.tool.idempotent


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_peer_that_is_too_busy_is_asked_later(remote: RemoteAgent, *, idempotent: bool) -> None:
    """It has taken nothing, so that no request is doubled."""
    rig = PeerRig(ann(remote, Settings(idempotent=idempotent)))
    remote.refusals = [503, 429]
    assert (await rig.run("say hi")).startswith("hi\n")
    assert len(remote.messages) == 1


async def test_users_read_why_nothing_happens(remote: RemoteAgent) -> None:
    """A call may wait for ten minutes: what it waits for is told once, however often the peer is asked."""
    rig = PeerRig(ann(remote))
    remote.refusals, remote.retry_after = [503, 503], "1"
    assert (await rig.run("say hi")).startswith("hi\n")
    (told,) = rig.progress
    assert told.startswith("it does not answer now (")
    assert "503" in told


async def test_a_peer_that_is_not_there() -> None:
    """When its time is nearly over the model reads what is wrong, and what to do."""
    nobody = RemoteAgent(url=f"http://{LOOPBACK}:{free_port()}")
    rig = PeerRig(ann(nobody, Settings(timeout=timedelta(seconds=1))))
    failed = await rig.fail("say hi")
    assert failed.startswith(
        f"PeerAwayError: the agent at {nobody.url} does not answer (its card cannot be had"
    )
    assert "try again later" in failed


async def test_a_peer_that_has_forgotten_its_task(remote: RemoteAgent) -> None:
    """The model may ask it again."""
    rig = PeerRig(ann(remote))
    rig.kept = {"task": "lost"}
    assert "does not know its task any more; ask it again" in await rig.fail("say hi")


async def test_the_tools_activity_keeps_the_task(remote: RemoteAgent) -> None:
    """What the tool keeps reaches the next attempt; its result names the artifacts, and stands."""
    (tool,) = ann(remote).tools
    rig = ToolRig(tool)
    call = rig.call("ann", '{"request": "write"}')
    first, second = await rig.run(call), await rig.run(call)
    assert first == second
    assert len(first.artifacts) == 6
    assert isinstance(await rig.records.kept(rig.task_id, call_key(call.call)), dict)
    assert len(remote.messages) == 1


async def test_question_after_question(remote: RemoteAgent) -> None:
    """The same question again is another one; each answer reaches the peer's one task, once."""
    rig = PeerRig(ann(remote))
    for answer in ("red", "blue"):
        rig.answer(await rig.ask("ask twice"), answer)
    result = await rig.run("ask twice")
    assert result.startswith("took blue\n")
    assert [message.parts[0].text for message in remote.messages] == ["ask twice", "red", "blue"]
    assert len({message.task_id for message in remote.messages[1:]}) == 1
    assert len(set(remote.message_ids)) == 3


@pytest.mark.parametrize("remembers", ["all", "the task", "the question"])
async def test_an_answer_that_was_sent_is_not_sent_again(remote: RemoteAgent, remembers: str) -> None:
    """Whatever the worker that died had time to keep."""
    rig = PeerRig(ann(remote))
    rig.answer(await rig.ask("ask twice"), "red")
    asked = rig.kept
    question = await rig.ask("ask twice")
    assert isinstance(rig.kept, dict)
    if remembers != "all":
        rig.kept = {"task": rig.kept["task"]} if remembers == "the task" else asked
    again = await rig.ask("ask twice")
    assert again == question
    assert len(remote.messages) == 2


@pytest.mark.parametrize(("answer", "sent"), [("k3y-to-all", "k3y-to-all"), ({"key": 1}, "")])
async def test_a_secret_that_the_peer_wants(remote: RemoteAgent, answer: JsonValue, sent: str) -> None:
    """It is asked for as one, and handed on as the answer; nothing of it is kept."""
    rig = PeerRig(ann(remote))
    question = await rig.ask("auth")
    rig.answer(question, answer)
    result = await rig.run("auth")
    assert (question.kind, question.text) == (QuestionKind.AUTH, "The key, please.")
    assert remote.messages[1].parts[0].text == sent
    assert result.startswith("took")
    assert "k3y" not in str(rig.kept)


async def test_a_peer_that_wants_to_know_who_asks(remote: RemoteAgent) -> None:
    """The user is asked for a token, and again if it is not accepted; it goes with every request."""
    remote.wants = "t0ken-of-ann"
    rig = PeerRig(ann(remote, Settings(token="ann-token")))
    first = await rig.ask("say t0ken-of-ann")
    rig.answer(first, "wrong")
    second = await rig.ask("say t0ken-of-ann")
    rig.answer(second, "t0ken-of-ann")
    result = await rig.run("say t0ken-of-ann")
    assert (first.kind, first.secret_name) == (QuestionKind.AUTH, "ann-token")
    assert "wants to know who asks" in first.text
    assert "did not accept the token" in second.text
    assert result.startswith("[secret]\n")
    assert remote.headers[-1]["authorization"] == "Bearer t0ken-of-ann"
    assert len(remote.messages) == 1


async def test_a_peer_that_refuses_the_agents_own_credentials(remote: RemoteAgent) -> None:
    """The model reads who has to do something about it, and not what was refused."""
    remote.wants = "t0ken-of-ann"
    rig = PeerRig(ann(remote, Settings(headers={"Authorization": "Bearer wr0ng-one"})))
    failed = await rig.fail("say hi")
    assert failed.startswith(f"PeerCredentialsError: the agent at {remote.url} refuses the credentials")
    assert "headers= or token=" in failed
    assert "wr0ng" not in failed


async def test_an_answer_that_the_peer_refuses(remote: RemoteAgent) -> None:
    """The user hears why, and gives another one."""
    remote.refuses = "red"
    rig = PeerRig(ann(remote))
    rig.answer(await rig.ask("ask once"), "red")
    again = await rig.ask("ask once")
    rig.answer(again, "blue")
    assert again.text == "red is no answer\n\nWhich one?"
    assert (await rig.run("ask once")).startswith("took blue\n")
    assert len(remote.messages) == 2


async def test_an_answer_to_something_else_is_not_sent(remote: RemoteAgent) -> None:
    """The peer asks something new by now: its question goes to the user, the old answer to nobody."""
    rig = PeerRig(ann(remote))
    question = await rig.ask("ask once")
    assert isinstance(rig.kept, dict)
    rig.kept = {**rig.kept, "asked": "another"}
    rig.answer(question, "red")
    assert (await rig.ask("ask once")).text == "Which one?"
    assert len(remote.messages) == 1


@pytest.mark.parametrize("how", ["the activity is canceled", "it takes too long", "nobody waits for it"])
async def test_a_call_that_nobody_wants_cancels_the_peers_task(remote: RemoteAgent, how: str) -> None:
    """Before the call itself has ended; a timeout is no cancellation of the activity.

    Temporal may have taken the attempt for lost: the task was canceled while the next one waited for it.
    """
    rig = PeerRig(ann(remote))
    attempt = await rig.begin(remote)
    if how == "the activity is canceled":
        await rig.cancel(attempt, ActivityCancellationDetails(cancel_requested=True))
    elif how == "it takes too long":
        await rig.cancel(attempt, None)
    else:
        rig.is_wanted = False
        await rig.lose(attempt)
    assert remote.canceled.is_set()


@pytest.mark.parametrize("how", ["nobody waits for it", "the user declines", "before it asks"])
async def test_a_question_that_nobody_answers_cancels_the_peers_task(remote: RemoteAgent, how: str) -> None:
    """It would wait for ever, and for nobody; a peer that was not asked yet is not asked now."""
    (tool,) = ann(remote).tools
    rig = ToolRig(tool)
    call = rig.call("ann", '{"request": "ask once"}')
    abandoned = call.model_copy(update={"abandoned": True})
    if how != "before it asks":
        declined = answer_with(await rig.ask(call), {"approved": False}, by="user")
        abandoned = (
            abandoned if how == "nobody waits for it" else rig.call("ann", call.call.arguments, declined)
        )
    assert (await rig.run(abandoned)).outcome == "rejected"
    assert remote.canceled.is_set() == (how != "before it asks")
    assert len(remote.messages) == remote.canceled.is_set()


async def test_a_peer_that_is_away_keeps_no_call_from_its_end(remote: RemoteAgent) -> None:
    """Nor does what its author's function for the headers raises."""
    made: list[dict[str, str]] = [{}, {}]
    (tool,) = ann(remote, Settings(headers=lambda _: made.pop())).tools
    rig = ToolRig(tool)
    call = rig.call("ann", '{"request": "ask once"}')
    await rig.ask(call)
    for refusals in ([503], []):
        remote.refusals = refusals
        assert (await rig.run(call.model_copy(update={"abandoned": True}))).outcome == "rejected"
    assert not remote.canceled.is_set()


@pytest.mark.parametrize(
    "why", ["not_found", "paused", "reset", "timed_out", "worker_shutdown", "before it is told why"]
)
async def test_a_call_that_comes_again_leaves_the_peer_alone(remote: RemoteAgent, why: str) -> None:
    """The next attempt finds its task as it was, and at work; its worker may stop."""
    rig = PeerRig(ann(remote))
    attempt = await rig.begin(remote)
    if why.startswith("before"):
        rig.environment.worker_shutdown()
        await rig.cancel(attempt, None)
    else:
        await rig.cancel(attempt, ActivityCancellationDetails(**{why: True}))
    remote.gate.set()
    assert (await rig.run("wait 1")).startswith("done 1\n")
    assert not remote.canceled.is_set()

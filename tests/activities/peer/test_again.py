"""A peer gets one request and gives one result, despite failures, questions and cancellation."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
import pytest_asyncio
from pydantic import JsonValue
from starlette.responses import JSONResponse
from temporalio.activity import ActivityCancellationDetails

from everloop.agents.peer.peer_plugin import peer
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
    """The next attempt subscribes to the stored task; the peer is asked once, and not cancelled."""
    rig = PeerRig(ann(remote))
    await rig.lose(await rig.begin(remote))
    attempt = asyncio.create_task(rig.run("wait 1"))
    await remote.until_called(remote.subscribe_method)
    remote.gate.set()
    assert (await attempt).startswith("done 1\n")
    assert len(remote.messages) == _sent(remote) == 1
    assert not remote.canceled.is_set()


async def test_a_stream_that_breaks_is_taken_up_again(remote: RemoteAgent) -> None:
    """A broken stream is resumed by a subscription; events of the gap are published once."""
    rig = PeerRig(ann(remote))
    remote.cut = 2  # the task and the first status
    attempt = await rig.begin(remote)
    await remote.until_called(remote.subscribe_method)
    remote.gate.set()
    assert (await attempt).startswith("done 1\n")
    assert rig.progress == ["half done"]
    assert len(remote.messages) == 1


async def test_a_stream_with_ids_goes_on_after_the_last_event() -> None:
    """A stream with event ids resumes after the last event, and the answer is complete."""
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
    """A peer without subscriptions is polled for its task."""
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
    """A request without an answer is repeated with the same messageId and Idempotency-Key, in any attempt."""
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
    """A request that must not be repeated ends as unknown if it breaks before the task has an id."""
    rig = PeerRig(ann(remote, Settings(idempotent=False)))
    remote.cut = 0
    failed = await rig.fail("say hi")
    assert "nobody knows whether it has taken the request" in failed
    assert len(remote.messages) == 1
    assert not rig.tool.idempotent


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_peer_that_is_too_busy_is_asked_later(remote: RemoteAgent, *, idempotent: bool) -> None:
    """A peer that is too busy is retried after its delay: it has not started the request."""
    rig = PeerRig(ann(remote, Settings(idempotent=idempotent)))
    remote.refusals = [503, 429]
    assert (await rig.run("say hi")).startswith("hi\n")
    assert len(remote.messages) == 1


async def test_users_read_why_nothing_happens(remote: RemoteAgent) -> None:
    """The reason of a wait, which lasts up to ten minutes, is published once for all retries."""
    rig = PeerRig(ann(remote))
    remote.refusals, remote.retry_after = [503, 503], "1"
    assert (await rig.run("say hi")).startswith("hi\n")
    (told,) = rig.progress
    assert told.startswith("it does not answer now (")
    assert "503" in told


async def test_a_peer_that_is_not_there() -> None:
    """For an unreachable peer, the model reads the problem and a remedy shortly before the timeout."""
    nobody = RemoteAgent(url=f"http://{LOOPBACK}:{free_port()}")
    rig = PeerRig(ann(nobody, Settings(timeout=timedelta(seconds=1))))
    failed = await rig.fail("say hi")
    assert failed.startswith(
        f"PeerAwayError: the agent at {nobody.url} does not answer (its card cannot be had"
    )
    assert "try again later" in failed


async def test_a_peer_that_has_forgotten_its_task(remote: RemoteAgent) -> None:
    """If the peer has lost its task, the model may ask again."""
    rig = PeerRig(ann(remote))
    rig.kept = {"task": "lost"}
    assert "does not know its task any more; ask it again" in await rig.fail("say hi")


async def test_the_tools_activity_keeps_the_task(remote: RemoteAgent) -> None:
    """The tool's stored state reaches the next attempt; its result names the artifacts, and stands."""
    (tool,) = ann(remote).tools
    rig = ToolRig(tool)
    call = rig.call("ann", '{"request": "write"}')
    first, second = await rig.run(call), await rig.run(call)
    assert first == second
    assert len(first.artifacts) == 6
    assert isinstance(await rig.records.kept(rig.task_id, call_key(call.call)), dict)
    assert len(remote.messages) == 1


async def test_question_after_question(remote: RemoteAgent) -> None:
    """A repeated question gets an id of its own; each answer is sent once to the same task of the peer."""
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
    """A retry does not send an answer again, whatever the dead worker had stored."""
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
    """A secret for the peer is asked for as a secret, sent as the answer, and not stored."""
    rig = PeerRig(ann(remote))
    question = await rig.ask("auth")
    rig.answer(question, answer)
    result = await rig.run("auth")
    assert (question.kind, question.text) == (QuestionKind.AUTH, "The key, please.")
    assert remote.messages[1].parts[0].text == sent
    assert result.startswith("took")
    assert "k3y" not in str(rig.kept)


async def test_a_peer_that_wants_to_know_who_asks(remote: RemoteAgent) -> None:
    """A token for the peer is asked from the user, again if it is refused, and sent with each request."""
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
    """If the peer refuses the agent's credentials, the model reads how it is fixed, without them."""
    remote.wants = "t0ken-of-ann"
    rig = PeerRig(ann(remote, Settings(headers={"Authorization": "Bearer wr0ng-one"})))
    failed = await rig.fail("say hi")
    assert failed.startswith(f"PeerCredentialsError: the agent at {remote.url} refuses the credentials")
    assert "headers= or token=" in failed
    assert "wr0ng" not in failed


async def test_an_answer_that_the_peer_refuses(remote: RemoteAgent) -> None:
    """If the peer refuses an answer, the user reads why, and gives another one."""
    remote.refuses = "red"
    rig = PeerRig(ann(remote))
    rig.answer(await rig.ask("ask once"), "red")
    again = await rig.ask("ask once")
    rig.answer(again, "blue")
    assert again.text == "red is no answer\n\nWhich one?"
    assert (await rig.run("ask once")).startswith("took blue\n")
    assert len(remote.messages) == 2


async def test_an_answer_to_something_else_is_not_sent(remote: RemoteAgent) -> None:
    """An answer to an older question is not sent; the peer's new question goes to the user."""
    rig = PeerRig(ann(remote))
    question = await rig.ask("ask once")
    assert isinstance(rig.kept, dict)
    rig.kept = {**rig.kept, "asked": "another"}
    rig.answer(question, "red")
    assert (await rig.ask("ask once")).text == "Which one?"
    assert len(remote.messages) == 1


@pytest.mark.parametrize("how", ["the activity is canceled", "it takes too long", "nobody waits for it"])
async def test_a_call_that_nobody_wants_cancels_the_peers_task(remote: RemoteAgent, how: str) -> None:
    """A cancelled call or one that timed out cancels the peer's task before it ends.

    A timeout does not cancel the activity. If Temporal timed out the attempt, the next one finds the canceled
    task.
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
    """A question without an answer in time cancels the peer's task.

    A peer that was not asked yet is not asked.
    """
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
    """Neither an unreachable peer nor a failing function for headers prevents the end of a call."""
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
    """An attempt that another one follows leaves the peer's task at work, such as at a worker's stop."""
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

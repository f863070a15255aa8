"""A peer is asked once and answers once, whatever breaks in between."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
import pytest_asyncio

from everloop.deploy.local.servers import LOOPBACK, free_port
from everloop.workflows.contract.names import call_key
from tests.support.rigs.peer_rig import PeerRig, Settings, ann
from tests.support.rigs.tool_rig import ToolRig
from tests.support.servers.peer_agent import Town
from tests.support.servers.peer_server import running_peer


@pytest_asyncio.fixture(params=["1.0", "0.3"])
async def town(request: pytest.FixtureRequest) -> AsyncGenerator[Town]:
    async with running_peer(version=request.param) as running:
        yield running


def _sent(town: Town) -> int:
    return sum(method in {"SendStreamingMessage", "message/stream"} for method in town.methods)


async def test_the_next_attempt_goes_on_with_the_task_of_the_last_one(town: Town) -> None:
    """It subscribes to the task that was kept; the peer is asked once, and not told to stop."""
    rig = PeerRig(ann(town))
    await rig.lose(await rig.begin(town))
    attempt = asyncio.create_task(rig.run("wait 1"))
    await town.until_called(town.subscribe_method)
    town.gate.set()
    assert (await attempt).startswith("done 1\n")
    assert len(town.messages) == _sent(town) == 1
    assert not town.canceled.is_set()


async def test_a_stream_that_breaks_is_taken_up_again(town: Town) -> None:
    """The task is subscribed to; what it did in between is not lost, and not told twice."""
    rig = PeerRig(ann(town))
    town.cut = 2  # the task and the first status
    attempt = await rig.begin(town)
    await town.until_called(town.subscribe_method)
    town.gate.set()
    assert (await attempt).startswith("done 1\n")
    assert rig.progress == ["half done"]
    assert len(town.messages) == 1


async def test_without_subscriptions_the_task_is_polled(town: Town) -> None:
    """A peer that refuses to be subscribed to is asked for the task, again and again."""
    rig = PeerRig(ann(town))
    town.subscribes, town.cut = False, 2
    attempt = await rig.begin(town)
    await town.until_called(town.subscribe_method)
    await town.until_called(town.get_method, town.methods.count(town.get_method) + 2)
    town.gate.set()
    assert (await attempt).startswith("done 1\n")
    assert town.methods.count(town.subscribe_method) == 1
    assert len(town.messages) == 1


async def test_a_request_whose_answer_was_lost_is_sent_again_as_the_same(town: Town) -> None:
    """In the same attempt and in the next one: messageId and Idempotency-Key let the peer know."""
    rig = PeerRig(ann(town))
    town.cut = 0
    await rig.run("say hi")
    rig.kept = None
    await rig.run("say hi")
    ids = town.message_ids
    keys = {headers["idempotency-key"] for headers in town.headers if "idempotency-key" in headers}
    assert len(ids) == 3
    assert {*ids} == keys
    assert len(keys) == 1


async def test_a_request_that_must_not_be_repeated_is_not(town: Town) -> None:
    """When the connection breaks before the peer has named a task, the model reads that nobody knows."""
    rig = PeerRig(ann(town, Settings(idempotent=False)))
    town.cut = 0
    failed = await rig.fail("say hi")
    assert "nobody knows whether it has taken the request" in failed
    assert len(town.messages) == 1
    assert not rig.tool.idempotent


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_peer_that_is_too_busy_is_asked_later(town: Town, *, idempotent: bool) -> None:
    """It has taken nothing, so that no request is doubled."""
    rig = PeerRig(ann(town, Settings(idempotent=idempotent)))
    town.refusals = [503, 429]
    assert (await rig.run("say hi")).startswith("hi\n")
    assert len(town.messages) == 1


async def test_a_task_that_cannot_be_read_for_a_while(town: Town) -> None:
    """The peer is asked for it until it answers."""
    rig = PeerRig(ann(town))
    attempt = await rig.begin(town)
    town.refusals = [502, 500]
    town.gate.set()
    assert (await attempt).startswith("done 1\n")
    assert town.refusals == []


async def test_a_peer_that_is_not_there() -> None:
    """When its time is nearly over the model reads what is wrong, and what to do."""
    nobody = Town(url=f"http://{LOOPBACK}:{free_port()}")
    rig = PeerRig(ann(nobody, Settings(timeout=timedelta(seconds=1))))
    failed = await rig.fail("say hi")
    assert failed.startswith(
        f"PeerAwayError: the agent at {nobody.url} does not answer (its card cannot be had"
    )
    assert "try again later" in failed


async def test_a_peer_that_has_forgotten_its_task(town: Town) -> None:
    """The model may ask it again."""
    rig = PeerRig(ann(town))
    rig.kept = {"task": "lost"}
    assert "does not know its task any more; ask it again" in await rig.fail("say hi")


async def test_the_card_is_fetched_once(town: Town) -> None:
    """The process knows it for the next call."""
    rig = PeerRig(ann(town))
    await rig.run("say hi")
    await rig.run("say hi")
    assert town.cards == 1


async def test_the_tools_activity_keeps_the_task(town: Town) -> None:
    """What the tool keeps reaches the next attempt; its result names the artifacts, and stands."""
    (tool,) = ann(town).tools
    rig = ToolRig(tool)
    call = rig.call("ann", '{"request": "write"}')
    first, second = await rig.run(call), await rig.run(call)
    assert first == second
    assert len(first.artifacts) == 6
    assert isinstance(await rig.records.kept(rig.task_id, call_key(call.call)), dict)
    assert len(town.messages) == 1

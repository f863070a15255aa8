"""A peer hears when nobody wants its answer any more, and hears nothing when only a worker ends."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from temporalio.activity import ActivityCancellationDetails

from tests.support.rigs.peer_rig import PeerRig, ann
from tests.support.servers.peer_agent import Town
from tests.support.servers.peer_server import running_peer


@pytest_asyncio.fixture(params=["1.0", "0.3"])
async def town(request: pytest.FixtureRequest) -> AsyncGenerator[Town]:
    async with running_peer(version=request.param) as running:
        yield running


async def test_a_canceled_call_cancels_the_peers_task(town: Town) -> None:
    """Before the call itself has ended."""
    rig = PeerRig(ann(town))
    attempt = await rig.begin(town)
    await rig.cancel(attempt, ActivityCancellationDetails(cancel_requested=True))
    assert town.canceled.is_set()


async def test_a_call_that_takes_too_long_cancels_the_peers_task(town: Town) -> None:
    """A timeout is no cancellation of the activity."""
    rig = PeerRig(ann(town))
    attempt = await rig.begin(town)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert town.canceled.is_set()


@pytest.mark.parametrize("why", ["not_found", "paused", "reset", "timed_out", "worker_shutdown"])
async def test_a_call_that_comes_again_leaves_the_peer_alone(town: Town, why: str) -> None:
    """The next attempt finds its task as it was, and at work."""
    rig = PeerRig(ann(town))
    attempt = await rig.begin(town)
    await rig.cancel(attempt, ActivityCancellationDetails(**{why: True}))
    town.gate.set()
    assert (await rig.run("wait 1")).startswith("done 1\n")
    assert not town.canceled.is_set()


async def test_a_forgotten_call_that_nobody_wants_cancels_the_peers_task(town: Town) -> None:
    """Temporal took the attempt for lost; the task was cancelled while the next one waited for it."""
    rig = PeerRig(ann(town))
    attempt = await rig.begin(town)
    rig.is_wanted = False
    await rig.lose(attempt)
    assert town.canceled.is_set()


async def test_a_stopping_worker_leaves_the_peer_alone(town: Town) -> None:
    """Whether or not the server has told it why."""
    rig = PeerRig(ann(town))
    attempt = await rig.begin(town)
    rig.environment.worker_shutdown()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    town.gate.set()
    assert (await rig.run("wait 1")).startswith("done 1\n")
    assert not town.canceled.is_set()


async def test_a_peer_that_cannot_be_told(town: Town) -> None:
    """The call ends all the same."""
    rig = PeerRig(ann(town))
    attempt = await rig.begin(town)
    town.refusals = [500]
    await rig.cancel(attempt, ActivityCancellationDetails(cancel_requested=True))
    assert not town.canceled.is_set()

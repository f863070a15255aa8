"""Model calls at the gates of their providers, over real HTTP and on a real Redis."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from redis.asyncio import Redis

from everloop.activities.model.model_retries import RETRIES
from everloop.local.servers import LOOPBACK
from everloop.models.catalogue import Provider
from everloop.stores.keys import provider_key
from everloop.stores.providers import FAILURES, ProviderGates
from everloop.workflows.contract.failures import MODEL_UNAVAILABLE, REPLY_CUT
from tests.stores.examples import let_pass, new_id
from tests.support.recorded_metrics import Recorded
from tests.support.rigs.model_rig import ModelRig, model_rig, working
from tests.support.servers.scripted_openai import Refusal, Reply, Script, ScriptedOpenAI


@asynccontextmanager
async def rig_at(redis: Redis, script: Script, **limits: int) -> AsyncGenerator[tuple[ModelRig, str]]:
    """Yield a rig whose calls pass gates, and the name of its provider, which has these limits."""
    name = new_id()
    async with model_rig(script) as rig:
        rig.models = replace(rig.models, gates=ProviderGates(redis))
        rig.know(replace(Provider(name, base_url=rig.provider.base_url), **limits))
        rig.call = rig.changed(model=f"{name}/m")
        yield rig, name


async def test_a_busy_provider_delays_no_other(redis: Redis) -> None:
    """A busy provider is asked after its delay; other models and providers are answered at once."""
    recorded = Recorded()
    busy = Refusal(429, headers={"Retry-After": "60"})
    async with ScriptedOpenAI([Reply(["Hello"])]) as server:
        other = Provider(new_id(), base_url=server.base_url)
        async with rig_at(redis, [busy, Reply(["Hi"]), Reply(["Back"])]) as (rig, name):
            rig.know(other)
            await rig.views.publish(*rig.place, [working()])
            delays = [(await rig.fail(attempt=number)).next_retry_delay for number in (1, 2)]
            note = await rig.note()
            others = [f"{name}/another", f"{other.name}/m"]
            runs = [rig.task.model_copy(update={"run_id": new_id()}) for _ in others]
            calls = [rig.changed(model=model, task=run) for model, run in zip(others, runs, strict=True)]
            replies = [await rig.run(call) for call in calls]
            await let_pass(redis, name, 60)
            replies.append(await rig.run(attempt=3))

    assert [reply.text for reply in replies] == ["Hi", "Hello", "Back"]
    assert len(rig.provider.requests) == 3
    assert all(delay and timedelta(seconds=50) < delay <= timedelta(seconds=66) for delay in delays)
    assert note.startswith(f"waiting for the model: {name} has asked for a pause of m (429); retry in")
    assert recorded.counts("everloop.model.gate") == {(name, "asked"): 1}


async def test_a_wait_for_a_slot_is_no_failure(redis: Redis) -> None:
    """A long wait for a slot is not a failure and causes no fallback; a cancelled call frees its place."""
    async with rig_at(redis, [Reply(["Hel", asyncio.Event()]), Reply(["Hello"])], concurrency=1) as (
        rig,
        name,
    ):
        running = await rig.begin()
        # Another activity of the task, because rigs give all of them the same name.
        waiting = rig.changed(task=rig.task.model_copy(update={"run_id": new_id()}), has_fallback=True)
        failure = await rig.fail(waiting, failures=RETRIES)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await rig.run(waiting)

    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert failure.message == f"{name} takes 1 at once"


async def test_a_rest_that_is_held_back_is_not_waited_for(redis: Redis) -> None:
    """An answer whose continuation would wait stands as cut.

    Each attempt would pay again for the first half.
    """
    cut = Reply(["Half"], finish_reason="length")
    async with rig_at(redis, [cut, cut], requests_per_minute=1) as (rig, _):
        reply = await rig.run()

    assert (reply.text, reply.reason) == ("Half", REPLY_CUT)
    assert len(rig.provider.requests) == 1


async def test_tokens_count_as_many_as_they_were(redis: Redis) -> None:
    """The estimated tokens of a call are corrected by the usage in the reply."""
    async with rig_at(redis, [Reply(["Hello"])] * 2, tokens_per_minute=1200) as (rig, _):
        reply = await rig.run()
        await rig.run(rig.follow_up(reply))
        assert len(rig.provider.requests) == 2


async def test_a_dead_provider_is_left_soon_and_comes_back(redis: Redis) -> None:
    """A call fails over from a dead provider after two tries, and without any once its outage is recorded."""
    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    async with rig_at(redis, []) as (rig, _):
        dead = Provider(new_id(), base_url=f"http://{LOOPBACK}:{port}/v1")
        rig.know(dead)
        call = rig.changed(model=f"{dead.name}/m", has_fallback=True)
        async with ScriptedOpenAI([Reply(["Hel"], ending="cut")], listener):
            ends = [(await rig.fail(call)).non_retryable]
        for number in range(1, FAILURES):
            failure = await rig.fail(call, attempt=1 + number % 2, failures=number % 2)
            ends.append(failure.non_retryable)
        assert ends == [False, True, False, True, False]

        async with ScriptedOpenAI([Reply(["Hello"])], socket.create_server((LOOPBACK, port))) as server:
            failure = await rig.fail(call)
            assert failure.non_retryable
            assert failure.message == f"{dead.name} is down: its last calls failed"
            assert not server.requests
            await let_pass(redis, dead.name, 10)
            assert (await rig.run(call)).text == "Hello"
            assert not await redis.hexists(provider_key(dead.name), "open_until")

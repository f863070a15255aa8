"""The gate before each provider: slots, rates, the breaker, and requested delays."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.crc import key_slot
from structlog.testing import capture_logs

from everloop.local.servers import LOOPBACK
from everloop.models.catalogue import ChosenModel, Provider
from everloop.models.interface import ModelBusyError, ModelDownError, ModelRefusedError
from everloop.runtime.redis import connect_redis
from everloop.stores.keys import provider_calls_key, provider_key
from everloop.stores.providers import FAILURES, LOOK_AGAIN, HeldBackError, ProviderGates
from tests.stores.examples import PROVIDER_KEYS, let_pass, new_id
from tests.support.clocks import FastClock
from tests.support.servers.processes import free_port

HOLD_A_SLOT = """
import asyncio, sys
from everloop.models.catalogue import ChosenModel, Provider
from everloop.runtime.redis import connect_redis
from everloop.stores.providers import ProviderGates

async def hold(url, name):
    chosen = ChosenModel(name="m", provider=Provider(name, concurrency=1), model="m")
    async with ProviderGates(connect_redis(url)).hold(chosen, "of a worker", 1):
        print("entered", flush=True)
        await asyncio.Event().wait()

asyncio.run(hold(*sys.argv[1:]))
"""


def model_of(name: str = "", **limits: int) -> ChosenModel:
    return ChosenModel(name="m", provider=replace(Provider(name or new_id()), **limits), model="m")


@pytest_asyncio.fixture(loop_scope="session")
async def gates(redis: Redis, redis_url: str) -> AsyncGenerator[list[ProviderGates]]:
    """Return the gates of two workers."""
    async with connect_redis(redis_url) as other:
        yield [ProviderGates(redis), ProviderGates(other)]


async def enter(gates: ProviderGates, chosen: ChosenModel, call: str = "", tokens: int = 1) -> str:
    """Make a call that the provider answers; return the reason of a delay, or empty."""
    try:
        async with gates.hold(chosen, call or new_id(), tokens) as passage:
            passage.outcome = "answered"
    except HeldBackError as error:
        return error.why
    return ""


async def fail(gates: ProviderGates, chosen: ChosenModel, error: BaseException) -> None:
    """Make a call that ends with an error."""
    with pytest.raises(type(error)):
        async with gates.hold(chosen, new_id(), 1):
            raise error


async def bring_down(gates: ProviderGates, chosen: ChosenModel) -> None:
    for _ in range(FAILURES):
        await fail(gates, chosen, ModelDownError("503"))


async def test_as_many_calls_as_the_concurrency_are_made(gates: list[ProviderGates]) -> None:
    """The concurrency limits calls of all workers; a call that ends in any way frees its slot."""
    chosen = model_of(concurrency=2)
    async with AsyncExitStack() as calls:
        for gate in gates:
            await calls.enter_async_context(gate.hold(chosen, new_id(), 1))
        assert [await enter(gate, chosen) for gate in gates] == ["slots", "slots"]
        assert await enter(gates[0], model_of(concurrency=2)) == ""

    for error in (RuntimeError(), asyncio.CancelledError(), ModelRefusedError("400")):
        await fail(gates[0], chosen, error)
    async with gates[0].hold(chosen, new_id(), 1):
        assert await enter(gates[1], chosen) == ""


async def test_the_slot_of_a_dead_worker_expires(
    gates: list[ProviderGates], redis: Redis, redis_url: str
) -> None:
    """The slot of a dead worker expires without renewal; its own call gets it back at once."""
    chosen = model_of(concurrency=1)
    name = chosen.provider.name
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD_A_SLOT, redis_url, name, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout
    assert await worker.stdout.readline() == b"entered\n"
    worker.send_signal(signal.SIGKILL)
    await worker.wait()

    assert await enter(gates[0], chosen) == "slots"
    async with gates[0].hold(chosen, "of a worker", 1):
        assert await enter(gates[1], chosen) == "slots"
        await let_pass(redis, name, 16)
        assert await enter(gates[1], chosen) == ""


@pytest.mark.one_server  # the clock is that of one
@pytest.mark.parametrize("held_back", ["down", "asked", "rate", "slots"])
async def test_calls_do_not_wait_for_a_clock_that_was_put_back(redis: Redis, held_back: str) -> None:
    """After a clock was set back, calls do not wait.

    Breaker and delays end, and slots and rates start again.
    """
    clock = FastClock(redis, timedelta(hours=1))
    gate, chosen = ProviderGates(clock), model_of(requests_per_minute=100)
    async with AsyncExitStack() as calls:
        match held_back:
            case "down":
                await bring_down(gate, chosen)
            case "asked":
                await fail(gate, chosen, ModelBusyError("429", retry_after=timedelta(minutes=5)))
            case "rate":
                chosen = model_of(requests_per_minute=1)
                while not await enter(gate, chosen):
                    pass
            case _:
                chosen = model_of(concurrency=1)
                await calls.enter_async_context(gate.hold(chosen, "of a worker", 1))
        assert await enter(gate, chosen) == held_back
        clock.ahead = timedelta()

        assert await enter(ProviderGates(clock), chosen) == ""


async def test_a_slot_is_renewed(redis: Redis) -> None:
    """The slot of a long reply is renewed; a slot that was left is not restored."""
    chosen, gate = model_of(concurrency=1), ProviderGates(redis, slot=timedelta(seconds=3))
    calls = provider_calls_key(chosen.provider.name)
    async with gate.hold(chosen, "long", 1):
        expires = await redis.zscore(calls, "long")
        assert expires
        while (await redis.zscore(calls, "long") or 0) <= expires:  # noqa: ASYNC110 -- a fact of a server
            await asyncio.sleep(0.05)
    assert await redis.zscore(calls, "long") is None


@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute"])
async def test_rates_hold_over_all_workers_in_the_order_of_calls(
    gates: list[ProviderGates], redis: Redis, limit: str
) -> None:
    """Rates hold over all workers in the order of calls: a call that waits has a reserved turn."""
    chosen = model_of()
    chosen = replace(chosen, provider=replace(chosen.provider, **{limit: 1}))
    calls = [new_id() for _ in range(4)]
    found = [await enter(gates[number % 2], chosen, call, 700) for number, call in enumerate(calls)]
    assert found == ["", "rate", "rate", "rate"]

    for number in (1, 2, 3):
        await let_pass(redis, chosen.provider.name, 59)
        late = [await enter(gates[0], chosen, call, 700) for call in reversed(calls[number:])]
        assert late == [*["rate"] * (3 - number), ""]


async def test_a_wait_says_how_long_and_why(gates: list[ProviderGates]) -> None:
    """A wait has its limit and duration for operators and clients; a short one has no message."""
    chosen = model_of("office", requests_per_minute=10, tokens_per_minute=1_000_000)
    assert [await enter(gate, chosen) for gate in gates] == ["", ""]
    with pytest.raises(HeldBackError) as held:
        await gates[0].hold(chosen, new_id(), 1).__aenter__()
    assert str(held.value) == "office takes 10 requests and 1,000,000 tokens a minute"
    assert timedelta(seconds=2) < held.value.delay <= timedelta(seconds=6)
    quick = model_of(requests_per_minute=600)
    assert [await enter(gates[0], quick) for _ in range(70)] == [""] * 70


async def test_tokens_are_put_right_once_they_are_known(gates: list[ProviderGates]) -> None:
    """After a reply, estimated tokens are corrected in both directions."""
    chosen = model_of(tokens_per_minute=1000)
    for used, why in ((0, ""), (0, ""), (900, "rate")):
        async with gates[0].hold(chosen, new_id(), 500) as passage:
            passage.used = used
        assert await enter(gates[1], chosen, tokens=1) == why


async def test_a_provider_that_is_down_is_not_asked(gates: list[ProviderGates], redis: Redis) -> None:
    """Five failures without an answer within half a minute open the breaker.

    Then one probe follows, later with twice the delay.
    """
    chosen = model_of()
    name = chosen.provider.name
    for _ in range(2):
        for _ in range(FAILURES - 1):
            await fail(gates[0], chosen, ModelDownError("503"))
        assert await enter(gates[1], chosen) == ""
    await fail(gates[0], chosen, ModelDownError("503"))
    await let_pass(redis, name, 31)
    for _ in range(FAILURES - 1):
        await fail(gates[0], chosen, ModelDownError("503"))
    assert not await redis.hexists(provider_key(name), "open_until")

    await fail(gates[0], chosen, ModelDownError("503"))
    assert [await enter(gate, chosen) for gate in gates] == ["down", "down"]
    for pause in (10, 20, 40, 60, 60):
        await let_pass(redis, name, pause - 3)
        assert await enter(gates[0], chosen) == "down"
        await let_pass(redis, name, 3)
        await fail(gates[0], chosen, ModelDownError("no connection"))
    await let_pass(redis, name, 60)
    assert [await enter(gate, chosen) for gate in gates] == ["", ""]


class CountingRedis(Redis):
    """A client that counts its trips."""

    trips = 0

    async def execute_command(self, *args: object, **options: object) -> object:
        self.trips += 1
        return cast("object", await super().execute_command(*args, **options))


@pytest.mark.one_server  # it counts the trips of one connection
@pytest.mark.parametrize("answers", [True, False])
async def test_a_worker_looks_now_and_then_whether_a_provider_without_limits_still_answers(
    gates: list[ProviderGates], redis: Redis, *, answers: bool
) -> None:
    """A worker checks a provider without limits only now and then, and counts nothing in between.

    An answer since others found it down closes the breaker.
    """
    now, chosen, half = [0.0], model_of(), LOOK_AGAIN.total_seconds() / 2
    connection = CountingRedis(connection_pool=redis.connection_pool)
    gate = ProviderGates(connection, clock=lambda: now[0])
    assert await enter(gate, chosen) == ""
    looks = connection.trips
    for error in (ModelRefusedError("400"), ModelBusyError("429"), RuntimeError()):
        await fail(gate, chosen, error)

    now[0] += half
    await bring_down(gates[0], chosen)
    if answers:
        await let_pass(redis, chosen.provider.name, 1)
        assert await enter(gate, chosen) == ""
    assert connection.trips == looks
    now[0] += half
    await let_pass(redis, chosen.provider.name, half)
    found = "" if answers else "down"
    assert [await enter(gate, chosen), await enter(gates[0], chosen)] == [found, found]


async def test_an_answer_between_failures_counts_though_it_was_not_told(gates: list[ProviderGates]) -> None:
    """An answer between failures counts although it was not reported.

    A call may be let in without a trip before the failures.
    """
    chosen, down = model_of(), ModelDownError("503")
    assert await enter(gates[0], chosen) == ""
    async with gates[0].hold(chosen, new_id(), 1) as passage:
        for _ in range(FAILURES - 1):
            await fail(gates[0], chosen, down)
        passage.outcome = "answered"
    for _ in range(FAILURES - 1):
        await fail(gates[0], chosen, down)
    assert await enter(gates[1], chosen) == ""

    await fail(gates[1], chosen, down)
    async with gates[0].hold(chosen, new_id(), 1) as passage:
        passage.outcome = "answered"
    for _ in range(FAILURES - 1):
        await fail(gates[0], chosen, down)
    assert await enter(gates[0], chosen) == ""


@pytest.mark.parametrize("error", [ModelBusyError("429"), ModelRefusedError("400")])
async def test_a_provider_that_refuses_is_not_down(gates: list[ProviderGates], error: Exception) -> None:
    """A provider that refuses a call is not down, whatever its error."""
    chosen = model_of()
    for _ in range(FAILURES):
        await fail(gates[0], chosen, error)
    assert await enter(gates[0], chosen) == ""


@pytest.mark.parametrize("ends", [True, False], ids=["is cancelled", "dies"])
async def test_another_call_probes_where_the_probe_is_lost(
    gates: list[ProviderGates], redis: Redis, *, ends: bool
) -> None:
    """Another call probes if the probe is lost."""
    chosen = model_of()
    await bring_down(gates[0], chosen)
    await let_pass(redis, chosen.provider.name, 10)
    async with AsyncExitStack() as calls:
        probe = gates[0].hold(chosen, "probe", 1)
        await calls.enter_async_context(probe)
        assert await enter(gates[1], chosen) == "down"
        if ends:
            await calls.aclose()
        else:
            await let_pass(redis, chosen.provider.name, 16)
        assert await enter(gates[1], chosen) == ""


async def test_the_first_words_of_the_probe_let_others_in(redis: Redis) -> None:
    """The first words of the probe close the breaker, before its reply ends."""
    chosen, gate = model_of(), ProviderGates(redis, slot=timedelta(seconds=3))
    await bring_down(gate, chosen)
    await let_pass(redis, chosen.provider.name, 10)
    with capture_logs() as logs:
        async with gate.hold(chosen, "probe", 1) as probe:
            probe.outcome = "answered"
            while await redis.hexists(provider_key(chosen.provider.name), "probe"):  # noqa: ASYNC110 -- a fact of a server, no event
                await asyncio.sleep(0.05)
            assert await enter(gate, chosen) == ""
    name = chosen.provider.name
    assert [log["event"] for log in logs if log.get("provider") == name] == ["provider answers again"]


async def test_calls_go_on_without_redis() -> None:
    """Calls continue without Redis and its limits; the log says so once."""
    chosen = model_of(concurrency=1)
    async with connect_redis(f"redis://{LOOPBACK}:{free_port()}/0") as away:
        gate = ProviderGates(away)
        with capture_logs() as logs:
            async with gate.hold(chosen, "a", 1), gate.hold(chosen, "b", 1):
                pass
    assert [log["event"] for log in logs].count("store is unavailable: model calls are not counted") == 1


@pytest.mark.parametrize("key", PROVIDER_KEYS[1:])
def test_all_keys_of_a_provider_are_in_one_hash_slot(key: Callable[[str], str]) -> None:
    """All keys of a provider are in one hash slot, for any name, because scripts use them together."""
    for name in ("office", "{x}", "a}b{c"):
        assert key_slot(key(name).encode()) == key_slot(provider_key(name).encode())


async def test_a_call_that_has_left_is_not_renewed_any_more() -> None:
    """The slot of an ended call is not renewed, although Redis' client may lose that cancellation."""
    renewed = asyncio.Event()

    class LosesCancellation:
        @staticmethod
        def register_script(script: str) -> Callable[..., Awaitable[str]]:
            async def run(**_: object) -> str:
                if "Renews the slot" in script:
                    renewed.set()
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(60)
                return ""

            return run

    before = asyncio.all_tasks()
    gates = ProviderGates(cast("Redis", LosesCancellation()), slot=timedelta(milliseconds=3))
    async with gates.hold(model_of("p"), "call", 1):
        await renewed.wait()
    if left := asyncio.all_tasks() - before:
        _, at_work = await asyncio.wait(left, timeout=1)
        assert not at_work

"""Streaming beside bare Redis and a bare SSE server: the age of a token when a client reads it."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast
from uuid import uuid4

from redis.asyncio import Redis

from bench.orders import TokenAges
from bench.rows import Row, Samples, in_turn, percentile
from bench.runs import stream_echo, stream_task, time_to_first_event
from bench.stack import Stack
from tests.support.servers.processes import ROOT

RATE = 40.0
TOKENS = 100
MANY = 20
FIRST_EVENTS = 10
Reply = list[tuple[str, list[tuple[str, dict[str, str]]]]]

READ_TIMEOUT = 30_000
"""Milliseconds until a silent writer is given up."""


async def tokens(stack: Stack, rounds: int) -> list[Row]:
    """Measure the latency of a token from the model to the client, at 40 tokens per second and stream."""
    redis, echo, ours = await in_turn(
        rounds,
        partial(_stream_redis, stack),
        partial(_at_once, 1, partial(stream_echo, stack, TOKENS, RATE)),
        partial(_at_once, 1, partial(stream_task, stack, TOKENS, RATE)),
    )
    echoes, ours_of_many = await in_turn(
        rounds,
        partial(_at_once, MANY, partial(stream_echo, stack, TOKENS, RATE)),
        partial(_at_once, MANY, partial(stream_task, stack, TOKENS, RATE)),
    )
    return [
        *_token_rows("token to client, 1 stream", (redis, echo), ours),
        *_token_rows(f"token to client, {MANY} streams", (redis, echoes), ours_of_many),
    ]


def _token_rows(what: str, floors: tuple[Samples, Samples], ours: Samples) -> list[Row]:
    """Return p50 and p99; the floor of both is the sum of the two unavoidable hops of a token."""
    redis, echo = floors
    samples = {"Redis": redis, "bare server": echo, "everloop": ours}
    return [
        Row(
            f"{what}, p{percent}",
            "ms",
            percentile(ours, percent),
            percentile(redis, percent) + percentile(echo, percent),
            samples=samples if percent == 50 else {},
        )
        for percent in (50, 99)
    ]


async def first_event(stack: Stack, rounds: int) -> list[Row]:
    """Measure the time from SendStreamingMessage to the first event, one client after the other.

    Its floor is the time in which Temporal accepts a bare workflow: no task exists before.
    """
    starts, events = await in_turn(
        rounds * FIRST_EVENTS, partial(_time_to_start, stack), partial(_time_to_first_event, stack)
    )
    return [
        Row(
            f"SendStreamingMessage to first event, p{percent}",
            "ms",
            percentile(events, percent),
            percentile(starts, percent),
            samples=named,
        )
        for percent, named in ((50, {"floor": starts, "everloop": events}), (99, {}))
    ]


async def _time_to_start(stack: Stack) -> Samples:
    begin = time.perf_counter()
    run = await stack.sides[0].start({"iterations": 0}, turns=1)
    started = time.perf_counter()
    await run.result()
    return [(started - begin) * 1000]


async def _time_to_first_event(stack: Stack) -> Samples:
    return [await time_to_first_event(stack)]


async def _at_once(streams: int, stream: Callable[[], Awaitable[Samples]]) -> Samples:
    found = await asyncio.gather(*(stream() for _ in range(streams)))
    return [sample for samples in found for sample in samples]


async def _stream_redis(stack: Stack) -> Samples:
    """Read, blocking, the tokens that another process writes to a Redis stream."""
    key, ages = f"bench:{uuid4()}", TokenAges()
    command = ["-m", "bench.servers.stream_writer", stack.redis_url, key, str(TOKENS), str(RATE)]
    writer = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT)
    try:
        async with Redis.from_url(stack.redis_url, decode_responses=True) as redis:
            await _read_stream(redis, key, ages)
    finally:
        if writer.returncode is None:
            writer.terminate()
        await writer.wait()
    return ages.milliseconds


async def _read_stream(redis: Redis, key: str, ages: TokenAges) -> None:
    position = "0"
    while len(ages.milliseconds) < TOKENS:
        reply = cast("Reply", await redis.xread({key: position}, block=READ_TIMEOUT))
        assert reply, f"the writer was silent for {READ_TIMEOUT} ms"
        entries = reply[0][1]
        for _, fields in entries:
            ages.read(fields["token"])
        position = entries[-1][0]

"""What a task costs in Redis, sent through the gateway."""

from pathlib import Path

from redis.asyncio import Redis

from bench.costs.stores import Stores, StoreUse
from bench.orders import Order, iterations_order
from bench.rows import Row
from bench.runs import send_message
from bench.stack import Stack

TASKS = 10


async def redis_use(stack: Stack, _: int) -> list[Row]:
    """Count the commands of a plain answer, and weigh what "4 tools, answer" leaves behind."""
    async with Redis.from_url(stack.redis_url) as redis:
        stores = Stores(redis, Path(stack.deployment.environment["EVERLOOP_BLOB_DIRECTORY"]))
        answer = await _use(stack, stores, iterations_order(0))
        work = await _use(stack, stores, iterations_order(4))
    return [
        Row("Redis commands of a plain answer", "", answer.commands),
        Row("Redis commands of 4 tools, answer", "", work.commands),
        Row("Redis byte-days of 4 tools, answer", "B", work.byte_days),
    ]


async def _use(stack: Stack, stores: Stores, order: Order) -> StoreUse:
    await send_message(stack, order)
    before = await stores.use()
    for _ in range(TASKS):
        await send_message(stack, order)
    return (await stores.use()).since(before, TASKS)

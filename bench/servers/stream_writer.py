"""Writes stamped tokens to a Redis stream: `python -m bench.servers.stream_writer URL KEY TOKENS RATE`."""

import asyncio
import sys

from redis.asyncio import Redis

from bench.orders import stamped_tokens


async def write(url: str, key: str, count: int, rate: float) -> None:
    """Add `count` tokens, one entry each."""
    async with Redis.from_url(url) as redis:
        async for token in stamped_tokens(count, rate):
            await redis.xadd(key, {"token": token})


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))

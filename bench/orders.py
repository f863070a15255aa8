"""Orders for tasks, and their contents: prose, and tokens with the time of their writing."""

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator
from functools import cache
from itertools import count
from typing import Any, TypedDict

RESULT_BYTES = 2000
"""Size of a tool's result."""


class Order(TypedDict, total=False):
    """Order for the model; `bench.servers.model` describes the fields."""

    iterations: int
    size: int
    tool: str
    arguments: dict[str, Any]
    asks: bool
    answer: int
    megabytes: int
    tokens: int
    rate: float


def iterations_order(iterations: int, size: int = RESULT_BYTES) -> Order:
    """Return the order for these iterations, each with a tool result of `size` bytes, and an answer."""
    return {"iterations": iterations, "size": size}


# Text as tools return it: prose, of which a compressor leaves two fifths.

_STEP = 7919
_numbers = count()


def prose(size: int) -> str:
    """Return this number of characters of English, different at each call."""
    text = _text()
    start = next(_numbers) * _STEP % (len(text) - size % len(text))
    return (text[start:] + text * (size // len(text)))[:size]


@cache
def _text() -> str:
    from pydoc_data.topics import topics  # noqa: PLC0415 -- idle processes are weighed without it

    words = "".join(topics.values()).encode("ascii", "ignore").decode().split()
    return " ".join(words)


# Tokens that carry the time at which they were written, so that any process can compute their age.

_STAMP = re.compile(r"@(\d+);")


async def stamped_tokens(number: int, rate: float) -> AsyncGenerator[str]:
    """Yield `number` tokens, `rate` a second, each with its time on a clock that all processes share.

    The first one comes at a random moment of its period: streams that begin together do not beat as one.
    """
    loop = asyncio.get_running_loop()
    begin = loop.time() + random.random() / rate  # noqa: S311 -- a phase, not a secret
    for place in range(number):
        await asyncio.sleep(max(0.0, begin + place / rate - loop.time()))
        yield f"@{time.monotonic_ns()};"


class TokenAges:
    """Collector of the ages of tokens at their first read, in milliseconds."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self._seen: set[str] = set()

    def read(self, text: str) -> None:
        """Record the tokens of a text that was received just now; repeated ones do not count."""
        now = time.monotonic_ns()
        for stamp in _STAMP.findall(text):
            if stamp not in self._seen:
                self._seen.add(stamp)
                self.milliseconds.append((now - int(stamp)) / 1e6)

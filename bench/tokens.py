"""Tokens that carry the time at which they were written, so that any process can tell how old they are."""

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator

_STAMP = re.compile(r"@(\d+);")


async def stamped_tokens(count: int, rate: float) -> AsyncGenerator[str]:
    """Yield `count` tokens, `rate` a second, each with its time on a clock that all processes share.

    The first one comes at a random moment of its period: streams that begin together do not beat as one.
    """
    loop = asyncio.get_running_loop()
    begin = loop.time() + random.random() / rate  # noqa: S311 -- a phase, not a secret
    for number in range(count):
        await asyncio.sleep(max(0.0, begin + number / rate - loop.time()))
        yield f"@{time.monotonic_ns()};"


class TokenAges:
    """Collects how old tokens are when they are first read, in milliseconds."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self._seen: set[str] = set()

    def read(self, text: str) -> None:
        """Take the tokens in a text that was received just now; repeated ones do not count."""
        now = time.monotonic_ns()
        for stamp in _STAMP.findall(text):
            if stamp not in self._seen:
                self._seen.add(stamp)
                self.milliseconds.append((now - int(stamp)) / 1e6)

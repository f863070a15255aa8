"""A schema of a few KB whose validation never ends; and checks that wait until a test releases them."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Iterator
from typing import TypeVar

import pytest
from pydantic import JsonValue

from everloop.runtime import schema_validation
from everloop.runtime.schema_validation import find_schema_violations

T = TypeVar("T")


@pytest.fixture
def small_budget() -> Iterator[None]:
    """Limit the time of checks, so that tests with many of them are quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_validation, "BUDGET", 0.2)
        schema_validation._PROCESSES.close()
        yield
        schema_validation._PROCESSES.close()


def doubling(times: int = 40, kind: str = "object") -> dict[str, JsonValue]:
    """Return a schema that checks a value of this kind 2 to the power of `times` times."""
    parts: dict[str, JsonValue] = {str(times): {"type": kind}}
    for number in range(times):
        twice: JsonValue = {"$ref": f"#/$defs/{number + 1}"}
        parts[str(number)] = {"allOf": [twice, twice]}
    return {"$defs": parts, "$ref": "#/$defs/0"}


async def while_checks_wait(work: Awaitable[T]) -> T:
    """Return the result of work with a schema check; this loop runs on while the check waits."""
    schema_validation._PROCESSES.close()
    schema_validation._problem_of.cache_clear()
    find_schema_violations({}, [None])
    (process,) = schema_validation._PROCESSES._idle
    os.kill(process.pid, signal.SIGSTOP)
    try:
        working = asyncio.ensure_future(work)
        while schema_validation._PROCESSES._idle and not working.done():  # noqa: ASYNC110 -- of a process
            await asyncio.sleep(0.01)
        assert not working.done()
    finally:
        os.kill(process.pid, signal.SIGCONT)
    return await working

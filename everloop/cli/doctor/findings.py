"""What a check finds."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from everloop.runtime.settings import explain

State = Literal["ok", "problem", "note"]

TIMEOUT = 10.0
"""Seconds that one check may take."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, and what is wrong with it and to be done, or what is right.

    A note is neither: it was not looked at, or need not be right.
    """

    name: str
    state: State
    says: str


def ok(name: str, says: str) -> Finding:
    """Return that all is well."""
    return Finding(name, "ok", says)


def problem(name: str, says: str) -> Finding:
    """Return what is wrong, and what to do."""
    return Finding(name, "problem", says)


def note(name: str, says: str) -> Finding:
    """Return what is to be known."""
    return Finding(name, "note", says)


async def looked(name: str, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    """Return what a check finds; of one that fails, or takes too long, that: a doctor is called for it."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await look()
    except TimeoutError:
        return [problem(name, f"no answer in {TIMEOUT:.0f} s; look at its log and at the network")]
    except ValidationError as error:
        return [problem(name, f"wrong setting: {explain(error)}")]
    except Exception as error:  # noqa: BLE001 -- whatever is wrong is what it finds
        return [problem(name, " ".join(str(error).split()) or type(error).__name__)]

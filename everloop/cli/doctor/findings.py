"""Findings of checks."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from everloop.runtime.environment import explain

State = Literal["ok", "problem", "note"]

TIMEOUT = 10.0
"""Seconds that one check may take."""


@dataclass(frozen=True)
class Finding:
    """Result of a check: its subject, its status, and the problem with its fix, or a confirmation.

    A note has neither: the subject was not checked, or need not be right.
    """

    name: str
    state: State
    says: str


def ok(name: str, says: str) -> Finding:
    """Return the finding of a passed check."""
    return Finding(name, "ok", says)


def problem(name: str, says: str) -> Finding:
    """Return a finding with a problem and its fix."""
    return Finding(name, "problem", says)


def note(name: str, says: str) -> Finding:
    """Return a finding with information only."""
    return Finding(name, "note", says)


async def looked(name: str, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    """Return the findings of a check; a failure or timeout of the check is a finding, too."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await look()
    except TimeoutError:
        return [problem(name, f"no answer in {TIMEOUT:.0f} s; look at its log and at the network")]
    except ValidationError as error:
        return [problem(name, f"wrong setting: {explain(error)}")]
    except Exception as error:  # noqa: BLE001 -- any error is a finding
        return [problem(name, " ".join(str(error).split()) or type(error).__name__)]

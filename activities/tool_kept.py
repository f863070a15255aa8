"""What a tool keeps of one call, for its later attempts."""

import json

from pydantic import JsonValue

from everloop.activities.store_patience import PATIENCE, StoreAwayError, insist
from everloop.activities.tool_claims import ToolClaim

MAX_KEPT_BYTES = 64 * 1024
"""Bytes of JSON that one call may keep; whatever is larger belongs into an artifact."""


class KeepingFailedError(Exception):
    """The value is too large, or not JSON, or its store is away; the message says which."""


class KeptValue:
    """The value that one call keeps, whatever attempt of it and however many questions later.

    `patience` is how long an outage of the store is waited out, in seconds (default 20).
    """

    def __init__(self, claim: ToolClaim, *, patience: float = PATIENCE) -> None:
        self._claim = claim
        self._patience = patience

    async def read(self) -> JsonValue:
        """Return what the last attempt has kept, None if there is nothing."""
        return await self._claim.kept()

    async def keep(self, value: JsonValue) -> None:
        """Keep a value in place of the last one.

        Raises:
            KeepingFailedError: it is no JSON, too large, or the store did not answer for too long.
            OvertakenError: the call is another attempt's.
        """
        if problem := _problem_of(value):
            raise KeepingFailedError(problem)
        try:
            await insist(lambda: self._claim.keep(value), self._patience)
        except StoreAwayError:
            problem = "what the call keeps cannot be stored now; try again later"
        if problem:
            raise KeepingFailedError(problem)


def _problem_of(value: JsonValue) -> str:
    """Return why a value cannot be kept; empty if it can."""
    try:
        size = len(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return f"keep takes a JSON value, and this is none: {error}"
    if size > MAX_KEPT_BYTES:
        return (
            f"the value has {size} bytes of JSON, and a call may keep {MAX_KEPT_BYTES}; "
            "write the rest into an artifact and keep its id"
        )
    return ""

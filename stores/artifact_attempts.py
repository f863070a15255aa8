"""Names of operations that tell by which attempt at a tool call they were done.

An attempt whose worker was only thought to be lost may begin to write when the next one has ended. What it
would do then is refused.
"""

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime

_NAME = re.compile(r"(?P<call>[0-9a-f]{16})@(?P<time>[0-9]{8}T[0-9]{12})/.*", re.DOTALL)


def attempt_prefix(call_key: str, scheduled_at: datetime) -> str:
    """Return what the ids of all operations of one attempt begin with.

    `scheduled_at` is by the clock of Temporal's server, which is the same for all workers: a later attempt
    has a later one, also after a Reset.
    """
    call = hashlib.sha256(call_key.encode()).hexdigest()[:16]
    return f"{call}@{scheduled_at.astimezone(UTC):%Y%m%dT%H%M%S%f}/"


def is_outdated(operation_id: str, done: Iterable[str]) -> bool:
    """Whether one of the operations was done by a later attempt at the same call."""
    name = _NAME.fullmatch(operation_id)
    if name is None:
        return False
    others = filter(None, map(_NAME.fullmatch, done))
    return any(other["call"] == name["call"] and other["time"] > name["time"] for other in others)

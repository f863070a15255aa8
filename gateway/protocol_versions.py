"""Which version of A2A a call speaks (A2A 1.0 §3.6: the A2A-Version header; none means 0.3)."""

from a2a.server.context import ServerCallContext
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from packaging.version import Version

_SERVED = {(1, 0): PROTOCOL_VERSION_1_0, (0, 3): PROTOCOL_VERSION_0_3}


def served_version(text: str) -> str | None:
    """Return which of our versions a client names, None if it is no such; patch numbers do not matter."""
    try:
        version = Version(text)
    except ValueError:  # also a number of thousands of digits
        return None
    return _SERVED.get((version.major, version.minor))


def is_legacy(context: ServerCallContext) -> bool:
    """Whether the call comes from a client of A2A 0.3."""
    headers: dict[str, str] = context.state.get("headers", {})
    sent = headers.get(VERSION_HEADER.lower()) or PROTOCOL_VERSION_0_3
    return served_version(sent) == PROTOCOL_VERSION_0_3

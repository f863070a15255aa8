"""Which version of A2A a call speaks (A2A 1.0 §3.6: the A2A-Version header; none means 0.3)."""

from a2a.compat.v0_3.versions import is_legacy_version
from a2a.server.context import ServerCallContext
from a2a.utils.constants import PROTOCOL_VERSION_0_3, VERSION_HEADER


def is_legacy(context: ServerCallContext) -> bool:
    """Whether the call comes from a client of A2A 0.3."""
    headers: dict[str, str] = context.state.get("headers", {})
    return is_legacy_version(headers.get(VERSION_HEADER.lower()) or PROTOCOL_VERSION_0_3)

"""What owners may be called: names end in keys of Redis, in search attributes of Temporal, and on screens."""

from everloop.gateway.callers import ANONYMOUS

MAX_OWNER_BYTES = 255


def flaw_of_owner(name: str) -> str:
    """Return why nobody can be called that, empty if one can.

    At most 255 bytes of printable characters without a space at either end. Nobody is called "anonymous",
    however it is written: that is who did not authenticate.
    """
    if not name:
        return "it is empty"
    if len(name.encode(errors="replace")) > MAX_OWNER_BYTES:
        return f"it is longer than {MAX_OWNER_BYTES} bytes"
    if not name.isprintable():
        return "it has control characters, or others that cannot be printed"
    if name != name.strip():
        return "it begins or ends with a space"
    if name.casefold() == ANONYMOUS:
        return f"{ANONYMOUS!r} is who did not authenticate"
    return ""

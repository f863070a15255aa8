"""What no client gets to read of the server's insides."""

import re

MAX_REFUSAL = 10_000
"""Bytes of an answer to a request that is refused."""

_INSIDES = re.compile(
    r"Traceback|File \"|\.py\b|line \d+, in |0x[0-9a-f]{6,}|site-packages|pydantic|protobuf|google\.rpc\.Bad"
    r"|starlette|asyncio|orjson|json_format|ParseDict|structlog|temporalio|redis|gateway\.|stores\.|workflows\."
    r"|Error\(|Exception|recursion|internal error|codec|surrogates not allowed",
    re.IGNORECASE,
)


def insides(text: str) -> str:
    """Return the first words of a text that speak of modules, code or memory; empty: there are none."""
    found = _INSIDES.search(text)
    return text[max(0, found.start() - 40) : found.end() + 40] if found else ""

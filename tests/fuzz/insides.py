"""Internals of the server that no client may read."""

import re

MAX_REFUSAL = 10_000
"""Limit of the answer to a refused request, in bytes."""

_INSIDES = re.compile(
    r"Traceback|File \"|\.py\b|line \d+, in |0x[0-9a-f]{6,}|site-packages|pydantic|protobuf|google\.rpc\.Bad"
    r"|starlette|asyncio|orjson|json_format|ParseDict|structlog|temporalio|redis|gateway\.|stores\.|workflows\."
    r"|Error\(|Exception|recursion|internal error|codec|surrogates not allowed",
    re.IGNORECASE,
)


def insides(text: str) -> str:
    """Return the first words of a text about modules, code or memory; empty if there are no such words."""
    found = _INSIDES.search(text)
    return text[max(0, found.start() - 40) : found.end() + 40] if found else ""

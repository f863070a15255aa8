"""Headers that authors of agents give to the servers of others, and how they are kept out of texts."""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from everloop.workflows.contract.tasks import Identity

Headers = Mapping[str, str] | Callable[[Identity], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Headers of each request, or a function, sync or async, that makes them for who started the task."""

SHORTEST = 6
"""Characters; a shorter value would be found in texts that have nothing to do with it."""

HIDDEN = "[secret]"
"""What stands in the place of a secret."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HeadersError(Exception):
    """There are no headers for a caller; the message says why, and holds no value."""


async def headers_for(headers: Headers, caller: Identity) -> Mapping[str, str]:
    """Return the headers for a caller.

    Raises:
        HeadersError: there are none, or none that can be sent.
    """
    if not callable(headers):
        return headers
    try:
        made = headers(caller)
        made = await made if inspect.isawaitable(made) else made
    except Exception as error:  # noqa: BLE001 -- its message may hold what it is there to keep
        raise HeadersError(f"the function that makes them raised {type(error).__name__}") from None
    if problem := problem_of_headers(made):
        raise HeadersError(problem)
    return made


def problem_of_headers(headers: object) -> str:
    """Return why these headers cannot be sent, naming no value; empty if they can."""
    if not isinstance(headers, Mapping):
        return "headers are a mapping of names to values"
    for name, value in headers.items():  # pyright: ignore[reportUnknownVariableType] -- whatever a function returned
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return f"{name!r} is no name of a header"
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            return f"the value of the header {name!r} is not a text of printable ASCII characters"
    return ""


def secret_words(values: Iterable[str]) -> list[str]:
    """Return the values and the words in them, longest first: of `Bearer abcdef` also `abcdef` alone."""
    words = {word for value in values for word in (value, *value.split()) if len(word) >= SHORTEST}
    return sorted(words - {"Bearer"}, key=len, reverse=True)


def hide(words: Iterable[str], text: str) -> str:
    """Return what a server says without these words: it may repeat what it was sent."""
    for word in words:
        text = text.replace(word, HIDDEN)
    return text

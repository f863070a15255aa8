"""Keeps what opens an MCP server to us out of what it says."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

SHORTEST = 6
"""Characters; anything shorter would be found in texts that have nothing to do with it."""

_HIDDEN = "[secret]"
_TELLING_NAME = re.compile(r"auth|cookie|credential|key|pass|secret|session|token", re.IGNORECASE)


class Concealment:
    """Blacks out what a server was given: headers, environment variables, and secrets within its URL.

    In errors that is every value, in results only those that stand under the name of a secret (such as
    Authorization, or API_KEY): results may well speak of a tenant that a header names.
    """

    def __init__(self, url: str, *given: Mapping[str, str]) -> None:
        pairs = [pair for values in given for pair in values.items()]
        in_url = list(_secrets_of(url))
        self._in_results = _words([*in_url, *(value for name, value in pairs if _TELLING_NAME.search(name))])
        self._in_errors = _words([*in_url, *(value for _, value in pairs)])

    def in_error(self, text: str) -> str:
        """Return what an error says without any value that the server was given."""
        return _without(self._in_errors, text)

    def in_result(self, text: str) -> str:
        """Return what a tool says without the secrets that the server was given."""
        return _without(self._in_results, text)


def _secrets_of(url: str) -> Iterable[str]:
    parts = urlsplit(url)
    yield unquote(parts.password or "")
    for _, value in parse_qsl(parts.query):
        yield value


def _words(values: Iterable[str]) -> list[str]:
    """Return the values and the words in them, longest first: of `Bearer abcdef` also `abcdef` alone."""
    words = {word for value in values for word in (value, *value.split()) if len(word) >= SHORTEST}
    return sorted(words - {"Bearer"}, key=len, reverse=True)


def _without(words: Iterable[str], text: str) -> str:
    for word in words:
        text = text.replace(word, _HIDDEN)
    return text

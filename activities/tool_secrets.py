"""The secrets that one tool call has read, and how they are kept out of what it says."""

import json
from collections.abc import Iterator

from pydantic import JsonValue

from stores.secrets import Secrets

SHORTEST = 6
"""Characters; anything shorter would be found in texts that have nothing to do with it."""

_HIDDEN = "[secret]"


class SecretReader:
    """Hands secrets to a tool and blacks them out in its results, errors and progress."""

    def __init__(self, secrets: Secrets, task_id: str) -> None:
        self._secrets = secrets
        self._task_id = task_id
        self._seen: set[str] = set()

    async def read(self, name: str) -> JsonValue:
        """Return a secret, None if there is none."""
        value = await self._secrets.get(self._task_id, name)
        self._seen.update(word for word in _words(value) if len(word) >= SHORTEST)
        return value

    def hide(self, text: str) -> str:
        """Return the text without the secrets that were read, as they are or as they stand in JSON."""
        for word in sorted(self._seen, key=len, reverse=True):
            for written in (word, json.dumps(word)[1:-1], json.dumps(word, ensure_ascii=False)[1:-1]):
                text = text.replace(written, _HIDDEN)
        return text


def _words(value: JsonValue) -> Iterator[str]:
    """Return all that stands in a secret, but for the names of its fields."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)

"""The secrets that one tool call has read, and how they are kept out of what it says."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence

import structlog
from pydantic import JsonValue
from redis.exceptions import RedisError

from stores.secrets import Secrets
from workflows.contract.questions import Answer, Question

SHORTEST = 6
"""Characters; anything shorter would be found in texts that have nothing to do with it."""

PATIENCE = 20.0
"""Seconds for which an outage of the store is waited out while a tool asks for a secret. The call as a whole
is not tried again: the tool has begun, and may have had an effect."""

_PAUSE = 0.5
"""Seconds from one try to the next."""

_HIDDEN = "[secret]"

_log = structlog.get_logger()


class SecretUnavailableError(Exception):
    """A secret cannot be read now; the message names it. The tool may catch this, or fail with it."""


class SecretReader:
    """Hands secrets to a tool and blacks them out in what it says and writes.

    `patience` is how long an outage of the store is waited out, in seconds (default 20).
    """

    def __init__(self, secrets: Secrets, task_id: str, *, patience: float = PATIENCE) -> None:
        self._secrets = secrets
        self._task_id = task_id
        self._patience = patience
        self._seen: set[str] = set()

    async def accept(self, answers: Iterable[Answer]) -> None:
        """Take in what the answers of the call have brought; of one name, the last. Repeating it is safe."""
        brought = {answer.secret_name: answer.message_id for answer in answers if answer.secret_name}
        for name, message_id in brought.items():
            await self._secrets.accept(self._task_id, message_id, name)

    async def read(self, name: str) -> JsonValue:
        """Return a secret, None if there is none.

        Raises:
            SecretUnavailableError: the store did not answer for too long.
        """
        value = await self._get(name)
        self._seen.update(word for word in _words(value) if len(word) >= SHORTEST)
        return value

    def hide(self, text: str) -> str:
        """Return the text without the secrets that were read, as they are or as they stand in JSON."""
        for word in sorted(self._seen, key=len, reverse=True):
            for written in (word, json.dumps(word)[1:-1], json.dumps(word, ensure_ascii=False)[1:-1]):
                text = text.replace(written, _HIDDEN)
        return text

    def hide_in(self, question: Question) -> Question:
        """Return the question without the secrets that were read, wherever the tool may have put them."""
        hidden = {
            "text": self.hide(question.text),
            "options": tuple(map(self.hide, question.options)),
            "json_schema": {
                self.hide(key): self.hide_json(part) for key, part in question.json_schema.items()
            },
            "default": self.hide_json(question.default),
        }
        return question.model_copy(update=hidden)

    def hide_json(self, value: JsonValue) -> JsonValue:
        """Return the value without the secrets that were read, wherever in it they are."""
        if not self._seen:
            return value
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide(str(key)): self.hide_json(part) for key, part in value.items()}
        if isinstance(value, Sequence):  # of what tools write, a tuple is a list as well
            return [self.hide_json(part) for part in value]
        return _HIDDEN if str(value) in self._seen else value

    async def _get(self, name: str) -> JsonValue:
        """Read a secret; the store's own error would tell the model where the store is."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._patience
        while True:
            try:
                return await self._secrets.get(self._task_id, name)
            except (RedisError, OSError) as error:
                _log.warning("secret not read", error_type=type(error).__name__)
            if loop.time() >= give_up:
                raise SecretUnavailableError(f"the secret {name!r} cannot be read now; try again later")
            await asyncio.sleep(_PAUSE)


def _words(value: JsonValue) -> Iterator[str]:
    """Return all that stands in a secret, but for the names of its fields."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)

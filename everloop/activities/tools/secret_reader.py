"""The secrets that one tool call has read, and their masking in the call's output."""

import json
from collections.abc import Iterable, Iterator, Sequence

from pydantic import JsonValue

from everloop.activities.store_retries import MAX_OUTAGE, StoreAwayError, retry_for
from everloop.runtime.outbound.policy import HIDDEN, SHORTEST
from everloop.stores.secrets import Secrets
from everloop.workflows.contract.names import child_path, root_task_id
from everloop.workflows.contract.questions import Answer, Question

_SEPARATOR = "\x1f"
"""Separates the calls that lead to a sub-agent from the name that its tool gives a secret."""


class SecretUnavailableError(Exception):
    """A secret cannot be read now; the message names it. The tool may catch this, or fail with it."""


class SecretReader:
    """Reads secrets for a tool and masks them in its results and artifacts.

    Clients send secrets to their own task: those for a sub-agent's task are stored there, under separate
    names, until the sub-agent's task ends. `max_outage` is how long an outage of the store is waited out, in
    seconds (default 20).
    """

    def __init__(self, secrets: Secrets, task_id: str, *, max_outage: float = MAX_OUTAGE) -> None:
        self._secrets = secrets
        self._task_id = root_task_id(task_id)
        self._path = child_path(task_id)
        self._max_outage = max_outage
        self._words: set[str] = set()

    @property
    def has_read(self) -> bool:
        """True if the tool has read any secret."""
        return bool(self._words)

    async def accept(self, answers: Iterable[Answer]) -> None:
        """Add the secrets from the answers of the call; of one name, the last. Repeating it is safe."""
        brought = {answer.secret_name: answer.message_id for answer in answers if answer.secret_name}
        for name, message_id in brought.items():
            await self._secrets.accept(self._task_id, message_id, self._full_name(name))

    async def read(self, name: str) -> JsonValue:
        """Return a secret, or None if it does not exist.

        Raises:
            SecretUnavailableError: The store did not answer for too long.
        """
        value = await self._get(name)
        self._words.update(word for word in _words(value) if len(word) >= SHORTEST)
        return value

    def hide(self, text: str) -> str:
        """Return the text with the secrets that were read masked, also in their JSON form."""
        for word in sorted(self._words, key=len, reverse=True):
            for written in (word, json.dumps(word)[1:-1], json.dumps(word, ensure_ascii=False)[1:-1]):
                text = text.replace(written, HIDDEN)
        return text

    def hide_in(self, question: Question) -> Question:
        """Return the question with the secrets that were read masked, in all its fields."""
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
        """Return the value with the secrets that were read masked, at any depth."""
        if not self._words:
            return value
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide(str(key)): self.hide_json(part) for key, part in value.items()}
        if isinstance(value, Sequence):  # tools may write tuples as lists
            return [self.hide_json(part) for part in value]
        return HIDDEN if str(value) in self._words else value

    async def _get(self, name: str) -> JsonValue:
        """Read a secret; the store's own error would reveal the store's address to the model."""
        try:
            return await retry_for(
                lambda: self._secrets.get(self._task_id, self._full_name(name)), self._max_outage
            )
        except StoreAwayError:
            problem = f"the secret {name!r} cannot be read now; try again later"
        # Outside of `except`: the error must not refer to one with the store's address.
        raise SecretUnavailableError(problem)

    def _full_name(self, name: str) -> str:
        return _SEPARATOR.join((*self._path, name))


def _words(value: JsonValue) -> Iterator[str]:
    """Return all values in a secret, without the names of its fields."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)

"""Texts that no log may have: messages of people, models and operators in tests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

MODEL_KEY = "sk-seeded-key-of-the-provider"

SHORTEST = 12
"""The least characters of a text that is searched for; shorter ones would be found in unrelated lines."""

LONGEST = 100
"""The most characters of a text that are searched for."""

_texts: set[str] = set()
_secrets: set[str] = {MODEL_KEY}


def seed_text(text: str) -> str:
    """Record a text of a message; lines below level info may have it."""
    if len(text.strip()) >= SHORTEST:
        _texts.add(text.strip()[:LONGEST])
    return text


def seed_json(value: object) -> None:
    """Record all texts in a JSON value."""
    for text in _strings(value):
        seed_text(text)


def seed_secret(secret: str) -> str:
    """Record a secret; no line may have it."""
    _secrets.add(secret)
    return secret


class LogSearch:
    """Searches the logs of workers and gateways below a directory for seeded texts, each line once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def leaks(self) -> list[str]:
        """Return the new lines with seeded texts, each with that text."""
        return [
            leak for path in self._logs() for line in self._new_lines(path) for leak in _leaks(path, line)
        ]

    def _logs(self) -> list[Path]:
        return [path for kind in ("worker", "gateway") for path in self._directory.rglob(f"{kind}*.log*")]

    def _new_lines(self, path: Path) -> list[str]:
        with path.open("rb") as log:
            log.seek(self._read.get(path, 0))
            new = log.read()
        self._read[path] = self._read.get(path, 0) + len(new)
        return new.decode(errors="replace").splitlines()


def _leaks(path: Path, line: str) -> Iterator[str]:
    said, level = _said(line)
    wanted = _secrets if level == "debug" else _secrets | _texts
    yield from (f"{path.name}: {text!r} stands in {line[:500]}" for text in wanted if text in said)


def _said(line: str) -> tuple[str, str]:
    """Return the text of a line, without JSON's escapes, and its level."""
    try:
        fields: object = json.loads(line)
    except ValueError:
        return line, ""
    level = cast("dict[str, object]", fields).get("level", "") if isinstance(fields, dict) else ""
    return "\n".join(_strings(cast("object", fields))), str(level)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[str, object]", value).values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _strings(each)

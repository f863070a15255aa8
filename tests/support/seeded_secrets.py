"""Texts that no log may hold: what people, models and operators say in tests, wherever they say it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

MODEL_KEY = "sk-seeded-key-of-the-provider"

SHORTEST = 12
"""Characters of a text that is looked for; anything shorter would be found in lines that have nothing to do
with it."""

LONGEST = 100
"""How much of a text is looked for."""

_texts: set[str] = set()
_secrets: set[str] = {MODEL_KEY}


def seed_text(text: str) -> str:
    """Remember a text that somebody says; lines below level info may hold it."""
    if len(text.strip()) >= SHORTEST:
        _texts.add(text.strip()[:LONGEST])
    return text


def seed_json(value: object) -> None:
    """Remember all texts in a JSON value."""
    for text in _strings(value):
        seed_text(text)


def seed_secret(secret: str) -> str:
    """Remember a secret; no line at all may hold it."""
    _secrets.add(secret)
    return secret


class LogSearch:
    """Looks for what was seeded in the logs of workers and gateways below a directory, in each line once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def leaks(self) -> list[str]:
        """Return the new lines that hold something, each with what that is."""
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
    """Return what a line says, without JSON's escapes, and its level."""
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

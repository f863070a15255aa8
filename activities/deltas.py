"""Pieces of a reply, as they come off the stream."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby


@dataclass(frozen=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class ThoughtDelta:
    """A piece of the reasoning. `thought_id` is the id of an inline <thinking> tag, or empty.

    `last`: the thought ends here, and this piece is empty.
    """

    text: str
    thought_id: str = ""
    last: bool = False


@dataclass(frozen=True)
class ArgumentsDelta:
    """A piece of the arguments of a tool call. `call` counts the calls of the reply from 0."""

    text: str
    call: int
    tool: str


Delta = TextDelta | ThoughtDelta | ArgumentsDelta


def coalesce(deltas: Iterable[Delta]) -> list[Delta]:
    """Join neighbours that continue each other; the order stays."""
    runs = (list(run) for _, run in groupby(deltas, key=_voice))
    return [replace(run[0], text="".join(delta.text for delta in run)) for run in runs]


def text_of_deltas(deltas: Iterable[Delta]) -> str:
    """Return what belongs to the answer."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def _voice(delta: Delta) -> tuple[type, str | int, bool]:
    match delta:
        case TextDelta():
            return TextDelta, "", False
        case ThoughtDelta():
            return ThoughtDelta, delta.thought_id, delta.last
        case ArgumentsDelta():
            return ArgumentsDelta, delta.call, False

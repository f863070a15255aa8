"""Merging of fields that a provider requires back: texts and lists are extended, other values replaced."""

from collections.abc import Sequence
from typing import Any, cast

from everloop.models.events import Object

_SINGLE = frozenset(["type", "id", "format", "index", "name", "signature", "data"])
"""Texts within an item that are complete wherever they occur; all others come in pieces."""

_RUNNING = {"text", "thinking"}
"""Items that continue the one before, if that is of the same type."""


def merge(whole: Object, piece: Object, single: frozenset[str] = frozenset()) -> int:
    """Merge a piece; texts of the fields `single` are complete in each piece. Return the added characters."""
    return sum(_merge_field(whole, name, value, is_single=name in single) for name, value in piece.items())


def _merge_field(whole: Object, name: str, value: Any, *, is_single: bool) -> int:  # noqa: ANN401 -- JSON
    had = whole.get(name)
    match had, value:
        case _, None:
            return 0
        case _, list():
            whole[name] = had if isinstance(had, list) else []
            return extend(whole[name], cast("list[Any]", value))
        case dict(), dict():
            return merge(whole[name], cast("Object", value), _SINGLE)
        case str(), str() if not is_single:
            whole[name] += value
            return len(value)
        case _:
            whole[name] = value
            return len(value) if isinstance(value, str) and had is None else 0


def extend(whole: list[Any], pieces: Sequence[Any]) -> int:
    """Append items; one whose index or type matches an earlier item is merged into it.

    Return the number of added characters.
    """
    return sum(_add_item(whole, piece) for piece in pieces)


def _add_item(whole: list[Any], piece: Any) -> int:  # noqa: ANN401 -- JSON
    if not isinstance(piece, dict):
        whole.append(piece)
        return len(str(piece))
    added = cast("Object", piece)
    same = next((item for item in whole if _has_index_of(item, added)), None)
    if same is None and whole and _runs_on(whole[-1], added):
        same = whole[-1]
    if same is None:
        whole.append(same := {})
    return merge(same, added, _SINGLE)


def _has_index_of(item: Object, piece: Object) -> bool:
    if piece.get("index") is None or piece["index"] != item.get("index") or _kind(piece) != _kind(item):
        return False
    return item.get("id") in {None, piece.get("id", item.get("id"))}


def _runs_on(item: Object, piece: Object) -> bool:
    is_numbered = "index" in piece or "index" in item
    return not is_numbered and _kind(item) == _kind(piece) and _kind(piece) in _RUNNING


def _kind(item: Object) -> object:
    return item.get("type")


def without_flags(extra: Object) -> Object:
    """Leave out booleans: they describe a single piece, not the whole."""
    return {
        name: without_flags(cast("Object", value)) if isinstance(value, dict) else value
        for name, value in extra.items()
        if not isinstance(value, bool)
    }

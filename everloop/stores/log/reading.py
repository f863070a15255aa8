"""Reads the view of a task: its snapshot, and the fold of the entries after it."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from everloop.stores.keys import head_key, log_key, snapshot_key
from everloop.stores.log.log_codec import LogCodec, is_of_unknown_kind, unword
from everloop.stores.log.log_types import START, Snapshot
from everloop.stores.scripts import Step
from everloop.workflows.contract.fold import FoldedView, fold, task_view
from everloop.workflows.contract.tasks import TaskView

READ_SCRIPT = "log/read.lua"

_Entry = tuple[str, Sequence[str]]


class LogRead(NamedTuple):
    """The answer of `read.lua`. `entries` is None if the task is larger than the limit."""

    size: int
    identity: str | None
    status_run: str | None
    event: str | None
    position: str
    is_incomplete: bool
    snapshot: str | None
    entries: Sequence[_Entry] | None
    ids: str


def log_keys(task_id: str) -> list[str]:
    """Return the keys of the script."""
    return [head_key(task_id), log_key(task_id), snapshot_key(task_id)]


def reading(task_id: str, most: int | None = None) -> Step[LogRead]:
    """Return the step that reads a task, or only its head if it has more than `most` bytes."""
    return Step(task_id, READ_SCRIPT, log_keys(task_id), [sys.maxsize if most is None else most], as_read)


def as_read(reply: Any) -> LogRead:  # noqa: ANN401 -- as of every step
    """Return the parsed answer of the script."""
    size, (identity, status_run, event, last, lost, *_), kept, entries, *ids = reply
    return LogRead(
        size,
        identity,
        status_run,
        event,
        last or START,
        lost is not None,
        kept,
        None if ids else entries,
        ids[0] if ids else "",
    )


def folded(codec: LogCodec, found: LogRead) -> FoldedView:
    """Return the folded log.

    Raises:
        EncryptionError: it cannot be decrypted.
    """
    view = codec.folded(found.snapshot)
    for _, words in found.entries or ():
        try:
            entry = codec.entry(dict(zip(words[::2], words[1::2], strict=True)))
        except ValidationError as error:
            if not is_of_unknown_kind(error):
                raise
        else:
            view = fold(view, entry)
    return view


def view_of(codec: LogCodec, found: LogRead, history_length: int | None = None) -> TaskView | None:
    """Return a view with its newest `history_length` messages (None: all), or None if it is unknown.

    Raises:
        EncryptionError: it cannot be decrypted.
    """
    if found.entries is None:
        return codec.status_view(found.identity, found.status_run, found.event)
    view = task_view(folded(codec, found))
    if view is None or history_length is None:
        return view
    first = len(view.history) - min(history_length, len(view.history))
    return view.model_copy(update={"history": view.history[first:]})


def snapshot_of(codec: LogCodec, found: LogRead) -> Snapshot | None:
    """Return a view and its position; None if it is unknown or the head is lost; see `view_of`."""
    if found.identity is None or (view := view_of(codec, found)) is None:
        return None
    left_out = None if found.entries is not None else frozenset(map(unword, found.ids.split()))
    return Snapshot(view, found.position, found.size, left_out, found.is_incomplete)


def shortened(snapshot: Snapshot, history_length: int, most: int | None) -> Snapshot:
    """Return a snapshot with its newest messages; if these are too large, without history and artifacts."""
    ids, first = snapshot.message_ids, max(len(snapshot.view.history) - history_length, 0)
    if first:
        view = snapshot.view.model_copy(update={"history": snapshot.view.history[first:]})
        snapshot = replace(snapshot, view=view, size=len(view.model_dump_json()))
    if most is not None and snapshot.size > most:
        bare = snapshot.view.model_copy(update={"history": (), "artifacts": ()})
        return replace(snapshot, view=bare, left_out=ids)
    return snapshot

"""What can be done to an artifact."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from everloop.workflows.contract.artifacts import PartKind, StoredArtifact
from everloop.workflows.contract.events import TaskEvent


@dataclass(frozen=True)
class NewPart:
    """A part to be written.

    `content` is UTF-8 of a text, bytes of a file, JSON of data, JSON lines of rows. `row_schema` is for rows.
    `url`: where a file is that somebody else keeps; it has no content then.
    """

    kind: PartKind
    content: bytes = b""
    media_type: str = ""
    filename: str = ""
    row_schema: Mapping[str, JsonValue] | None = None
    url: str = ""


@dataclass(frozen=True)
class Create:
    """Make an artifact; with `override`, in place of one of the same id, whose version goes on counting."""

    task_id: str
    parts: tuple[NewPart, ...]
    name: str = ""
    description: str = ""
    complete: bool = False
    override: bool = False
    is_input: bool = False


@dataclass(frozen=True)
class Append:
    """Append to the content of part `index` (-1: the last one).

    `rows` counts the rows in `content`, of a dataset. `chunk_index`, if given, has to follow the last one.
    `parts` go behind those that are there.
    """

    content: bytes
    index: int = -1
    rows: int = 0
    last_chunk: bool = False
    chunk_index: int | None = None
    parts: tuple[NewPart, ...] = ()


@dataclass(frozen=True)
class AddParts:
    """Put parts behind those that are there. It counts as one chunk."""

    parts: tuple[NewPart, ...]
    last_chunk: bool = False


@dataclass(frozen=True)
class Replace:
    """Put a part in the place of part `index`, which has to be of kind `replaces` if that is given."""

    index: int
    part: NewPart
    replaces: PartKind | None = None


@dataclass(frozen=True)
class Complete:
    """Take no more content: it is whole. One that is complete stays as it is, also its version."""


@dataclass(frozen=True)
class Fail:
    """Take no more content: it stays unfinished. One that has failed stays as it is, also its version."""


Change = Create | Append | AddParts | Replace | Complete | Fail


@dataclass(frozen=True)
class Announcement:
    """What a task's subscribers are told of a change, in the same atomic step.

    `events_of` gets the artifact as it was (None: it is new) and as it is. It may be asked more than once,
    when others change the artifact meanwhile; what it raises is raised, and nothing has changed.
    """

    task_id: str
    run_id: str
    events_of: Callable[[StoredArtifact | None, StoredArtifact], Sequence[TaskEvent]]

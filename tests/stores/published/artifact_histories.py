"""Random histories of an artifact, for hypothesis: changes of writers, and drafts of models."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from pydantic import JsonValue

from everloop.stores.artifacts.changes import (
    AddParts,
    Append,
    Change,
    Complete,
    Create,
    Fail,
    NewPart,
    Replace,
)
from everloop.workflows.contract.events import ArtifactChunk, ChunkMode
from everloop.workflows.contract.messages import DataPart, Part
from tests.stores.examples import chunk


@dataclass(frozen=True)
class NextCall:
    """Another call writes; with `is_retry`, another attempt at the same one."""

    is_retry: bool


@dataclass(frozen=True)
class Drafted:
    """A model has shown a part of the next call."""

    mode: ChunkMode
    texts: Sequence[str]
    is_last: bool

    def chunks(self, artifact_id: str, position: int, attempt: int) -> list[ArtifactChunk]:
        return [
            chunk(
                text,
                artifact_id=artifact_id,
                position=position,
                attempt=attempt,
                index=index,
                mode=self.mode,
                last=self.is_last and index == len(self.texts) - 1,
            )
            for index, text in enumerate(self.texts)
        ]


@dataclass(frozen=True)
class Delete:
    """The artifact is deleted."""


Step = Change | NextCall | Drafted | Delete

_LETTER = "é".encode()
LARGE = [b"x" * 60_000, b"y" * 600_000]
CONTENTS = st.sampled_from([b"", b"a", b"b", _LETTER, _LETTER[:1], _LETTER[1:], b"\xff", *LARGE])
JSON_TEXTS = st.sampled_from(
    [b"1", b"true", b"[]", b"[1]", b"[1, 2]", b'{"a": 1}', b'"%s"' % (b"j" * 70_000)]
)
LINES = [b'{"a":1}\n', b'{"a":true}\n', b'{"b":"%s"}\n' % (b"r" * 60_000)]
ROWS = st.lists(st.sampled_from(LINES), max_size=3)
NAMES = st.sampled_from(["", "a.txt"])
FILE_TYPES = st.sampled_from(["text/plain", "application/json; charset=utf-8", "image/png", ""])
PARTS = (
    st.builds(NewPart, st.just("text"), CONTENTS, st.sampled_from(["", "text/markdown"]), NAMES)
    | st.builds(NewPart, st.just("file"), CONTENTS, FILE_TYPES, NAMES)
    | st.builds(NewPart, st.just("data"), JSON_TEXTS, st.just(""), NAMES)
    | st.just(NewPart("file", media_type="text/html", url="https://x.example/"))
    | st.builds(NewPart, st.just("rows"), ROWS.map(b"".join), st.just("application/x-ndjson"), NAMES)
)
PART_LISTS = st.lists(PARTS, max_size=3).map(tuple)
CREATES = st.builds(
    Create,
    st.just("task"),
    PART_LISTS,
    name=st.sampled_from(["", "Log"]),
    complete=st.booleans(),
    override=st.just(True),
)
APPENDS = st.builds(
    Append,
    CONTENTS,
    st.sampled_from([-1, -1, 0, 1]),
    last_chunk=st.booleans(),
    parts=st.just(()) | PART_LISTS,
) | ROWS.map(lambda rows: Append(b"".join(rows), rows=len(rows)))
ADDITIONS = st.builds(AddParts, PART_LISTS, st.booleans())
REPLACEMENTS = st.builds(Replace, st.integers(0, 2), PARTS)
DRAFTS = st.builds(
    Drafted,
    st.sampled_from(["draft", "extend"]),
    st.lists(st.sampled_from(["", "a", "b", "é"]), min_size=1, max_size=2),
    st.booleans(),
)
STEPS: st.SearchStrategy[Step] = (
    CREATES
    | APPENDS
    | APPENDS
    | ADDITIONS
    | REPLACEMENTS
    | st.just(Complete())
    | st.just(Fail())
    | st.builds(NextCall, st.booleans())
    | DRAFTS
    | st.just(Delete())
)


def with_lists_joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return parts with adjacent lists joined: rows are shown batch by batch."""
    joined: list[Part] = []
    for part in parts:
        before = joined[-1] if joined else None
        earlier, later = _list_in(before), _list_in(part)
        if before and earlier is not None and later is not None:
            joined[-1] = before.model_copy(update={"data": [*earlier, *later]})
        else:
            joined.append(part)
    return tuple(joined)


def _list_in(part: Part | None) -> list[JsonValue] | None:
    return part.data if isinstance(part, DataPart) and isinstance(part.data, list) else None

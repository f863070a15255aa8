"""Encodes events for the log, and decodes events and snapshots. Content may be encrypted."""

import json
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

from pydantic import JsonValue, TypeAdapter, ValidationError

from everloop.runtime.encryption.cipher import Cipher
from everloop.stores.log.forwarding import forwarded
from everloop.stores.log.log_types import ListedStatus, LoggedArtifact
from everloop.workflows.contract.events import (
    EVENT_ADAPTER,
    USAGE,
    ArtifactChunk,
    Narrated,
    Shown,
    StatusChanged,
    TaskCreated,
    TaskEvent,
)
from everloop.workflows.contract.fold import (
    FoldedView,
    LogEntry,
    TaskIdentity,
    fails_drafts,
    identity_of,
    microseconds,
    status_of,
    task_view,
)
from everloop.workflows.contract.messages import FilePart, Message, Part, UserMessage, text_of
from everloop.workflows.contract.names import quoted, root_task_id
from everloop.workflows.contract.parts import shorten
from everloop.workflows.contract.questions import Question
from everloop.workflows.contract.tasks import TaskView

ScriptArguments = list[str | int]

_VIEW: TypeAdapter[FoldedView] = TypeAdapter(FoldedView)

NO_VERSION = "-"
"""The word for content of an artifact without a version."""

_EMPTY = "="
"""The word for an empty name; no other name has it."""


class LogCodec:
    """Encodes and decodes the stored data of one task."""

    def __init__(self, task_id: str, cipher: Cipher) -> None:
        self._task_id = task_id
        self._cipher = cipher

    def append(self, events: Iterable[TaskEvent], *, follows: bool = True) -> ScriptArguments:
        """Return events as arguments of `append.lua`; `follows`: the view follows their run from now on."""
        return [word for event in events for word in self._event(event, follows=follows)]

    def creation(self, view: TaskView) -> ScriptArguments:
        """Return the event that creates a task."""
        status = {**self._status_fence(status_of(view)), "ids": "", "event": self._sealed(status_of(view))}
        fence = {"kind": "created", **self._static(view), "status": status}
        opening = self._cipher.seal_text(view.model_dump_json(), self._purpose)
        return [json.dumps(fence), self._sealed(TaskCreated()), opening, ""]

    def identification(self, view: TaskView) -> ScriptArguments:
        """Return the fence of a task whose static part is in a snapshot."""
        return [json.dumps({"kind": "created", **self._static(view)}), "", "", ""]

    def snapshot(self, view: FoldedView) -> str:
        """Return a snapshot as stored in Redis."""
        return self._cipher.seal_text(_VIEW.dump_json(view).decode(), self._purpose)

    def folded(self, kept: str | None) -> FoldedView:
        """Return the view of a snapshot; an empty view without a snapshot.

        Raises:
            EncryptionError: it cannot be decrypted.
        """
        return _VIEW.validate_json(self._cipher.unseal_text(kept, self._purpose)) if kept else FoldedView()

    def entry(self, fields: Mapping[str, str]) -> LogEntry:
        """Return an entry of the log.

        Raises:
            EncryptionError: it cannot be decrypted.
            ValidationError: its event is unknown to this version.
        """
        opening = fields.get("opening")
        begun = (
            TaskView.model_validate_json(self._cipher.unseal_text(opening, self._purpose))
            if opening
            else None
        )
        return LogEntry(fields.get("run", ""), self.event(fields.get("event", "")), begun)

    def event(self, kept: str) -> TaskEvent:
        """Return an event of the log.

        Raises:
            EncryptionError, ValidationError: as of `entry`.
        """
        return EVENT_ADAPTER.validate_json(self._cipher.unseal_text(kept, f"event {self._task_id}"))

    def status_view(self, identity: str | None, run: str | None, event: str | None) -> TaskView | None:
        """Return a task without history and artifacts from the head of its log; None if it is unknown there.

        Raises:
            EncryptionError: it cannot be decrypted.
        """
        if not (identity and event):
            return None
        said = self.event(event)
        if not isinstance(said, StatusChanged):
            return None
        known = TaskIdentity.model_validate_json(identity)
        return task_view(FoldedView(known, status=said, status_run=run or ""))

    def title(self, view: TaskView) -> str:
        """Return the stored title for its context if the task is the first one there."""
        said = next((message.parts for message in view.history if isinstance(message, UserMessage)), ())
        return seal_title(title_of(said), view.owner, view.context_id, self._cipher)

    def _event(self, event: TaskEvent, *, follows: bool) -> tuple[str, str, str, str]:
        match event:
            case StatusChanged():
                fence = {**self._status_fence(event), "follows": follows}
            case ArtifactChunk():
                fence = {**_chunk_fence(event), "follows": follows}
            case Narrated():
                fence = {"kind": "narration"}
            case _:
                fence = {"kind": "other"}
        return json.dumps(fence), self._sealed(event), "", self._forwarded(event)

    def _status_fence(self, status: StatusChanged) -> dict[str, JsonValue]:
        said = [status.message] if status.message and status.step == 0 else []
        listed = ListedStatus(
            version=status.version,
            state=status.state,
            at=microseconds(status.at),
            scopes=tuple(scopes_of(status.questions)),
        )
        fence: dict[str, JsonValue] = {
            "kind": "status",
            "rank": _rank(status.version, status.step),
            "version": status.version,
            "after": status.version if status.step else status.version - 1,
            "state": status.state.value,
            "listed": listed.model_dump_json(),
            "fails_drafts": fails_drafts(status.state),
            "ids": _ids([*status.received, *said]),
            **_shown(status.shows or Shown()),
        }
        return {**fence, "used": used} if (used := used_words(status)) else fence

    def _static(self, view: TaskView) -> dict[str, JsonValue]:
        return {
            "task": identity_of(view).model_dump_json(),
            "title": self.title(view),
            "ids": _ids(view.history),
        }

    def _forwarded(self, event: TaskEvent) -> str:
        if (told := forwarded(self._task_id, event)) is None:
            return ""
        # Texts may hold lone surrogates, which pydantic refuses to write.
        root = root_task_id(self._task_id)
        return self._cipher.seal_text(json.dumps(told.model_dump()), f"event {root}")

    def _sealed(self, event: TaskEvent) -> str:
        return self._cipher.seal_text(event.model_dump_json(), f"event {self._task_id}")

    @property
    def _purpose(self) -> str:
        return f"view {self._task_id}"


def _chunk_fence(chunk: ArtifactChunk) -> dict[str, JsonValue]:
    return {
        "kind": "chunk",
        "id": word(chunk.artifact_id),
        "mode": chunk.mode,
        "rank": _rank(chunk.position, chunk.attempt),
        "at": _rank(chunk.position),
        "index": chunk.index,
        "state": "complete" if chunk.last_chunk else "failed" if chunk.failed else "open",
        "version": chunk.version or NO_VERSION,
        "base": chunk.base,
    }


def _shown(shows: Shown) -> dict[str, JsonValue]:
    answer: dict[str, JsonValue] = {} if shows.answer is None else {"answer": _rank(shows.answer)}
    return {**answer, "artifacts": [word(artifact_id) for artifact_id in shows.artifacts]}


def logged_artifact(words: str) -> LoggedArtifact:
    """Return an artifact by its words in the head: rank, index of the next chunk, state, version, run."""
    rank, _, state, version, _ = words.split(" ", 4)
    position, attempt = (int(number) - 1 for number in rank.split("."))
    return LoggedArtifact(position, attempt, state, version)


def _rank(*numbers: int) -> str:
    """Return numbers of at least -1 as text that sorts like them."""
    return ".".join(f"{number + 1:016d}" for number in numbers)


def _ids(messages: Sequence[Message]) -> str:
    return "".join(f"{word(message.message_id)} " for message in messages)


MAX_TITLE = 80
"""Maximum length of a title made of a message, in characters."""


def title_of(parts: tuple[Part, ...]) -> str:
    """Return the first words of a message, or else names of its files."""
    files = (part.filename for part in parts if isinstance(part, FilePart))
    return shorten(text_of(parts).strip() or ", ".join(filter(None, files)), MAX_TITLE)


def seal_title(title: str, owner: str, context_id: str, cipher: Cipher) -> str:
    """Return the title of a context as it is stored."""
    return cipher.seal_text(json.dumps(title), title_purpose(owner, context_id)) if title else ""


def title_purpose(owner: str, context_id: str) -> str:
    """Return the purpose with which the title of a context is encrypted."""
    return f"title {quoted(owner)}:{quoted(context_id)}"


def scopes_of(questions: Iterable[Question]) -> list[str]:
    """Return the scopes whose holders are asked instead of the owner."""
    return sorted({question.approvers for question in questions if not question.is_for_owner})


def used_words(status: StatusChanged) -> str:
    """Return the usage of a task from a status, as words for the lists; empty if the status has none."""
    match status.metadata.get(USAGE):
        case {"inputTokens": int(read), "outputTokens": int(written), "cost": float() | int() | None as cost}:
            return f"{read} {written} {round((cost or 0) * 1e9)} {int(cost is None)}"
        case _:
            return ""


def word(name: str) -> str:
    """Return a name chosen by a client as a word of the script, without spaces."""
    return quoted(name) or _EMPTY


def unword(text: str) -> str:
    """Return the name of a word."""
    return "" if text == _EMPTY else unquote(text)


def is_of_unknown_kind(error: ValidationError) -> bool:
    """Return True if an event is of a kind of a newer version. Such events change no view."""
    return all(each["type"] == "union_tag_invalid" for each in error.errors(include_input=False))

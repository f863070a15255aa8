"""Translates events and views to the arguments of `task_views.lua`, and the fields of a view back."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from pydantic import BaseModel, TypeAdapter

from everloop.runtime.encryption.cipher import Cipher
from everloop.stores.views.interface import ViewArtifact
from everloop.stores.views.parts import (
    TaskIdentity,
    chunks_of,
    fails_drafts,
    forwarded,
    identity_of,
    is_at_work,
    microseconds,
    scopes_of,
    status_of,
    view_of,
)
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
from everloop.workflows.contract.messages import (
    FilePart,
    Message,
    Part,
    TextPart,
    UserMessage,
    is_plain,
    join_texts,
    text_of,
)
from everloop.workflows.contract.names import quoted, root_task_id
from everloop.workflows.contract.parts import shorten
from everloop.workflows.contract.payloads import HIDE_VALUES
from everloop.workflows.contract.tasks import Artifact, TaskView

ScriptArguments = list[str | int]

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message, config=HIDE_VALUES)
_PARSED_PART: TypeAdapter[Part] = TypeAdapter(Part, config=HIDE_VALUES)
_TEXT, _SEALED_TEXT, _PART = "t", "s", "d"

_SEALED_MESSAGE = '{"sealed":'
"""How an encrypted message begins. No other begins so."""

_EMPTY = "="
"""The word of an empty name, which no other is."""

_END = " "
"""Stands behind each encrypted text of a block."""


class _Label(BaseModel):
    """What an artifact is called."""

    name: str
    description: str


class _Draft(NamedTuple):
    """What `task_views.lua` keeps of a draft, besides its blocks."""

    position: int
    attempt: int
    blocks: int
    complete: bool
    failed: bool
    label: str


class ViewCodec:
    """Encodes and decodes what Redis keeps of one task. Content is encrypted, if anything is."""

    def __init__(self, task_id: str, cipher: Cipher) -> None:
        self._task_id = task_id
        self._cipher = cipher

    def events(self, events: Iterable[TaskEvent]) -> ScriptArguments:
        """Return the arguments of the operation `publish`."""
        arguments: ScriptArguments = []
        for event in events:
            match event:
                case StatusChanged():
                    arguments += ["status", *self.status(event)]
                case ArtifactChunk():
                    arguments += ["chunk", *self._chunk(event)]
                case Narrated():
                    arguments += ["narration", *self._event(event)]
                case _:
                    arguments += ["other", *self._event(event)]
        return arguments

    def creation(self, view: TaskView) -> ScriptArguments:
        """Return the arguments of the operation `create`."""
        return [
            seal_event(TaskCreated().model_dump_json(), self._task_id, self._cipher),
            *self.status(status_of(view)),
            *self._messages(view.history),
            identity_of(view).model_dump_json(),
            self.title(view),
        ]

    def restoration(self, view: TaskView) -> ScriptArguments:
        """Return the arguments of the operation `restore`."""
        artifacts = [chunks for artifact in view.artifacts if (chunks := chunks_of(artifact))]
        arguments: ScriptArguments = [
            int(is_at_work(view.status.state)),  # a model may be writing a draft
            *self.status(status_of(view)),
            *self._messages(view.history),
            identity_of(view).model_dump_json(),
            self.title(view),
            len(artifacts),
        ]
        for chunks in artifacts:
            arguments.append(len(chunks))
            for chunk in chunks:
                arguments += self._chunk(chunk)
        return arguments

    def status(self, status: StatusChanged) -> ScriptArguments:
        """Return the arguments of the operation `end`."""
        return [
            *self._event(status),
            status.version,
            status.step,
            status.state.value,
            int(fails_drafts(status.state)),
            microseconds(status.at),
            *(self._message(status.message) if status.message else ("", "")),
            *self._messages(status.received),
            " ".join(scopes_of(status.questions)),
            used_words(status),
            *_shown_words(status.shows or Shown()),
        ]

    def view(self, fields: Mapping[str, str], history: Iterable[str]) -> TaskView | None:
        """Return the view that these fields and history entries make, None if the static part is missing.

        Raises:
            EncryptionError: they cannot be decrypted.
        """
        if "task" not in fields:
            return None
        return view_of(
            TaskIdentity.model_validate_json(fields["task"]),
            fields["status_run"],
            StatusChanged.model_validate_json(
                self._cipher.unseal_text(fields["status"], _event_purpose(self._task_id))
            ),
            [_MESSAGE.validate_json(self._unsealed_message(message)) for message in history],
            self._artifacts(fields),
        )

    def artifact(self, artifact_id: str, kept: str, blocks: Iterable[str]) -> ViewArtifact:
        """Return the artifact that a draft and its blocks make.

        Raises:
            EncryptionError: they cannot be decrypted.
        """
        draft = _parsed_draft(kept)
        return ViewArtifact(self._artifact(artifact_id, draft, blocks), draft.position, draft.attempt)

    def streamed(self, entry: Mapping[str, str]) -> TaskEvent:
        """Return an event of the stream.

        Raises:
            EncryptionError: it cannot be decrypted.
            ValidationError: this version does not know it.
        """
        text = self._cipher.unseal_text(entry.get("event", ""), _event_purpose(self._task_id))
        if part := entry.get("part"):
            text = f'{text[:-1]},"part":{self._decoded_part(part).model_dump_json()}}}'
        return EVENT_ADAPTER.validate_json(text)

    def title(self, view: TaskView) -> str:
        """Return what its context is called if it is the first task there, as it is kept."""
        said = next((message.parts for message in view.history if isinstance(message, UserMessage)), ())
        return seal_title(title_of(said), view.owner, view.context_id, self._cipher)

    def _event(self, event: TaskEvent, *, exclude: set[str] | None = None) -> tuple[str, str]:
        """Return the event for the stream of its task, and what that of the client's task gets of it."""
        forwarding = forwarded(self._task_id, event)
        sealed = seal_event(event.model_dump_json(exclude=exclude), self._task_id, self._cipher)
        if not forwarding:
            return sealed, ""
        # Texts may hold lone surrogates, which pydantic refuses to write.
        return sealed, seal_event(
            json.dumps(forwarding.model_dump()), root_task_id(self._task_id), self._cipher
        )

    def _messages(self, messages: Sequence[Message]) -> ScriptArguments:
        return [len(messages), *(each for message in messages for each in self._message(message))]

    def _message(self, message: Message) -> tuple[str, str]:
        text = message.model_dump_json()
        if self._cipher.is_on:
            text = json.dumps({"sealed": self._cipher.seal_text(text, self._purpose)}, separators=(",", ":"))
        return word(message.message_id), text

    def _unsealed_message(self, kept: str) -> str:
        if not kept.startswith(_SEALED_MESSAGE):
            return kept
        return self._cipher.unseal_text(json.loads(kept)["sealed"], self._purpose)

    def _chunk(self, chunk: ArtifactChunk) -> ScriptArguments:
        return [
            *self._event(chunk, exclude={"part"}),
            word(chunk.artifact_id),
            self._label(chunk),
            chunk.mode,
            chunk.position,
            chunk.attempt,
            chunk.index,
            int(chunk.last_chunk),
            int(chunk.failed),
            self._part(chunk.part),
        ]

    def _label(self, chunk: ArtifactChunk) -> str:
        """Return name and description; the script uses those of first chunks."""
        if chunk.index:
            return ""
        label = _Label(name=chunk.name, description=chunk.description).model_dump_json()
        return self._cipher.seal_text(label, self._purpose)

    def _part(self, part: Part) -> str:
        if isinstance(part, TextPart) and is_plain(part):
            if not (part.text and self._cipher.is_on):
                return _TEXT + part.text
            return _SEALED_TEXT + self._cipher.seal_text(part.text, self._purpose) + _END
        return _PART + self._cipher.seal_text(part.model_dump_json(), self._purpose)

    def _artifacts(self, fields: Mapping[str, str]) -> list[Artifact]:
        artifacts: list[Artifact] = []
        for id_ in fields.get("drafts", "").split():
            if (kept := fields.get(f"artifact:{id_}")) is not None:
                draft = _parsed_draft(kept)
                blocks = [fields[f"block:{number}:{id_}"] for number in range(1, draft.blocks)]
                artifacts.append(self._artifact(unword(id_), draft, [*blocks, fields[f"tail:{id_}"]]))
        return artifacts

    def _artifact(self, artifact_id: str, draft: _Draft, blocks: Iterable[str]) -> Artifact:
        label = _Label.model_validate_json(self._cipher.unseal_text(draft.label, self._purpose))
        return Artifact(
            artifact_id=artifact_id,
            name=label.name,
            description=label.description,
            parts=join_texts(map(self._decoded_part, blocks)),
            complete=draft.complete,
            failed=draft.failed,
        )

    def _decoded_part(self, block: str) -> Part:
        kind, content = block[0], block[1:]
        if kind == _TEXT:
            return TextPart(text=content)
        if kind == _SEALED_TEXT:
            texts = (self._cipher.unseal_text(text, self._purpose) for text in content.split())
            return TextPart(text="".join(texts))
        return _PARSED_PART.validate_json(self._cipher.unseal_text(content, self._purpose))

    @property
    def _purpose(self) -> str:
        return f"view {self._task_id}"


def history_of(fields: Mapping[str, str], later: Sequence[str], newest: int | None) -> list[str]:
    """Return the newest messages (None: all) of a view, as it is kept: the first may stand in a field."""
    begun = fields.get("begun")
    messages = [*(begun.split("\n") if begun else ()), *later]
    return messages if newest is None else messages[len(messages) - min(newest, len(messages)) :]


def seal_event(json_text: str, task_id: str, cipher: Cipher) -> str:
    """Return what the stream of a task keeps of an event."""
    return cipher.seal_text(json_text, _event_purpose(task_id))


MAX_TITLE = 80
"""Characters of a title that is made of a message."""


def title_of(parts: tuple[Part, ...]) -> str:
    """Return the first words of a message, or else names of its files."""
    files = (part.filename for part in parts if isinstance(part, FilePart))
    return shorten(text_of(parts).strip() or ", ".join(filter(None, files)), MAX_TITLE)


def seal_title(title: str, owner: str, context_id: str, cipher: Cipher) -> str:
    """Return what is kept of the title of a context."""
    return cipher.seal_text(json.dumps(title), title_purpose(owner, context_id)) if title else ""


def title_purpose(owner: str, context_id: str) -> str:
    """Name what the title of a context is encrypted for."""
    return f"title {quoted(owner)}:{quoted(context_id)}"


def _shown_words(shows: Shown) -> ScriptArguments:
    """Return what a view shows besides a status, as the script looks for it."""
    return ["" if shows.answer is None else shows.answer, len(shows.artifacts), *map(word, shows.artifacts)]


def used_words(status: StatusChanged) -> str:
    """Return what a task has used by a status, as the script counts it; empty where it does not say."""
    match status.metadata.get(USAGE):
        case {"inputTokens": int(read), "outputTokens": int(written), "cost": float() | int() | None as cost}:
            return f"{read} {written} {round((cost or 0) * 1e9)} {int(cost is None)}"
        case _:
            return ""


def word(name: str) -> str:
    """Return a name that clients choose as a word of the script, without spaces."""
    return quoted(name) or _EMPTY


def unword(text: str) -> str:
    """Return the name of a word."""
    return "" if text == _EMPTY else unquote(text)


def _event_purpose(task_id: str) -> str:
    return f"event {task_id}"


def is_complete(kept: str) -> bool:
    """Whether a draft is, as `task_views.lua` keeps it."""
    return _parsed_draft(kept).complete


def _parsed_draft(kept: str) -> _Draft:
    numbers, _, label = kept.partition("\n")
    position, attempt, _, blocks, complete, failed, _ = numbers.split(" ", 6)
    return _Draft(int(position), int(attempt), int(blocks), complete == "1", failed == "1", label)

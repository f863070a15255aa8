"""Answers of a peer's completed task, for the model."""

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import cast

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue

from everloop.agents.peer.connection import Connection
from everloop.agents.peer.errors import PeerError
from everloop.agents.tool_context import ToolContext
from everloop.runtime.protocol.tasks import to_data
from everloop.workflows.contract.events import RESPONSE_ARTIFACT
from everloop.workflows.contract.messages import DataPart, FilePart, Part, TextPart
from everloop.workflows.contract.parts import essence, filename_problem, media_type_problem, url_problem

# Parts of messages to and from a peer.

MAX_SENT = 10 * 1024 * 1024
"""Maximum bytes of all files of one request."""


def value_part(value: JsonValue) -> pb.Part:
    """Return a part with a value: text as text, anything else as data."""
    return pb.Part(text=value) if isinstance(value, str) else to_data(value)


def value_of(part: pb.Part) -> JsonValue:
    """Return the value of a data part. Protobuf has no integers; whole numbers become integers again."""
    return _with_integers(cast("JsonValue", MessageToDict(part.data)))


def joined(parts: Iterable[pb.Part]) -> list[pb.Part]:
    """Return the parts of an artifact with consecutive texts joined: they were appended as pieces."""
    whole: list[pb.Part] = []
    for part in parts:
        if whole and _is_plain(part) and _is_plain(whole[-1]):
            whole[-1] = pb.Part(text=whole[-1].text + part.text, media_type=whole[-1].media_type)
        else:
            whole.append(part)
    return whole


def text_of(parts: Sequence[pb.Part]) -> str:
    """Return the texts of a message or an artifact, data as JSON, without files."""
    texts = (
        json.dumps(value_of(part), ensure_ascii=False) if part.HasField("data") else part.text
        for part in parts
    )
    return "\n".join(filter(None, texts))


def words_of(message: pb.Message) -> str:
    """Return only the texts of a message: data beside them repeat it for programs."""
    return "\n".join(part.text for part in message.parts if part.text.strip()) or text_of(message.parts)


async def file_parts(call: ToolContext, artifact_ids: Sequence[str]) -> list[pb.Part]:
    """Return the content of artifacts as parts of a message.

    Raises:
        PeerError: they are too large to be sent.
        ArtifactError: an artifact does not exist.
    """
    parts: list[pb.Part] = []
    left = MAX_SENT
    for artifact_id in artifact_ids:
        for part in (await call.artifacts.get(artifact_id)).parts:
            if part.url:
                parts.append(pb.Part(url=part.url, media_type=part.media_type, filename=part.filename))
                continue
            content = bytearray()
            async for piece in call.artifacts.read(artifact_id, part.index):
                content += piece
                if len(content) > left:
                    raise PeerError(
                        f"with {artifact_id!r} the files have more than {MAX_SENT:,} bytes; send fewer"
                    )
            left -= len(content)
            parts.append(_stored(bytes(content), part.kind, part.media_type, part.filename or artifact_id))
    return parts


def _stored(content: bytes, kind: str, media_type: str, filename: str) -> pb.Part:
    if kind == "data":
        part = value_part(json.loads(content))
    elif kind == "text":
        part = pb.Part(text=content.decode())
    else:
        part = pb.Part(raw=content)
    part.media_type, part.filename = media_type or part.media_type, filename
    return part


def _is_plain(part: pb.Part) -> bool:
    is_text = essence(part.media_type) in {"", "text/plain"}
    return is_text and part == pb.Part(text=part.text, media_type=part.media_type)


def _with_integers(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Import of the artifacts of a peer's task.

MAX_ARTIFACTS = 50
MAX_PARTS = 200
MAX_FILE = 32 * 1024 * 1024
"""Maximum bytes of a file that is fetched from a peer; a larger one is not copied."""

_MAX_NAME, _MAX_DESCRIPTION = 1_000, 10_000
_ANY_MEDIA_TYPE = "application/octet-stream"


async def import_artifacts(
    connection: Connection, task: pb.Task, call: ToolContext, prefix: str
) -> list[str]:
    """Write the artifacts of a task, except its answer, under ids that are the same for every attempt.

    Return each one's id, its name, and why some of its content was not copied. A file on the peer's own
    server is fetched; one on another server stays an address, for it could lead anywhere, and the
    credentials are for the peer alone.
    """
    taken = [one for one in task.artifacts if one.artifact_id != RESPONSE_ARTIFACT or has_files(one)]
    return [
        await _Import(connection, call, artifact, _id_of(task.id, artifact.artifact_id, prefix)).run()
        for artifact in taken[:MAX_ARTIFACTS]
    ]


def has_files(artifact: pb.Artifact) -> bool:
    """Return True if it contains more than text."""
    return any(part.HasField("raw") or part.HasField("url") for part in artifact.parts)


class _Import:
    """Writes one artifact."""

    def __init__(
        self, connection: Connection, call: ToolContext, artifact: pb.Artifact, artifact_id: str
    ) -> None:
        self._connection = connection
        self._call = call
        self._artifact = artifact
        self._id = artifact_id
        self._name = "".join(filter(str.isprintable, artifact.name))[:_MAX_NAME]
        self._description = artifact.description[:_MAX_DESCRIPTION]
        self._left = ""

    async def run(self) -> str:
        whole = joined(self._artifact.parts)
        parts = whole[:MAX_PARTS]
        if len(parts) < len(whole):
            self._left = f"only the first {MAX_PARTS} parts were taken"
        if not (len(parts) == 1 and self._is_fetched(parts[0]) and await self._stream(parts[0])):
            made = [part for part in [await self._part(each) for each in parts] if part]
            await self._call.artifacts.create(self._id, made, name=self._name, description=self._description)
        named = f"{self._id} ({self._name})" if self._name else self._id
        return f"{named}: {self._left}" if self._left else named

    def _is_fetched(self, part: pb.Part) -> bool:
        return bool(part.url) and self._connection.is_own(part.url)

    async def _stream(self, part: pb.Part) -> bool:
        """Write a file while it is fetched, of any length; return whether that succeeded."""
        try:
            await self._call.artifacts.write_file(
                self._id,
                self._fetched(part.url),
                media_type=_media_type(part),
                filename=_filename(part),
                name=self._name,
                description=self._description,
            )
        except PeerError as error:
            self._left = f"its file could not be fetched ({error})"
            return False
        return True

    async def _part(self, part: pb.Part) -> Part | None:
        media_type, filename = _media_type(part), _filename(part)
        if part.HasField("data"):
            return DataPart(data=value_of(part), media_type=media_type, filename=filename)
        if part.HasField("raw"):
            return _file(part.raw, media_type, filename)
        if part.HasField("url"):
            return await self._file_behind(part, media_type, filename)
        return TextPart(text=part.text, media_type=media_type, filename=filename)

    async def _file_behind(self, part: pb.Part, media_type: str, filename: str) -> Part | None:
        if self._is_fetched(part) and not self._left:
            try:
                content = b"".join([piece async for piece in self._fetched(part.url)])
            except PeerError as error:
                self._left = f"a file could not be fetched ({error})"
            else:
                return _file(content, media_type, filename)
        if url_problem(part.url):
            self._left = "a file of it has no usable address"
            return None
        return FilePart(url=part.url, media_type=media_type or _ANY_MEDIA_TYPE, filename=filename)

    async def _fetched(self, url: str) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._connection.download(url):
            size += len(piece)
            if size > MAX_FILE:
                raise PeerError(f"it has more than {MAX_FILE:,} bytes")
            yield piece


def _file(content: bytes, media_type: str, filename: str) -> FilePart:
    encoded = base64.b64encode(content).decode()
    return FilePart(
        content=encoded, media_type=media_type or _ANY_MEDIA_TYPE, filename=filename, size=len(content)
    )


def _id_of(task_id: str, artifact_id: str, prefix: str) -> str:
    """Return an id that no other task has, and that people may still recognise."""
    digest = hashlib.sha256(f"{task_id}/{artifact_id}".encode()).hexdigest()[:12]
    shown = re.sub(r"[^A-Za-z0-9_-]+", "-", artifact_id)[:60].strip("-")
    return "-".join(filter(None, (prefix, shown, digest)))


def _media_type(part: pb.Part) -> str:
    return "" if media_type_problem(part.media_type) else part.media_type


def _filename(part: pb.Part) -> str:
    return "" if filename_problem(part.filename) else part.filename


MAX_INLINE = 50_000
"""Maximum characters of all artifacts except the answer that the model gets at once."""

_REST = "the artifact that was taken over has all of it"


def answer_of(task: pb.Task, imported: Sequence[str]) -> str:
    """Return the answer: the text of the artifacts, then the last status; without both, the last message.

    Imported artifacts, and the context for later calls, are listed after it.
    """
    said = [*_artifact_texts(task), words_of(task.status.message)]
    texts = list(dict.fromkeys(filter(None, (text.strip() for text in said))))
    lines = ["\n\n".join(texts) or _last_message(task) or "(the agent has said nothing)"]
    if imported:
        lines.append("Artifacts: " + "; ".join(imported))
    if len(imported) == MAX_ARTIFACTS < len(task.artifacts):
        lines.append(f"(only the first {MAX_ARTIFACTS} artifacts were taken over)")
    return "\n\n".join([*lines, _context(task.context_id)]).strip()


def message_answer(message: pb.Message) -> str:
    """Return the answer of a peer that replied with a message instead of a task."""
    text = text_of(message.parts).strip() or "(the agent has said nothing)"
    return f"{text}\n\n{_context(message.context_id)}".strip()


def reason_of(task: pb.Task) -> str:
    """Return the peer's reason for the failure of a task."""
    return words_of(task.status.message).strip() or "it gave no reason"


def _artifact_texts(task: pb.Task) -> Iterator[str]:
    left = MAX_INLINE
    for artifact in task.artifacts:
        text = text_of(joined(artifact.parts))
        if artifact.artifact_id == RESPONSE_ARTIFACT:
            yield text
        else:
            yield text if len(text) <= left else f"{text[:left]}\n(cut; {_REST})"
            left = max(0, left - len(text))


def _last_message(task: pb.Task) -> str:
    said = [text_of(one.parts).strip() for one in task.history if one.role == pb.Role.ROLE_AGENT]
    return said[-1] if said else ""


def _context(context_id: str) -> str:
    return f"(context: {context_id})" if context_id else ""

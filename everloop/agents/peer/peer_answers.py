"""Answers of a peer's completed task, for the model."""

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence

from a2a.types import a2a_pb2 as pb
from pydantic import JsonValue

from everloop.agents.peer.peer_connection import PeerConnection
from everloop.agents.peer.peer_errors import PeerError, text_of_error
from everloop.agents.tool_context import ToolContext
from everloop.client.content import Artifact, text_of
from everloop.client.content import Part as PeerPart
from everloop.client.errors import ClientError, InvalidError
from everloop.client.fold import RESPONSE, Task
from everloop.runtime.protocol.a2a_tasks import to_data
from everloop.workflows.contract.messages import DataPart, FilePart, Part, TextPart
from everloop.workflows.contract.parts import filename_problem, media_type_problem, url_problem

# Parts of messages to and from a peer.

MAX_SENT = 10 * 1024 * 1024
"""Maximum bytes of all files of one request."""


def value_part(value: JsonValue) -> pb.Part:
    """Return a part with a value: text as text, anything else as data."""
    return pb.Part(text=value) if isinstance(value, str) else to_data(value)


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


# Import of the artifacts of a peer's task.

MAX_ARTIFACTS = 50
MAX_PARTS = 200
MAX_FILE = 32 * 1024 * 1024
"""Maximum bytes of a file that is fetched from a peer; a larger one is not copied."""

_MAX_NAME, _MAX_DESCRIPTION = 1_000, 10_000
_ANY_MEDIA_TYPE = "application/octet-stream"


async def import_artifacts(
    connection: PeerConnection, task: Task, call: ToolContext, prefix: str
) -> list[str]:
    """Write the artifacts of a task, except its answer, under ids that are the same for every attempt.

    Return each one's id, its name, and why some of its content was not copied. A file on the peer's own
    server is fetched; one on another server stays an address, for it could lead anywhere, and the
    credentials are for the peer alone.
    """
    taken = [one for one in task.artifacts.values() if one.id != RESPONSE or _has_files(one)]
    return [
        await _Import(connection, call, artifact, _id_of(task.id, artifact.id, prefix)).run()
        for artifact in taken[:MAX_ARTIFACTS]
        if task.id
    ]


def _has_files(artifact: Artifact) -> bool:
    return any(part.raw is not None or part.url is not None for part in artifact.parts)


class _Import:
    """Writes one artifact."""

    def __init__(
        self, connection: PeerConnection, call: ToolContext, artifact: Artifact, artifact_id: str
    ) -> None:
        self._connection = connection
        self._call = call
        self._artifact = artifact
        self._id = artifact_id
        self._name = "".join(filter(str.isprintable, artifact.name))[:_MAX_NAME]
        self._description = artifact.description[:_MAX_DESCRIPTION]
        self._left = ""

    async def run(self) -> str:
        parts = self._artifact.parts[:MAX_PARTS]
        if len(parts) < len(self._artifact.parts):
            self._left = f"only the first {MAX_PARTS} parts were taken"
        if not (len(parts) == 1 and self._is_fetched(parts[0]) and await self._stream(parts[0])):
            made = [part for part in [await self._part(each) for each in parts] if part]
            await self._call.artifacts.create(self._id, made, name=self._name, description=self._description)
        named = f"{self._id} ({self._name})" if self._name else self._id
        return f"{named}: {self._left}" if self._left else named

    def _is_fetched(self, part: PeerPart) -> bool:
        return bool(part.url) and self._connection.is_own(part.url or "")

    async def _stream(self, part: PeerPart) -> bool:
        """Write a file while it is fetched, of any length; return whether that succeeded."""
        try:
            await self._call.artifacts.write_file(
                self._id,
                self._fetched(part.url or ""),
                media_type=_media_type(part),
                filename=_filename(part),
                name=self._name,
                description=self._description,
            )
        except ClientError as error:
            self._left = f"its file could not be fetched ({text_of_error(error)})"
            return False
        return True

    async def _part(self, part: PeerPart) -> Part | None:
        media_type, filename = _media_type(part), _filename(part)
        if part.text is not None:
            return TextPart(text=part.text, media_type=media_type, filename=filename)
        if part.raw is not None:
            return _file(part.raw, media_type, filename)
        if part.url is not None:
            return await self._file_behind(part, part.url, media_type, filename)
        return DataPart(data=part.data, media_type=media_type, filename=filename)

    async def _file_behind(self, part: PeerPart, url: str, media_type: str, filename: str) -> Part | None:
        if self._is_fetched(part) and not self._left:
            try:
                content = b"".join([piece async for piece in self._fetched(url)])
            except ClientError as error:
                self._left = f"a file could not be fetched ({text_of_error(error)})"
            else:
                return _file(content, media_type, filename)
        if url_problem(url):
            self._left = "a file of it has no usable address"
            return None
        return FilePart(url=url, media_type=media_type or _ANY_MEDIA_TYPE, filename=filename)

    async def _fetched(self, url: str) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._connection.download(url):
            size += len(piece)
            if size > MAX_FILE:
                raise InvalidError(f"it has more than {MAX_FILE:,} bytes")
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


def _media_type(part: PeerPart) -> str:
    return "" if media_type_problem(part.media_type) else part.media_type


def _filename(part: PeerPart) -> str:
    return "" if filename_problem(part.filename) else part.filename


MAX_INLINE = 50_000
"""Maximum characters of all artifacts except the answer that the model gets at once."""

_REST = "the artifact that was taken over has all of it"


def answer_of(task: Task, imported: Sequence[str]) -> str:
    """Return the answer: the text of the artifacts, then the last status; without both, the last message.

    Imported artifacts, and the context for later calls, are listed after it.
    """
    said = [*_artifact_texts(task), text_of(task.status.message.parts)]
    texts = list(dict.fromkeys(filter(None, (text.strip() for text in said))))
    lines = ["\n\n".join(texts) or task.last_words.strip() or "(the agent has said nothing)"]
    if imported:
        lines.append("Artifacts: " + "; ".join(imported))
    if len(imported) == MAX_ARTIFACTS < len(task.artifacts):
        lines.append(f"(only the first {MAX_ARTIFACTS} artifacts were taken over)")
    context = f"(context: {task.context_id})" if task.context_id else ""
    return "\n\n".join([*lines, context]).strip()


def reason_of(task: Task) -> str:
    """Return the peer's reason for the failure of a task."""
    return text_of(task.status.message.parts).strip() or "it gave no reason"


def _artifact_texts(task: Task) -> Iterator[str]:
    left = MAX_INLINE
    for artifact in task.artifacts.values():
        text = "\n".join(filter(None, map(_text_in, artifact.parts)))
        if artifact.id == RESPONSE:
            yield text
        else:
            yield text if len(text) <= left else f"{text[:left]}\n(cut; {_REST})"
            left = max(0, left - len(text))


def _text_in(part: PeerPart) -> str:
    return json.dumps(part.data, ensure_ascii=False) if part.is_data else part.text or ""

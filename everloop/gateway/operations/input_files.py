"""Files of messages, stored before their task receives the message."""

import base64
from collections.abc import Mapping, Sequence

import structlog

from everloop.gateway.errors import STORE_FAILURES
from everloop.gateway.requests.incoming_parts import InputFile
from everloop.runtime.blobs import BlobError
from everloop.runtime.protocol.a2a_tasks import newest
from everloop.stores.artifacts.artifact_errors import ArtifactError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.rendering import RENDERED_BYTES, RENDERED_PART_BYTES
from everloop.workflows.contract.messages import FilePart, Message
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskView

SHOWN_FILES = 50
"""Maximum number of files with content in one history, the newest first."""

_Place = tuple[str, int]
"""Position of a part: the id of its message, and its index."""

_log = structlog.get_logger()


class InputFiles:
    """Stores the files of messages as artifacts of their context."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    async def store(self, files: Sequence[InputFile], context_id: str, task_id: str) -> None:
        """Store files for a task; `context_id` is the key of its context. Stored files are left unchanged.

        Without a task, after a crash, they expire with their time to live.
        """
        for file in files:
            await self._artifacts.keep_input(context_id, file.artifact_id, file.part, task_id)

    async def with_contents(self, view: TaskView, history_length: int | None = None) -> TaskView:
        """Return the view with the content of small files in its newest messages.

        Their total is limited to the size of an inline artifact, however often a file occurs. If the
        store is unavailable, files are shown as URLs.
        """
        messages = newest(view, history_length)
        contents = await self._contents(context_key(view.owner, view.context_id), messages)
        if not contents:
            return view
        filled = tuple(_with_contents(message, contents) for message in messages)
        return view.model_copy(update={"history": (*view.history[: -len(messages)], *filled)})

    async def _contents(self, context_id: str, messages: Sequence[Message]) -> dict[_Place, str]:
        """Return the small files of the newest messages, in base64. Each is read once."""
        contents: dict[_Place, str] = {}
        read: dict[str, str] = {}
        room = RENDERED_BYTES
        for place, artifact_id, size in _small_files(messages):
            if len(contents) == SHOWN_FILES or size > room:
                break
            if artifact_id not in read:
                try:
                    pieces = [piece async for piece in self._artifacts.read_part(context_id, artifact_id)]
                except (ArtifactError, BlobError, *STORE_FAILURES) as error:
                    _log.debug("file shown as a URL", artifact_id=artifact_id, error=type(error).__name__)
                    break
                read[artifact_id] = base64.b64encode(b"".join(pieces)).decode()
            contents[place] = read[artifact_id]
            room -= size
        return contents


def _small_files(messages: Sequence[Message]) -> list[tuple[_Place, str, int]]:
    """Return position, id and size of files that are small enough to be inline, the newest first."""
    return [
        ((message.message_id, index), part.stored.artifact_id, part.size)
        for message in reversed(messages)
        for index, part in enumerate(message.parts)
        if isinstance(part, FilePart) and part.stored
        if part.size is not None and part.size <= RENDERED_PART_BYTES
    ]


def _with_contents(message: Message, contents: Mapping[_Place, str]) -> Message:
    parts = list(message.parts)
    for index, part in enumerate(parts):
        if (content := contents.get((message.message_id, index))) is not None:
            parts[index] = part.model_copy(update={"content": content, "stored": None})
    return message.model_copy(update={"parts": tuple(parts)})

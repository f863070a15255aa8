"""Reads the files that clients sent along, for the model."""

from collections.abc import Sequence

import structlog
from temporalio.exceptions import ApplicationError

from everloop.activities.artifact_patience import AWAY
from everloop.activities.file_parts import MAX_TEXT_FILE, Place, ReadFiles, is_wanted, place_of
from everloop.runtime.blobs import BlobCorruptError, BlobMissingError
from everloop.stores.artifacts.interface import ArtifactError, Artifacts
from everloop.workflows.contract.failures import FILES_UNAVAILABLE
from everloop.workflows.contract.messages import FilePart, StoredPart, TranscriptMessage, UserMessage
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.parts import is_named
from everloop.workflows.contract.tasks import TaskRef

MAX_MESSAGE_BYTES = 20_000_000
"""How much of the files of one message the model gets; of those beyond it, it is only told."""

MAX_REQUEST_BYTES = 50_000_000
"""How much of all files one request carries, those of the newest messages first."""

_UNAVAILABLE = "the files that the client sent cannot be read now"

_log = structlog.get_logger()


class FileReader:
    """Reads from the context of a task what a model that takes some media types gets of its files."""

    def __init__(self, artifacts: Artifacts, task: TaskRef, takes: Sequence[str]) -> None:
        self._artifacts = artifacts
        self._context = context_key(task.owner, task.context_id)
        self._takes = takes
        self._contents: dict[Place, bytes | None] = {}

    async def read(self, messages: Sequence[TranscriptMessage]) -> ReadFiles:
        """Return what was read; a file that is gone is known to be gone.

        Raises:
            ApplicationError: of type FILES_UNAVAILABLE; a store does not answer.
        """
        room = MAX_REQUEST_BYTES
        try:
            for message in reversed(messages):
                if isinstance(message, UserMessage):
                    room -= await self._read_message(message, min(room, MAX_MESSAGE_BYTES))
        except AWAY as error:
            _log.warning("files not read", error_type=type(error).__name__)
            # The error's own text would tell the history of the workflow where the store is.
            raise ApplicationError(_UNAVAILABLE, type=FILES_UNAVAILABLE) from None
        return ReadFiles(self._takes, self._contents)

    async def _read_message(self, message: UserMessage, room: int) -> int:
        """Read what there is room for; return how much that is."""
        left = room
        for part in message.parts:
            if isinstance(part, FilePart) and part.stored and is_wanted(part, self._takes):
                most = left if is_named(part.media_type, self._takes) else min(left, MAX_TEXT_FILE)
                left -= await self._read_file(part.stored, most)
        return room - left

    async def _read_file(self, stored: StoredPart, most: int) -> int:
        place = place_of(stored)
        if place not in self._contents:  # it may have been sent twice
            try:
                content = await self._content(stored, most)
            except (ArtifactError, BlobMissingError, BlobCorruptError):
                self._contents[place] = None
            else:
                if content is not None:
                    self._contents[place] = content
        return len(self._contents.get(place) or b"")

    async def _content(self, stored: StoredPart, most: int) -> bytes | None:
        """Return the content, None if it is too large."""
        content = bytearray()
        pieces = self._artifacts.read_part(self._context, stored.artifact_id, stored.index, end=most + 1)
        async for piece in pieces:
            content += piece
        return bytes(content) if len(content) <= most else None

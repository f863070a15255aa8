"""Artifacts stored by an Everloop, of all agents (docs/agents/artifacts.md#downloads)."""

from datetime import datetime
from urllib.parse import quote

from pydantic import JsonValue

from everloop.client.content import Part
from everloop.client.extension.extension_calls import ExtensionCalls, ExtensionResponse, read


class StoredPart(ExtensionResponse):
    """Description of a part of an artifact. For its content, give `part` to `Client.download` or `save`."""

    index: int
    kind: str
    """text, data, file or rows."""
    media_type: str = ""
    filename: str = ""
    size: int | None = None
    """In bytes."""
    rows: int | None = None
    """Of a dataset."""
    row_schema: dict[str, JsonValue] | None = None
    url: str = ""

    @property
    def part(self) -> Part:
        """The part for `Client.download`, `read` and `save`."""
        return Part(url=self.url, media_type=self.media_type, filename=self.filename)


class StoredArtifact(ExtensionResponse):
    """An artifact, without its content."""

    artifact_id: str
    context_id: str = ""
    task_id: str = ""
    name: str = ""
    description: str = ""
    status: str = ""
    """building, complete or failed."""
    is_input: bool = False
    """A file of a message."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    completed_at: datetime | None = None
    parts: list[StoredPart] = []


class StoredCalls(ExtensionCalls):
    """The part of `Client` for stored artifacts."""

    async def stored_artifacts(self, context_id: str, *, task_id: str = "") -> list[StoredArtifact]:
        """Return the artifacts of a conversation, oldest first: of all agents, with the files of messages.

        Args:
            context_id: The conversation.
            task_id: Only those of this task.

        Raises:
            ExtensionMissingError: the server is not an Everloop.
        """
        url = await self._connection.own(f"/artifacts/{quote(context_id, safe='')}")
        answer = await self._connection.ask("GET", url, query={"taskId": task_id})
        return [read(StoredArtifact, each) for each in answer.get("artifacts", [])]

"""Conversations, their retention, and deletion."""

from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from types import EllipsisType

from pydantic import JsonValue

from everloop.client.errors import InvalidError
from everloop.client.extension.extension_calls import ExtensionCalls, ExtensionResponse, read
from everloop.client.extension.history_calls import TotalUsage, TranscriptMessage
from everloop.client.extension.stored_artifacts import StoredArtifact
from everloop.workflows.contract.http_extension import Address


class Context(ExtensionResponse):
    """A conversation: all tasks of a context."""

    id: str
    title: str = ""
    """The beginning of its first message, unless it was changed."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    """Time of the last change of its tasks."""
    tasks: int = 0
    open_tasks: int = 0
    """Number of these that have not ended."""
    agents: list[str] = []
    usage: TotalUsage | None = None
    retention: str | None = None
    """Such as 12h or 30d; None: the server's default."""


class ConversationMessage(TranscriptMessage):
    """A message of a conversation. Fields of some messages only are in `model_extra`."""

    task_id: str = ""
    agent: str = ""


class Removed(ExtensionResponse):
    """Number of objects that a deletion has removed so far."""

    tasks: int = 0
    artifacts: int = 0
    keys: int = 0
    blobs: int = 0


class Deleted(ExtensionResponse):
    """Object of a deletion."""

    kind: str
    """task, context, artifact or owner."""
    id: str


class Deletion(ExtensionResponse):
    """State of a deletion. Once it is done, no part of the object is stored anywhere."""

    id: str
    of: Deleted
    state: str
    """running, done or failed."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    removed: Removed = Removed()


Retention = timedelta | str | None
"""A duration in full hours, also as a text such as 12h or 30d; None: the server's default."""


class ContextCalls(ExtensionCalls):
    """The part of `Client` for conversations and deletion."""

    def contexts(self, *, query: str = "", owner: str = "") -> AsyncGenerator[Context]:
        """Yield conversations, the last changed first.

        Args:
            query: Only those with matching titles.
            owner: Another owner than the caller's; requires the scope admin.
        """
        parameters = {"query": query, "owner": owner}
        return self._listed(Address.LIST_CONTEXTS, name="contexts", kind=Context, query=parameters)

    async def context(self, context_id: str, *, owner: str = "") -> Context:
        """Return a conversation.

        Raises:
            NotFoundError: it does not exist.
        """
        answer = await self._request(Address.SHOW_CONTEXT, context_id, query={"owner": owner})
        return read(Context, answer["context"])

    async def change_context(
        self, context_id: str, *, title: str = "", retention: Retention | EllipsisType = ...
    ) -> Context:
        """Change the title of a conversation, or its retention after its last change.

        Args:
            context_id: The conversation.
            title: Empty: unchanged.
            retention: The conversation is deleted after it, with all its contents. Left out: unchanged.

        Raises:
            NotFoundError: it does not exist.
            InvalidError: the server rejects these values.
        """
        body: dict[str, JsonValue] = {"title": title} if title else {}
        if not isinstance(retention, EllipsisType):
            body["retention"] = _length(retention)
        answer = await self._request(Address.CHANGE_CONTEXT, context_id, body=body)
        return read(Context, answer["context"])

    def conversation(self, context_id: str, *, owner: str = "") -> AsyncGenerator[ConversationMessage]:
        """Yield all messages of a conversation, oldest task first, with tool calls and times.

        Raises:
            NotFoundError: it does not exist.
        """
        asked = {"owner": owner}
        return self._listed(
            Address.LIST_MESSAGES, context_id, name="messages", kind=ConversationMessage, query=asked
        )

    def owner_artifacts(self, *, context_id: str = "", owner: str = "") -> AsyncGenerator[StoredArtifact]:
        """Yield artifacts of all conversations, or of one; the last changed conversation comes first.

        Raises:
            NotFoundError: there is no such conversation.
        """
        parameters = {"contextId": context_id, "owner": owner}
        return self._listed(Address.LIST_ARTIFACTS, name="artifacts", kind=StoredArtifact, query=parameters)

    async def change_task(self, task_id: str, *, retention: Retention) -> str | None:
        """Set the retention of a task after its end; return it in the server's format.

        Raises:
            NotFoundError: there is no such task.
        """
        body: JsonValue = {"retention": _length(retention)}
        return (await self._request(Address.CHANGE_TASK, task_id, body=body))["task"]["retention"]

    async def delete_task(self, task_id: str, *, owner: str = "") -> Deletion:
        """Delete a task for good, with those of its sub-agents and its artifacts. A running one is ended.

        `deletion` returns the progress.

        Raises:
            NotFoundError: it does not exist, and was not deleted.
        """
        return await self._deleted(Address.DELETE_TASK, task_id, owner=owner)

    async def delete_artifact(self, context_id: str, artifact_id: str, *, owner: str = "") -> Deletion:
        """Delete an artifact for good, as `delete_task`."""
        return await self._deleted(Address.DELETE_ARTIFACT, context_id, artifact_id, owner=owner)

    async def delete_context(self, context_id: str, *, owner: str = "") -> Deletion:
        """Delete a conversation for good, with its tasks and artifacts, as `delete_task`."""
        return await self._deleted(Address.DELETE_CONTEXT, context_id, owner=owner)

    async def delete_owner(self, *, owner: str = "") -> Deletion:
        """Delete all data of the caller's owner, or of another one, which requires the scope admin."""
        return await self._deleted(Address.DELETE_OWNER, owner=owner)

    async def deletion(self, deletion_id: str, *, owner: str = "") -> Deletion:
        """Return the state of a deletion.

        Raises:
            NotFoundError: it does not exist, or is older than Temporal's retention.
        """
        answer = await self._request(Address.SHOW_DELETION, deletion_id, query={"owner": owner})
        return read(Deletion, answer["deletion"])

    async def _deleted(self, address: Address, *ids: str, owner: str) -> Deletion:
        answer = await self._request(address, *ids, query={"owner": owner})
        return read(Deletion, answer["deletion"])


def _length(retention: Retention) -> str | None:
    """Return a duration in the server's format.

    Raises:
        InvalidError: it is not in full hours.
    """
    if not isinstance(retention, timedelta):
        return retention
    hours, rest = divmod(retention, timedelta(hours=1))
    if rest or hours < 1:
        raise InvalidError(f"retention is {retention}: expected full hours; write timedelta(hours=12)")
    return f"{hours}h"

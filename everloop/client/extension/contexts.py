"""Conversations, how long they are kept, and how all of something is deleted."""

from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from types import EllipsisType

from pydantic import JsonValue

from everloop.client.errors import InvalidError
from everloop.client.extension.calls import Answer, ExtensionCalls, read, segment
from everloop.client.extension.past import TotalUsage, TranscriptMessage
from everloop.client.extension.stored import StoredArtifact


class Context(Answer):
    """A conversation: all tasks of a context."""

    id: str
    title: str = ""
    """How its first message begins, unless somebody has given it another one."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    """When a task of it changed last."""
    tasks: int = 0
    open_tasks: int = 0
    """Of these, those that have not ended."""
    agents: list[str] = []
    usage: TotalUsage | None = None
    retention: str | None = None
    """Such as 12h or 30d; None: as the server keeps all."""


class ConversationMessage(TranscriptMessage):
    """Something that was said in a conversation. What only some have is in `model_extra`."""

    task_id: str = ""
    agent: str = ""


class Removed(Answer):
    """What a deletion has removed until now."""

    tasks: int = 0
    artifacts: int = 0
    keys: int = 0
    blobs: int = 0


class Deleted(Answer):
    """What a deletion is of."""

    kind: str
    """task, context, artifact or owner."""
    id: str


class Deletion(Answer):
    """How a deletion stands. Once its state is done, nothing of it is kept anywhere."""

    id: str
    of: Deleted
    state: str
    """running, done or failed."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    removed: Removed = Removed()


Retention = timedelta | str | None
"""A length of time in full hours, also as a text such as 12h or 30d; None: as the server keeps all."""


class ContextCalls(ExtensionCalls):
    """The part of `Client` that is about conversations and deletion."""

    def contexts(self, *, query: str = "", owner: str = "") -> AsyncGenerator[Context]:
        """Yield conversations, those first whose tasks changed last.

        Args:
            query: Only those in whose titles it stands.
            owner: Whose, where that is not the caller; takes the scope admin.
        """
        asked = {"query": query, "owner": owner}
        return self._listed("/contexts", "contexts", Context, asked)

    async def context(self, context_id: str, *, owner: str = "") -> Context:
        """Return a conversation.

        Raises:
            NotFoundError: there is none.
        """
        answer = await self._asked("GET", f"/contexts/{segment(context_id)}", query={"owner": owner})
        return read(Context, answer["context"])

    async def change_context(
        self, context_id: str, *, title: str = "", retention: Retention | EllipsisType = ...
    ) -> Context:
        """Give a conversation another title, or say how long it is kept after its last change.

        Args:
            context_id: The conversation.
            title: Empty: it stays.
            retention: What is over is deleted, with all that the conversation holds. Left out: it stays.

        Raises:
            NotFoundError: there is none.
            InvalidError: the server does not take these.
        """
        body: dict[str, JsonValue] = {"title": title} if title else {}
        if not isinstance(retention, EllipsisType):
            body["retention"] = _length(retention)
        answer = await self._asked("PATCH", f"/contexts/{segment(context_id)}", body)
        return read(Context, answer["context"])

    def conversation(self, context_id: str, *, owner: str = "") -> AsyncGenerator[ConversationMessage]:
        """Yield all that was said in a conversation, oldest task first, with calls of tools and times.

        Raises:
            NotFoundError: there is none.
        """
        path = f"/contexts/{segment(context_id)}/messages"
        return self._listed(path, "messages", ConversationMessage, {"owner": owner})

    def owner_artifacts(self, *, context_id: str = "", owner: str = "") -> AsyncGenerator[StoredArtifact]:
        """Yield artifacts of all conversations, or of one: those of the conversation first that changed last.

        Raises:
            NotFoundError: there is no such conversation.
        """
        asked = {"contextId": context_id, "owner": owner}
        return self._listed("/artifacts", "artifacts", StoredArtifact, asked)

    async def change_task(self, task_id: str, *, retention: Retention) -> str | None:
        """Say how long a task is kept after its end; return it as the server writes it.

        Raises:
            NotFoundError: there is no such task.
        """
        body: JsonValue = {"retention": _length(retention)}
        return (await self._asked("PATCH", f"/tasks/{segment(task_id)}", body))["task"]["retention"]

    async def delete_task(self, task_id: str, *, owner: str = "") -> Deletion:
        """Delete a task for good, with those of its sub-agents and its artifacts; one that runs is ended.

        `deletion` tells when it is done.

        Raises:
            NotFoundError: there is none, and none was deleted.
        """
        return await self._deleted(f"/tasks/{segment(task_id)}", owner)

    async def delete_artifact(self, context_id: str, artifact_id: str, *, owner: str = "") -> Deletion:
        """Delete an artifact for good, as `delete_task`."""
        return await self._deleted(f"/artifacts/{segment(context_id)}/{segment(artifact_id)}", owner)

    async def delete_context(self, context_id: str, *, owner: str = "") -> Deletion:
        """Delete a conversation for good, with its tasks and artifacts, as `delete_task`."""
        return await self._deleted(f"/contexts/{segment(context_id)}", owner)

    async def delete_owner(self, *, owner: str = "") -> Deletion:
        """Delete everything that the caller's owner has, or another one, which takes the scope admin."""
        return await self._deleted("/owner", owner)

    async def deletion(self, deletion_id: str, *, owner: str = "") -> Deletion:
        """Return how a deletion stands.

        Raises:
            NotFoundError: there is none, or it was so long ago that Temporal has forgotten it.
        """
        answer = await self._asked("GET", f"/deletions/{segment(deletion_id)}", query={"owner": owner})
        return read(Deletion, answer["deletion"])

    async def _deleted(self, path: str, owner: str) -> Deletion:
        answer = await self._asked("DELETE", path, query={"owner": owner})
        return read(Deletion, answer["deletion"])


def _length(retention: Retention) -> str | None:
    """Return a length of time as the server reads it.

    Raises:
        InvalidError: it has no full hours.
    """
    if not isinstance(retention, timedelta):
        return retention
    hours, rest = divmod(retention, timedelta(hours=1))
    if rest or hours < 1:
        raise InvalidError(f"retention is {retention}: expected full hours; write timedelta(hours=12)")
    return f"{hours}h"

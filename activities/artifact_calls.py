"""The artifacts of a tool call: what its tool gets, and what is put right when it ends."""

from collections.abc import Awaitable, Callable

import structlog
from redis.exceptions import RedisError
from temporalio import activity

from everloop.activities.tool_artifacts import TaskArtifacts
from everloop.agents.tool import Tool
from everloop.runtime.blobs import BlobError
from everloop.stores.artifacts.changes import attempt_prefix
from everloop.stores.artifacts.interface import ArtifactError, Artifacts
from everloop.stores.artifacts.published import PublishedArtifacts
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.names import call_key, context_key

_log = structlog.get_logger()


class ArtifactCalls:
    """Serves the calls of one process."""

    def __init__(self, artifacts: Artifacts, views: TaskViews) -> None:
        self._artifacts = artifacts
        self._views = views

    def artifacts_for(
        self, tool: Tool, call: RunToolInput, check: Callable[[], Awaitable[None]]
    ) -> TaskArtifacts:
        """Return what one attempt at a call may do with artifacts, as long as it passes the check."""
        # A tool whose arguments tell what it writes makes one change of it. What other tools do under one
        # key may differ from attempt to attempt.
        call_id = idempotency_key(call) if tool.draft_of else ""
        attempt = attempt_prefix(idempotency_key(call), activity.info().current_attempt_scheduled_time)
        return TaskArtifacts(
            self._published(call),
            _context(call),
            call.task.task_id,
            call_id=call_id,
            attempt=attempt,
            check=check,
        )

    async def correct_draft(self, tool: Tool, call: RunToolInput, reply: ToolReply) -> None:
        """Show what the store holds in place of the model's draft of a call, unless that says the same.

        The call may have failed, or an earlier run of the task has made it, and told its own subscribers.
        This is best effort: the end of the task puts right what is wrong until then.
        """
        draft = tool.draft_of(call.call.arguments) if tool.draft_of else None
        if not draft or not isinstance(reply, ToolMessage):
            return
        try:
            await self._published(call).reconcile(_context(call), draft.artifact_id, drafted_at=call.reply)
        except (RedisError, OSError, BlobError, ArtifactError) as error:
            _log.warning("draft not corrected", error_type=type(error).__name__)

    def _published(self, call: RunToolInput) -> PublishedArtifacts:
        return PublishedArtifacts(self._artifacts, call.task, call.position, self._views)


def idempotency_key(call: RunToolInput) -> str:
    """Return what is the same for every attempt at a call, and for no other call."""
    return f"{call.task.task_id}/{call_key(call.call)}"


def _context(call: RunToolInput) -> str:
    return context_key(call.task.owner, call.task.context_id)

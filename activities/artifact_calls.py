"""The artifacts of a tool call: what its tool gets, and what is put right when it ends."""

import structlog
from redis.exceptions import RedisError

from activities.tool_artifacts import TaskArtifacts
from agents.tool import Tool
from stores.artifacts import ArtifactError, Artifacts
from stores.blobs import BlobError
from stores.published_artifacts import PublishedArtifacts
from stores.task_views import TaskViews
from workflows.contract.calls import RunToolInput, ToolReply
from workflows.contract.messages import ToolMessage
from workflows.contract.names import call_key, context_key

_log = structlog.get_logger()


class ArtifactCalls:
    """Serves the calls of one process."""

    def __init__(self, artifacts: Artifacts, views: TaskViews) -> None:
        self._artifacts = artifacts
        self._views = views

    def artifacts_for(self, tool: Tool, call: RunToolInput) -> TaskArtifacts:
        """Return what one attempt at a call may do with artifacts."""
        # A tool whose arguments tell what it writes makes one change of it. What other tools do under one
        # key may differ from attempt to attempt.
        call_id = idempotency_key(call) if tool.draft_of else ""
        return TaskArtifacts(self._published(call), _context(call), call.task.task_id, call_id=call_id)

    async def correct_draft(self, tool: Tool, call: RunToolInput, reply: ToolReply) -> None:
        """Take back what the model's draft of a call has shown, if the call did not write that.

        This is best effort: the artifact's next change, if there is one, puts the view right as well.
        """
        draft = tool.draft_of(call.call.arguments) if tool.draft_of else None
        if not draft or not isinstance(reply, ToolMessage) or draft.artifact_id in reply.artifacts:
            return
        try:
            await self._published(call).correct_draft(_context(call), draft.artifact_id, call.reply)
        except (RedisError, OSError, BlobError, ArtifactError) as error:
            _log.warning("draft not taken back", error_type=type(error).__name__)

    def _published(self, call: RunToolInput) -> PublishedArtifacts:
        return PublishedArtifacts(self._artifacts, call.task, call.position, self._views)


def idempotency_key(call: RunToolInput) -> str:
    """Return what is the same for every attempt at a call, and for no other call."""
    return f"{call.task.task_id}/{call_key(call.call)}"


def _context(call: RunToolInput) -> str:
    return context_key(call.task.owner, call.task.context_id)

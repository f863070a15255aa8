"""Deleting for good, and how far it is. A workflow does it, whatever dies meanwhile.

DELETE /tasks/{id}, /contexts/{id}, /artifacts/{context}/{artifact}, /owner
GET    /deletions/{id}
"""

from pydantic import JsonValue
from starlette.responses import Response
from starlette.routing import Route

from everloop.gateway.auth.scopes import is_bound_to_agents, may_use
from everloop.gateway.errors import (
    ForbiddenError,
    TaskUnknownError,
    TemporalUnavailableError,
    translate_temporal_errors,
)
from everloop.gateway.extension.past import find_task
from everloop.gateway.extension.shell import Call, Extension, answer
from everloop.gateway.http.errors import NotFoundError
from everloop.gateway.settings import Stores
from everloop.gateway.tasks.snapshots import Snapshots, refuse_if_read_only
from everloop.runtime.protocol.tasks import timestamp
from everloop.runtime.temporal.deletions import RUNNING, Deletions, KnownDeletion, deletion_id
from everloop.stores.artifacts.errors import ArtifactIdError, ArtifactMissingError
from everloop.stores.views.contexts import Context
from everloop.workflows.contract.deletion import DeletionKind, DeletionTarget
from everloop.workflows.contract.names import context_key, root_task_id


class DeletionRoutes:
    """Begins deletions, and tells how they stand. What is gone answers with the deletion that removed it."""

    def __init__(
        self, extension: Extension, stores: Stores, snapshots: Snapshots, deletions: Deletions
    ) -> None:
        self._extension = extension
        self._contexts = stores.views.contexts
        self._artifacts = stores.artifacts
        self._snapshots = snapshots
        self._deletions = deletions

    @property
    def routes(self) -> list[Route]:
        """The addresses that are for nothing else; `delete_task` and `delete_context` stand at theirs."""
        route = self._extension.route
        return [
            route("/artifacts/{context}/{id}", DELETE=self._delete_artifact),
            route("/owner", DELETE=self._delete_owner),
            route("/deletions/{id}", GET=self._show),
        ]

    async def delete_task(self, call: Call) -> Response:
        """Delete a task with those of its sub-agents, its artifacts, and what was said in it."""
        task_id = call.id()
        refuse_if_read_only(task_id)
        target = DeletionTarget(kind=DeletionKind.TASK, owner=call.owner, id=task_id)
        if running := await self._running(target):
            return running
        try:
            view = (await find_task(self._snapshots, call, task_id)).view
        except TaskUnknownError as error:
            return await self._repeated(target, error)
        return await self._begin(target.model_copy(update={"context_id": view.context_id}))

    async def delete_context(self, call: Call) -> Response:
        """Delete a context with all that is in it."""
        target = DeletionTarget(kind=DeletionKind.CONTEXT, owner=call.owner, context_id=call.id())
        context = await self._contexts.get(call.owner, call.id())
        if context is None or not may_see(call, context):
            return await self._repeated(target, unknown_context(call.id()))
        require_all_of(call, context)
        return await self._begin(target)

    async def _delete_artifact(self, call: Call) -> Response:
        context_id, artifact_id = call.id("context"), call.id()
        target = DeletionTarget(
            kind=DeletionKind.ARTIFACT, owner=call.owner, context_id=context_id, id=artifact_id
        )
        missing = NotFoundError(f"there is no artifact {artifact_id[:100]!r} of this owner in this context")
        try:
            stored = await self._artifacts.get_artifact(context_key(call.owner, context_id), artifact_id)
            if is_bound_to_agents(call.caller):
                await find_task(self._snapshots, call, root_task_id(stored.task_id))
        except (ArtifactMissingError, ArtifactIdError, TaskUnknownError):
            return await self._repeated(target, missing)
        return await self._begin(target)

    async def _delete_owner(self, call: Call) -> Response:
        if is_bound_to_agents(call.caller):
            raise ForbiddenError("everything of an owner is deleted by credentials without scopes of agents")
        target = DeletionTarget(kind=DeletionKind.OWNER, owner=call.owner)
        return await self._begin(target)

    async def _show(self, call: Call) -> Response:
        found = await self._find(call.id())
        if found is None or found.target.owner != call.owner:
            raise NotFoundError(f"there is no deletion {call.id()[:100]!r} of this owner")
        return answer({"deletion": _json(found)})

    async def _begin(self, target: DeletionTarget) -> Response:
        async with translate_temporal_errors():
            id_ = await self._deletions.start(target)
        return self._accepted(await self._find(id_))

    async def _repeated(self, target: DeletionTarget, missing: Exception) -> Response:
        """Answer who deletes again what is gone, or never was."""
        found = await self._find(deletion_id(target))
        if found is None:
            raise missing
        return self._accepted(found)

    async def _running(self, target: DeletionTarget) -> Response | None:
        """Answer who deletes again what is being deleted: to look for it would restore what is lost of it."""
        found = await self._find(deletion_id(target))
        return self._accepted(found) if found and found.state == RUNNING else None

    async def _find(self, id_: str) -> KnownDeletion | None:
        async with translate_temporal_errors():
            return await self._deletions.find(id_)

    @staticmethod
    def _accepted(found: KnownDeletion | None) -> Response:
        if found is None:
            raise TemporalUnavailableError
        return answer({"deletion": _json(found)}, 202)


def may_see(call: Call, context: Context) -> bool:
    """Whether a caller has to do with an agent of a context."""
    return any(may_use(call.caller, agent) for agent in context.agents or ("",))


def require_all_of(call: Call, context: Context) -> None:
    """Refuse who would remove, now or later, tasks of agents that they have nothing to do with.

    Raises:
        ForbiddenError: there are some.
    """
    if not all(may_use(call.caller, agent) for agent in context.agents):
        raise ForbiddenError("it has tasks of agents that these credentials have no scopes for")


def unknown_context(context_id: str) -> NotFoundError:
    """Return what is told of a context that there is not."""
    return NotFoundError(f"there is no context {context_id[:100]!r} of this owner")


def _json(deletion: KnownDeletion) -> dict[str, JsonValue]:
    return {
        "id": deletion.id,
        "of": {"kind": deletion.target.kind.value, "id": deletion.target.name},
        "state": deletion.state,
        "startedAt": timestamp(deletion.began_at),
        "finishedAt": timestamp(deletion.ended_at) if deletion.ended_at else None,
        "removed": deletion.removed.model_dump(),
    }

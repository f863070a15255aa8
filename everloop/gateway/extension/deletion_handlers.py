"""Permanent deletion, and its progress. A workflow deletes, across crashes of any process.

DELETE /tasks/{id}, /contexts/{id}, /artifacts/{context}/{artifact}, /owner
GET    /deletions/{id}

For a deleted object the response is the deletion that removed it.
"""

from pydantic import JsonValue
from starlette.responses import Response

from everloop.gateway.auth.scopes import is_bound_to_agents, may_use
from everloop.gateway.errors import (
    ForbiddenError,
    TaskUnknownError,
    TemporalUnavailableError,
    translate_temporal_errors,
)
from everloop.gateway.extension.history_handlers import find_task
from everloop.gateway.http.http_calls import HttpCall, answer
from everloop.gateway.http.http_errors import NotFoundError
from everloop.gateway.services import Services
from everloop.gateway.tasks.snapshots import refuse_if_read_only
from everloop.runtime.protocol.a2a_tasks import timestamp
from everloop.runtime.temporal.deletions import RUNNING, KnownDeletion, deletion_id
from everloop.stores.artifacts.artifact_errors import ArtifactIdError, ArtifactMissingError
from everloop.stores.log.contexts import ContextInfo
from everloop.workflows.contract.deletion_payloads import DeletionKind, DeletionTarget
from everloop.workflows.contract.names import context_key, root_task_id


async def delete_task(services: Services, call: HttpCall) -> Response:
    """Delete a task with those of its sub-agents, its artifacts, and its messages."""
    task_id = call.id()
    refuse_if_read_only(task_id)
    target = DeletionTarget(kind=DeletionKind.TASK, owner=call.owner, id=task_id)
    # A lookup during the deletion would restore lost parts of the task.
    if (found := await _find(services, deletion_id(target))) and found.state == RUNNING:
        return _accepted(found)
    try:
        view = (await find_task(services, call, task_id)).view
    except TaskUnknownError as error:
        return await _repeated(services, target, error)
    return await _begin(services, target.model_copy(update={"context_id": view.context_id}))


async def delete_context(services: Services, call: HttpCall) -> Response:
    """Delete a context with all its contents."""
    target = DeletionTarget(kind=DeletionKind.CONTEXT, owner=call.owner, context_id=call.id())
    context = await services.views.contexts.get(call.owner, call.id())
    if context is None or not may_see(call, context):
        return await _repeated(services, target, unknown_context(call.id()))
    require_all_of(call, context)
    return await _begin(services, target)


async def delete_artifact(services: Services, call: HttpCall) -> Response:
    """Delete an artifact."""
    context_id, artifact_id = call.id("context"), call.id()
    target = DeletionTarget(
        kind=DeletionKind.ARTIFACT, owner=call.owner, context_id=context_id, id=artifact_id
    )
    missing = NotFoundError(f"there is no artifact {artifact_id[:100]!r} of this owner in this context")
    try:
        stored = await services.stores.artifacts.get_artifact(
            context_key(call.owner, context_id), artifact_id
        )
        if is_bound_to_agents(call.caller):
            await find_task(services, call, root_task_id(stored.task_id))
    except (ArtifactMissingError, ArtifactIdError, TaskUnknownError):
        return await _repeated(services, target, missing)
    return await _begin(services, target)


async def delete_owner(services: Services, call: HttpCall) -> Response:
    """Delete all data of an owner."""
    if is_bound_to_agents(call.caller):
        raise ForbiddenError("everything of an owner is deleted by credentials without scopes of agents")
    target = DeletionTarget(kind=DeletionKind.OWNER, owner=call.owner)
    return await _begin(services, target)


async def show_deletion(services: Services, call: HttpCall) -> Response:
    """Show the progress of a deletion."""
    found = await _find(services, call.id())
    if found is None or found.target.owner != call.owner:
        raise NotFoundError(f"there is no deletion {call.id()[:100]!r} of this owner")
    return answer({"deletion": _json(found)})


async def _begin(services: Services, target: DeletionTarget) -> Response:
    async with translate_temporal_errors():
        id_ = await services.deletions.start(target)
    return _accepted(await _find(services, id_))


async def _repeated(services: Services, target: DeletionTarget, missing: Exception) -> Response:
    """Respond to the deletion of a missing object: with an earlier deletion of it, or the error."""
    found = await _find(services, deletion_id(target))
    if found is None:
        raise missing
    return _accepted(found)


async def _find(services: Services, id_: str) -> KnownDeletion | None:
    async with translate_temporal_errors():
        return await services.deletions.find(id_)


def _accepted(found: KnownDeletion | None) -> Response:
    if found is None:
        raise TemporalUnavailableError
    return answer({"deletion": _json(found)}, 202)


def may_see(call: HttpCall, context: ContextInfo) -> bool:
    """Whether a caller has access to an agent of a context."""
    return any(may_use(call.caller, agent) for agent in context.agents or ("",))


def require_all_of(call: HttpCall, context: ContextInfo) -> None:
    """Reject a caller who would remove, now or later, tasks of agents without access.

    Raises:
        ForbiddenError: the context has such agents.
    """
    if not all(may_use(call.caller, agent) for agent in context.agents):
        raise ForbiddenError("it has tasks of agents that these credentials have no scopes for")


def unknown_context(context_id: str) -> NotFoundError:
    """Return the error for a missing context."""
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

"""Who may download what: callers are recognised, and see what their scopes and agents allow."""

from collections.abc import Iterable

from starlette.requests import Request

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.scopes import READ, check_agent, check_scope, is_bound_to_agents
from everloop.gateway.bindings.context import recognise
from everloop.gateway.context import Caller
from everloop.gateway.errors import ForbiddenError
from everloop.gateway.tasks.snapshots import CHILD_SEPARATOR
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.artifacts import StoredArtifact


class DownloadAccess:
    """Stands before the artifacts, which are of an owner's contexts, whatever agent wrote them."""

    def __init__(self, access: AccessControl, views: TaskViews) -> None:
        self._access = access
        self._views = views

    async def admit(self, request: Request) -> Caller:
        """Return who asks.

        Raises:
            UnauthenticatedError, TooManyRequestsError, UnavailableNowError: as for all HTTP requests.
            ForbiddenError: these credentials are not for reading.
        """
        caller = await recognise(request, self._access)
        check_scope(caller, READ)
        return caller

    async def seen_by(self, caller: Caller, artifacts: Iterable[StoredArtifact]) -> list[StoredArtifact]:
        """Return those artifacts whose agents the caller has to do with.

        The agent is that of the task, as its view tells it; what a sub-agent wrote belongs to the task that
        asked it. Without a view nobody whose scopes name agents sees the artifact.
        """
        if not is_bound_to_agents(caller):
            return list(artifacts)
        known: dict[str, bool] = {}
        seen: list[StoredArtifact] = []
        for artifact in artifacts:
            task_id = artifact.task_id.partition(CHILD_SEPARATOR)[0]
            if task_id not in known:
                known[task_id] = await self._is_with_agent_of(caller, task_id)
            if known[task_id]:
                seen.append(artifact)
        return seen

    async def is_seen_by(self, caller: Caller, task_id: str) -> bool:
        """Whether the caller has to do with the agent of a task."""
        return not is_bound_to_agents(caller) or await self._is_with_agent_of(caller, task_id)

    async def _is_with_agent_of(self, caller: Caller, task_id: str) -> bool:
        snapshot = await self._views.load(task_id, most=0)
        if snapshot is None:
            return False
        try:
            check_agent(caller, snapshot.view.agent_id)
        except ForbiddenError:
            return False
        return True

"""The parts of a gateway process for its addresses beside A2A."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from temporalio.client import Client

from everloop.agents.registry import AgentRegistry
from everloop.gateway.http.requests import HttpContext
from everloop.gateway.operations.admission import Admission
from everloop.gateway.operations.push import PushOperations
from everloop.gateway.settings import Attachments, GatewaySettings, Stores
from everloop.gateway.tasks.history import Histories
from everloop.gateway.tasks.reconcile import Reconciler
from everloop.gateway.tasks.snapshots import Snapshots
from everloop.gateway.tasks.task_steps import TaskSteps
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.gateway.tasks.workflow_runs import Runs
from everloop.runtime.schedules.schedules import Schedules
from everloop.runtime.temporal.deletions import Deletions
from everloop.stores.log.log_store import TaskViews

Probe = Callable[[], Awaitable[object]]
"""Request to a server; any exception means that the server is unusable."""


@dataclass(frozen=True, kw_only=True)
class Services:
    """The parts; `probes` check each required server. Without `push` there are no notifications."""

    settings: GatewaySettings
    client: Client
    agents: AgentRegistry
    stores: Stores
    http: HttpContext
    tasks: Tasks
    runs: Runs
    reconciler: Reconciler
    snapshots: Snapshots
    histories: Histories
    steps: TaskSteps
    admission: Admission
    push: PushOperations | None
    deletions: Deletions
    schedules: Schedules
    attachments: Attachments
    probes: Mapping[str, Probe]

    @property
    def views(self) -> TaskViews:
        return self.stores.views

    @property
    def is_open(self) -> bool:
        """Whether there is no authentication: each caller is the operator of the anonymous owner's tasks."""
        return self.http.access.authenticator.is_open

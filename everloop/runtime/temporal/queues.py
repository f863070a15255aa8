"""Task queues and the workers that poll them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType, WorkerStatus, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    GetSystemInfoRequest,
    ListWorkersRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

WORKFLOW = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY

POLLED = timedelta(seconds=90)
"""Longest time between two polls of a worker: each request for work waits up to a minute."""

_UNSUPPORTED = frozenset({RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED})


@dataclass(frozen=True)
class Poller:
    """A worker that polls a queue. `build` is `deployment:build`; empty without versioning."""

    identity: str
    seen_at: datetime
    build: str


@dataclass(frozen=True)
class QueueState:
    """A queue of one kind. `backlog`: approximate number of waiting items, the oldest for `age` seconds."""

    pollers: tuple[Poller, ...]
    backlog: int
    age: float

    def serving(self, now: datetime, build: str = "") -> tuple[Poller, ...]:
        """Return the workers that polled recently; with a build only its workers."""
        return tuple(
            each for each in self.pollers if now - each.seen_at < POLLED and build in {"", each.build}
        )


async def queue_state(
    client: Client, queue: str, kind: "TaskQueueType.ValueType", *, rpc_timeout: timedelta | None = None
) -> QueueState:
    """Describe a queue; one that was never used is empty.

    Raises:
        RPCError: Temporal does not answer.
    """
    described = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=kind,
            report_stats=True,
        ),
        retry=True,
        timeout=rpc_timeout,
    )
    stats = described.stats
    return QueueState(
        tuple(_poller(each) for each in described.pollers),
        stats.approximate_backlog_count,
        stats.approximate_backlog_age.ToTimedelta().total_seconds(),
    )


def _poller(info: PollerInfo) -> Poller:
    options = info.deployment_options
    versioned = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    is_versioned = options.worker_versioning_mode == versioned
    build = f"{options.deployment_name}:{options.build_id}" if is_versioned else ""
    return Poller(info.identity, info.last_access_time.ToDatetime(UTC), build)


@dataclass(frozen=True)
class WorkerHeartbeat:
    """The last report of a worker process about one queue."""

    identity: str
    queue: str
    build: str
    at: datetime


WORKERS_PAGE = 500
MOST_PAGES = 10


async def heartbeats(client: Client, *, rpc_timeout: timedelta | None = None) -> Sequence[WorkerHeartbeat]:
    """Return the reports of the namespace's workers; none if the server does not support them.

    Raises:
        RPCError: Temporal does not answer.
    """
    found, token = list[WorkerHeartbeat](), b""
    for _ in range(MOST_PAGES):
        request = ListWorkersRequest(
            namespace=client.namespace, page_size=WORKERS_PAGE, next_page_token=token
        )
        try:
            page = await client.workflow_service.list_workers(request, retry=True, timeout=rpc_timeout)
        except RPCError as error:
            if error.status in _UNSUPPORTED:
                return found
            raise
        for each in page.workers_info:
            beat = each.worker_heartbeat
            if beat.status != WorkerStatus.WORKER_STATUS_SHUTDOWN:
                version = beat.deployment_version
                build = f"{version.deployment_name}:{version.build_id}" if version.deployment_name else ""
                at = beat.heartbeat_time.ToDatetime(UTC)
                found.append(WorkerHeartbeat(beat.worker_identity, beat.task_queue, build, at))
        token = page.next_page_token
        if not token:
            break
    return found


async def server_version(client: Client, *, rpc_timeout: timedelta | None = None) -> str:
    """Return the version of the server.

    Raises:
        RPCError: Temporal does not answer.
    """
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=rpc_timeout)
    return info.server_version

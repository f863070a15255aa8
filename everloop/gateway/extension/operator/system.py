"""State of the system: versions, queues with their workers and backlog, health.

A server that does not respond is reported like any other state.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pydantic import JsonValue
from temporalio.service import RPCError

from everloop.gateway.errors import RPC_TIMEOUT, TemporalUnavailableError, translate_temporal_errors
from everloop.gateway.extension.health import outcome_of
from everloop.gateway.extension.operator.overview import look_at_queue
from everloop.gateway.services import Services
from everloop.runtime.blobs import BlobMissingError, Blobs
from everloop.runtime.protocol.a2a_tasks import timestamp
from everloop.runtime.redis import server_name
from everloop.runtime.temporal.queues import (
    ACTIVITY,
    WORKFLOW,
    QueueState,
    WorkerHeartbeat,
    heartbeats,
    server_version,
)
from everloop.version import __version__
from everloop.workflows.contract import names

_NO_BLOB = "health/none"
"""Key without a blob: a store that reports it missing is available."""

_OWN = "own"
"""Kind of a queue that agents or tools name."""


@dataclass(frozen=True)
class _Queue:
    name: str
    kind: str
    agents: tuple[str, ...]
    states: tuple[QueueState, ...]

    def workers(self, now: datetime) -> set[str]:
        return {poller.identity for state in self.states for poller in state.serving(now)}

    def to_json(self, now: datetime) -> dict[str, JsonValue]:
        backlog = sum(state.backlog for state in self.states)
        oldest = max(state.age for state in self.states)
        return {
            "name": self.name,
            "kind": self.kind,
            "agents": list(self.agents),
            "workers": len(self.workers(now)),
            "backlog": backlog,
            "oldest": round(oldest, 1) if backlog else None,
        }


async def show_system(services: Services) -> dict[str, JsonValue]:
    """Return the complete state, without the tasks."""
    now = datetime.now(UTC)
    versions, health, queues, beats = await asyncio.gather(
        _versions(services), _health(services), _queues(services), _heartbeats(services)
    )
    return {
        "versions": versions,
        "queues": [queue.to_json(now) for queue in queues],
        "workers": _workers(queues, beats, now),
        "health": [*health, _served(queues, now, is_split=services.settings.split_queues)],
        "temporalUi": services.settings.temporal_ui_url or None,
        "namespace": services.client.namespace,
    }


async def _versions(services: Services) -> dict[str, JsonValue]:
    temporal, redis = "", ""
    with suppress(TemporalUnavailableError, RPCError):
        async with translate_temporal_errors():
            temporal = await server_version(services.client, rpc_timeout=RPC_TIMEOUT)
    if services.stores.redis:
        redis = await server_name(services.stores.redis)
    return {"everloop": __version__, "temporalServer": temporal or None, "redis": redis or None}


async def _health(services: Services) -> list[JsonValue]:
    probes, blobs = dict(services.probes), services.stores.blobs
    if blobs:
        probes["blobs"] = partial(_probe_blobs, blobs)
    outcomes = await asyncio.gather(*map(outcome_of, probes.values()))
    return [
        {"name": name, "ok": outcome == "ok", "detail": "" if outcome == "ok" else outcome}
        for name, outcome in zip(probes, outcomes, strict=True)
    ]


async def _probe_blobs(blobs: Blobs) -> None:
    with suppress(BlobMissingError):
        await blobs.get(_NO_BLOB)


async def _queues(services: Services) -> list[_Queue]:
    named = sorted({queue for agent in services.agents for queue in agent.task_queues})
    base = services.settings.task_queue
    queues = [(names.task_queue_of(kind, base), kind) for kind in names.WORKER_QUEUES]
    queues += [(queue, _OWN) for queue in named]
    try:
        return list(await asyncio.gather(*(_queue(services, *each) for each in queues)))
    except (TemporalUnavailableError, RPCError):
        return []


async def _queue(services: Services, name: str, kind: str) -> _Queue:
    kinds = (WORKFLOW, ACTIVITY) if kind == names.WORKFLOWS_QUEUE else (ACTIVITY,)
    users = (agent.id for agent in services.agents if kind == _OWN and name in agent.task_queues)
    return _Queue(
        name, kind, tuple(users), tuple([await look_at_queue(services.client, name, each) for each in kinds])
    )


async def _heartbeats(services: Services) -> Sequence[WorkerHeartbeat]:
    try:
        async with translate_temporal_errors():
            return await heartbeats(services.client, rpc_timeout=RPC_TIMEOUT)
    except (TemporalUnavailableError, RPCError):
        return ()


@dataclass
class _Worker:
    queues: set[str]
    seen_at: datetime
    build: str

    def to_json(self, identity: str) -> dict[str, JsonValue]:
        return {
            "identity": identity,
            "queues": [*sorted(self.queues)],
            "lastSeen": timestamp(self.seen_at),
            "version": self.build or None,
        }


def _workers(queues: Iterable[_Queue], beats: Iterable[WorkerHeartbeat], now: datetime) -> list[JsonValue]:
    """Return the processes that poll these queues, from Temporal's pollers and from their heartbeats."""
    found, queue_names = dict[str, _Worker](), {queue.name for queue in queues}

    def note(identity: str, queue: str, at: datetime, build: str) -> None:
        worker = found.setdefault(identity, _Worker(set(), at, build))
        worker.queues.add(queue)
        worker.seen_at, worker.build = max(worker.seen_at, at), worker.build or build

    for queue in queues:
        for state in queue.states:
            for poller in state.serving(now):
                note(poller.identity, queue.name, poller.seen_at, poller.build)
    for beat in beats:
        if beat.queue in queue_names:
            note(beat.identity, beat.queue, beat.at, beat.build)
    return [worker.to_json(identity) for identity, worker in sorted(found.items())]


def _served(queues: Sequence[_Queue], now: datetime, *, is_split: bool) -> JsonValue:
    """Return whether each kind of work with its own queue has a worker."""
    unused = () if is_split else (names.MODEL_QUEUE, names.TOOLS_QUEUE)
    missing = [queue.name for queue in queues if queue.kind not in unused and not queue.workers(now)]
    told = f"no worker takes work from {', '.join(missing)}; start one" if missing else ""
    return {"name": "workers", "ok": bool(queues) and not missing, "detail": told}

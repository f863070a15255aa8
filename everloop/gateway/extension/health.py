"""Probes: whether the process is alive, and ready to serve."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from temporalio.client import Client

from everloop.gateway.errors import RPC_TIMEOUT, translate_temporal_errors
from everloop.gateway.gateway_instruments import begin_counters, server_reachable, tasks_open
from everloop.gateway.services import Probe
from everloop.gateway.tasks.sweep import RecurringSteps
from everloop.workflows.contract import names
from everloop.workflows.contract.tasks import TERMINAL_STATES, TaskState

PROBE_TIMEOUT = 2.0
"""Seconds that a server has to respond in."""

ANSWER_HOLDS = 1.0
"""Seconds for which a result is reused: unauthenticated callers may request it as often as they like."""


def health_routes(probes: Mapping[str, Probe], clock: Callable[[], float] = time.monotonic) -> list[Route]:
    """Return /healthz, which succeeds while the process runs, and /readyz, which probes each required server.

    `clock` counts seconds.
    """
    readiness = _Readiness(probes, clock)

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        outcomes = await readiness.outcomes()
        ready = all(outcome == "ok" for outcome in outcomes.values())
        return JSONResponse(
            {"status": "ready" if ready else "unavailable", "checks": outcomes},
            status_code=200 if ready else 503,
        )

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


class _Readiness:
    """Probes the servers once for all requests within a second, never twice at a time."""

    def __init__(self, probes: Mapping[str, Probe], clock: Callable[[], float]) -> None:
        self._probes = probes
        self._clock = clock
        self._asking: asyncio.Task[Mapping[str, str]] | None = None
        self._answered_at = 0.0

    async def outcomes(self) -> Mapping[str, str]:
        """Return the result of each server's probe. A disconnection does not cancel it for other clients."""
        asking = self._asking
        if asking is None or (asking.done() and self._clock() - self._answered_at >= ANSWER_HOLDS):
            asking = self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(asking)

    async def _ask(self) -> Mapping[str, str]:
        outcomes = await asyncio.gather(*(outcome_of(probe) for probe in self._probes.values()))
        self._answered_at = self._clock()
        return dict(zip(self._probes, outcomes, strict=True))


async def outcome_of(probe: Probe) -> str:
    """Return "ok" if the server responded in time, or else the problem."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            await probe()
    except TimeoutError:
        return f"no answer in {PROBE_TIMEOUT:g} s"
    except Exception as error:  # noqa: BLE001 -- after any failure of a probe, the process is not ready
        return f"failed: {type(error).__name__}"
    return "ok"


# Probes that serve metrics only.

GAUGES_PAUSE = 30.0
"""Seconds between two rounds."""

_OPEN_STATES = tuple(state for state in TaskState if state not in TERMINAL_STATES)


class Gauges:
    """Counts open tasks in Temporal's visibility, and probes each server."""

    def __init__(self, client: Client, agent_ids: Iterable[str], servers: Mapping[str, Probe]) -> None:
        self._client = client
        self._agent_ids = tuple(agent_ids)
        self._servers = servers

    async def run(self) -> None:
        """Run rounds until cancelled. A repeated failure is logged once."""
        begin_counters(self._agent_ids)
        steps = RecurringSteps()
        while True:
            await steps.run("count open tasks", self.round)
            await asyncio.sleep(GAUGES_PAUSE)

    async def round(self) -> None:
        """Run one round.

        Raises:
            TemporalUnavailableError, RPCError: open tasks could not be counted; the gauges keep their values.
        """
        outcomes = await asyncio.gather(*(outcome_of(probe) for probe in self._servers.values()))
        for server, outcome in zip(self._servers, outcomes, strict=True):
            server_reachable.set(int(outcome == "ok"), {"server": server})
        for agent_id in self._agent_ids:
            for state in _OPEN_STATES:
                count = await self._count(agent_id, state)
                tasks_open.set(count, {"agent": agent_id, "state": state.value})

    async def _count(self, agent_id: str, state: TaskState) -> int:
        query = (  # a paused task is open, and does not count as running
            f"WorkflowType = '{names.WORKFLOW_TYPE}' AND CloseTime IS NULL "
            f"AND {names.AGENT_ID.name} = '{agent_id}' AND {names.TASK_STATE.name} = '{state.value}'"
        )
        async with translate_temporal_errors():
            return (await self._client.count_workflows(query, rpc_timeout=RPC_TIMEOUT)).count

"""What a gateway asks its servers for the sake of metrics alone."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.gateway.errors import GatewayError
from everloop.gateway.health import Probe, outcome_of
from everloop.gateway.instruments import begin_counters, record_open, record_reachable
from everloop.gateway.temporal_calls import CALL_TIMEOUT, temporal_answers
from everloop.workflows.contract import names
from everloop.workflows.contract.tasks import TERMINAL_STATES, TaskState

GAUGES_PAUSE = 30.0
"""Seconds between two rounds."""

_OPEN_STATES = tuple(state for state in TaskState if state not in TERMINAL_STATES)
_RPC_TIMEOUT = timedelta(seconds=CALL_TIMEOUT)

_log = structlog.get_logger()


class Gauges:
    """Counts open tasks in Temporal's visibility, and looks whether each server answers."""

    def __init__(self, client: Client, agent_ids: Iterable[str], servers: Mapping[str, Probe]) -> None:
        self._client = client
        self._agent_ids = tuple(agent_ids)
        self._servers = servers
        self._failing = False

    async def run(self) -> None:
        """Do rounds until cancelled; what fails is logged once and asked again."""
        begin_counters(self._agent_ids)
        while True:
            try:
                await self.round()
                self._failing = False
            except Exception as error:  # noqa: BLE001 -- no defect may end it silently
                if not self._failing:
                    is_defect = not isinstance(error, (GatewayError, RPCError, OSError))
                    _log.warning("cannot count open tasks now", error=str(error), exc_info=is_defect)
                self._failing = True
            await asyncio.sleep(GAUGES_PAUSE)

    async def round(self) -> None:
        """Ask once.

        Raises:
            TemporalUnavailableError, RPCError: open tasks could not be counted; the gauges keep their values.
        """
        outcomes = await asyncio.gather(*(outcome_of(probe) for probe in self._servers.values()))
        for server, outcome in zip(self._servers, outcomes, strict=True):
            record_reachable(server, is_reachable=outcome == "ok")
        for agent_id in self._agent_ids:
            for state in _OPEN_STATES:
                record_open(agent_id, state, await self._count(agent_id, state))

    async def _count(self, agent_id: str, state: TaskState) -> int:
        query = (
            f"WorkflowType = '{names.WORKFLOW_TYPE}' AND ExecutionStatus = 'Running' "
            f"AND {names.AGENT_ID.name} = {_quoted(agent_id)} AND {names.TASK_STATE.name} = '{state.value}'"
        )
        async with temporal_answers():
            return (await self._client.count_workflows(query, rpc_timeout=_RPC_TIMEOUT)).count


def _quoted(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"

"""A tool that is not idempotent has its effect once, though its record is lost, or its agent redefined."""

import json
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import TaskState

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from tests.support.a2a_client import connected, request, response_of, send
from tests.support.rigs.deployment import ACCEPTANCE_AGENT, Service, running_service
from tests.support.rigs.operator import in_state
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import Reply, tool_call


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    """A deployment shared by the tests, which kill its worker."""
    async with running_service(tmp_path_factory.mktemp("effects"), ACCEPTANCE_AGENT) as running:
        yield running


@pytest.mark.parametrize("how", ["its record is lost", "it is declared idempotent"])
async def test_a_call_that_was_begun_and_lost_is_not_run_again(
    service: Service, ledger: Path, how: str
) -> None:
    """The model reads that its outcome is unknown.

    Redis is emptied, and the worker dies before it renews the lease of the call: only the attempt's number
    shows that the call was begun. Or a later version of the agent declares the tool idempotent: the call was
    begun by one that was not.
    """
    gate = ledger.with_name("gate")
    arguments = json.dumps({"ledger": str(ledger), "gate": str(gate)})
    service.script([Reply([tool_call("write_line", arguments)]), Reply(["Done."])])

    async with connected(service.gateway.url, streaming=False) as client:
        task = await send(client, request("Write.", return_immediately=True))
        await until(lambda: ledger.is_file() and ledger.stat().st_size)
        os.kill(service.worker.pid, signal.SIGSTOP)
        agents = ACCEPTANCE_AGENT
        if how == "its record is lost":
            async with connect_redis(service.everloop.redis_url, NO_CIPHER) as redis:
                await redis.flushall()
        else:
            agents = ACCEPTANCE_AGENT.replace(":agent", ":later_agent")
        await service.replace_worker(EVERLOOP_AGENTS=agents)
        gate.touch()
        task = await in_state(client, task.id, TaskState.TASK_STATE_COMPLETED)

    assert response_of(task) == "Done."
    assert len(ledger.read_text().splitlines()) == 1
    (result,) = service.model.requests[1].tool_results
    assert "may or may not have taken effect" in result

"""User code that exits: the model reads one error, or the worker ends, and another one goes on."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import TaskState

from tests.support.a2a_client import connected, request, send
from tests.support.rigs.deployment import Service, running_service
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import Reply, tool_call


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    """A worker of an agent whose tools exit."""
    async with running_service(
        tmp_path_factory.mktemp("exits"), "tests.acceptance.durability.exiting_agent:agent"
    ) as running:
        yield running


async def test_an_exit_in_a_task_of_a_tool_is_one_error(service: Service) -> None:
    """It would end the event loop, and the worker would wait for ever."""
    service.script([Reply([tool_call("parse")]), Reply(["It cannot be parsed."])])

    async with connected(service.gateway.url, streaming=False) as client:
        task = await send(client, request("Parse."))

    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert service.model.requests[-1].tool_results == ["SystemExit: 2"]
    assert service.worker.is_running()


async def test_a_worker_whose_event_loop_is_ended_ends(service: Service, tmp_path: Path) -> None:
    """No handler can catch such an exit: the process ends as failed, and the next one reports the call."""
    ledger = tmp_path / "ledger"
    arguments = f'{{"ledger": "{ledger}"}}'
    service.script([Reply([tool_call("exit_worker", arguments)]), Reply(["It may have exited."])])

    async with connected(service.gateway.url, streaming=False) as client:
        await send(client, request("Exit.", return_immediately=True))
    code = await service.worker.ended()
    service.worker = await service.everloop.add_worker()
    await until(lambda: service.model.requests[1:])

    assert code == 1
    assert "exit_worker was started" in service.model.requests[-1].tool_results[0]
    assert ledger.read_text() == "called\n"

"""A task's history grows by what each iteration brings, and not by what was said before."""

import pytest
from temporalio.client import Client

from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.tasks import AgentSpec
from tests.support.fakes.ports import CountingTools, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import starter

COUNTS = (5, 50, 300)
RESULT = "x" * 2_000
SLACK = 1.1
"""How much dearer an iteration of a long task may be than one of a short task: numbers have more digits."""


def _result(call: RunToolInput) -> ToolMessage:
    return ToolMessage(call_id=call.call.id, name=call.call.name, content=RESULT)


async def _bytes(client: Client, iterations: int) -> int:
    """Run a task of so many iterations, and return the size of all its runs' histories."""
    replies = [asks((f"c{n}", "x"), text=f"step {n}") for n in range(iterations)]
    ports = FakePorts(ScriptedModel(*replies, answer("done")), CountingTools(reply=_result))
    async with starter(client, max_cached_workflows=1000)(
        ports, AgentSpec(id="agent", max_iterations=400)
    ) as task:
        result = await task.result()
        runs = dict.fromkeys(call.task.run_id for call in ports.model.calls)
        histories = [await client.get_workflow_handle(task.id, run_id=run).fetch_history() for run in runs]
    assert result.iterations == iterations + 1
    assert ports.transcript.stored == []
    return sum(event.ByteSize() for history in histories for event in history.events)


@pytest.mark.timeout(600)
async def test_history_is_linear_in_bytes(client: Client) -> None:
    """An iteration costs as many bytes between the 50th and the 300th as between the 5th and the 50th."""
    few, some, many = [await _bytes(client, iterations) for iterations in COUNTS]
    early = (some - few) / (COUNTS[1] - COUNTS[0])
    late = (many - some) / (COUNTS[2] - COUNTS[1])
    assert len(RESULT) < early < 4 * len(RESULT)
    assert late < SLACK * early

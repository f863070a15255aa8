"""GetTask and CancelTask: A2A 1.0 §3.1.3, §3.1.5, §3.3.1."""

import asyncio

from a2a.types import a2a_pb2 as pb

from tests.conformance.messages import ASKS, WRITES_TEXT, message
from tests.support.wires.agent import Agent


async def test_a_task_can_be_read_as_it_was_sent_back(agent: Agent) -> None:
    """GetTask shows what the send returned: status, artifacts and history (§3.1.3)."""
    sent = await agent.send(message(WRITES_TEXT))
    assert await agent.get(sent.id) == sent


async def test_canceling_is_idempotent(agent: Agent) -> None:
    """Canceling again has the same effect, one after the other and at once (§3.3.1)."""
    asking = await agent.send(message(ASKS))
    both = await asyncio.gather(agent.cancel(asking.id), agent.cancel(asking.id))
    again = await agent.cancel(asking.id)
    read = await agent.get(asking.id)
    assert {task.status.state for task in (*both, again, read)} == {pb.TASK_STATE_CANCELED}
    assert {task.id for task in (*both, again)} == {asking.id}

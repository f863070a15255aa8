"""SubscribeToTask: A2A 1.0 §3.1.6, §3.5.2."""

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest
from a2a.types import a2a_pb2 as pb

from tests.conformance.messages import ASKS, COMPLETES, REJECTS, all_of, message, state_of
from tests.support.wires.agent import Agent, refusal


async def test_a_subscription_stays_while_the_task_waits(agent: Agent) -> None:
    """It begins with the task; interrupted is not terminal: what follows the answer comes (§3.1.6)."""
    asking = await agent.send(message(ASKS))
    async with aclosing(agent.subscribe(asking.id)) as events:
        first = (await anext(events)).task
        assert (first.id, first.status.state) == (asking.id, pb.TASK_STATE_INPUT_REQUIRED)
        await agent.send(message(COMPLETES, taskId=asking.id))
        rest = [event async for event in events]
    assert state_of(rest[-1]) == pb.TASK_STATE_COMPLETED


async def test_all_subscribers_get_the_same_events_in_the_same_order(agent: Agent) -> None:
    """Events go to every stream of a task, in one order (§3.5.2)."""
    asking = await agent.send(message(ASKS))
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(aclosing(agent.subscribe(asking.id))) for _ in range(3)]
        for events in streams:
            await anext(events)
        await agent.send(message("tck-stream-001", taskId=asking.id))
        seen = await asyncio.gather(*(all_of(events) for events in streams))
    assert len(seen[0]) > 1
    assert seen[0] == seen[1] == seen[2]


async def test_leaving_one_stream_leaves_the_others(agent: Agent) -> None:
    """Closing a stream affects neither the others nor the task (§3.5.2)."""
    asking = await agent.send(message(ASKS))
    async with aclosing(agent.subscribe(asking.id)) as staying:
        await anext(staying)
        async with aclosing(agent.subscribe(asking.id)) as leaving:
            await anext(leaving)
        await agent.send(message(COMPLETES, taskId=asking.id))
        rest = [event async for event in staying]
    assert state_of(rest[-1]) == pb.TASK_STATE_COMPLETED


async def test_a_canceled_task_ends_its_subscriptions(agent: Agent) -> None:
    """Canceled is a terminal state like the others (§3.1.6)."""
    asking = await agent.send(message(ASKS))
    async with aclosing(agent.subscribe(asking.id)) as events:
        await anext(events)
        await agent.cancel(asking.id)
        rest = [event async for event in events]
    assert state_of(rest[-1]) == pb.TASK_STATE_CANCELED


@pytest.mark.parametrize("behaviour", [COMPLETES, REJECTS, ASKS])
async def test_an_ended_task_has_no_subscriptions(agent: Agent, behaviour: str) -> None:
    """Subscribing to a terminal task, also a canceled one, is an unsupported operation (§3.1.6)."""
    ended = await agent.send(message(behaviour))
    if behaviour == ASKS:
        await agent.cancel(ended.id)
    refused = await refusal(all_of(agent.subscribe(ended.id)))
    assert refused.reason == "UNSUPPORTED_OPERATION"

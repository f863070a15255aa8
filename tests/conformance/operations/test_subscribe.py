"""SubscribeToTask: A2A 1.0 §3.1.6, §3.5.2."""

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest
from a2a.types import a2a_pb2 as pb

from tests.conformance.bindings import Binding, refusal
from tests.conformance.messages import (
    ASKS,
    COMPLETES,
    LASTS,
    REJECTS,
    TERMINAL,
    all_of,
    fresh,
    ids_of,
    message,
    state_of,
    until,
)

IMMEDIATELY = {"returnImmediately": True}


async def test_a_subscription_begins_with_the_task_as_it_is(agent: Binding) -> None:
    """The first event is the Task with its current state (§3.1.6)."""
    asking = await agent.send(message(ASKS))
    async with aclosing(agent.subscribe(asking.id)) as events:
        first = await anext(events)
    assert first.WhichOneof("payload") == "task"
    assert (first.task.id, first.task.status.state) == (asking.id, pb.TASK_STATE_INPUT_REQUIRED)


async def test_a_subscription_ends_with_the_task(agent: Binding) -> None:
    """The stream ends at the terminal state (§3.1.6)."""
    task = await agent.send(message(LASTS, configuration=IMMEDIATELY))
    events = await all_of(agent.subscribe(task.id))
    assert state_of(events[-1]) in TERMINAL
    assert {ids_of(event) for event in events} == {(task.id, task.context_id)}


async def test_a_subscription_stays_while_the_task_waits(agent: Binding) -> None:
    """Interrupted is not terminal: a subscriber sees what follows the client's answer (§3.1.6)."""
    asking = await agent.send(message(ASKS))
    async with aclosing(agent.subscribe(asking.id)) as events:
        await anext(events)
        await agent.send(message(COMPLETES, taskId=asking.id))
        rest = [event async for event in events]
    assert state_of(rest[-1]) == pb.TASK_STATE_COMPLETED


async def test_all_subscribers_get_the_same_events_in_the_same_order(agent: Binding) -> None:
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


async def test_leaving_one_stream_leaves_the_others(agent: Binding) -> None:
    """Closing a stream affects neither the others nor the task (§3.5.2)."""
    asking = await agent.send(message(ASKS))
    async with aclosing(agent.subscribe(asking.id)) as staying:
        await anext(staying)
        async with aclosing(agent.subscribe(asking.id)) as leaving:
            await anext(leaving)
        await agent.send(message(COMPLETES, taskId=asking.id))
        rest = [event async for event in staying]
    assert state_of(rest[-1]) == pb.TASK_STATE_COMPLETED


async def test_a_canceled_task_ends_its_subscriptions(agent: Binding) -> None:
    """Canceled is a terminal state like the others (§3.1.6)."""
    asking = await agent.send(message(ASKS))
    async with aclosing(agent.subscribe(asking.id)) as events:
        await anext(events)
        await agent.cancel(asking.id)
        rest = [event async for event in events]
    assert state_of(rest[-1]) == pb.TASK_STATE_CANCELED


@pytest.mark.parametrize("behaviour", [COMPLETES, REJECTS])
async def test_an_ended_task_has_no_subscriptions(agent: Binding, behaviour: str) -> None:
    """Subscribing to a terminal task is an unsupported operation (§3.1.6)."""
    ended = await agent.send(message(behaviour))
    refused = await refusal(all_of(agent.subscribe(ended.id)))
    assert refused.reason == "UNSUPPORTED_OPERATION"


async def test_a_canceled_task_has_no_subscriptions(agent: Binding) -> None:
    """Neither has a canceled one (§3.1.6)."""
    asking = await agent.send(message(ASKS))
    await agent.cancel(asking.id)
    refused = await refusal(all_of(agent.subscribe(asking.id)))
    assert refused.reason == "UNSUPPORTED_OPERATION"


async def test_an_unknown_task_has_no_subscriptions(agent: Binding) -> None:
    """A task that does not exist is not found (§3.1.6)."""
    refused = await refusal(all_of(agent.subscribe(fresh("task"))))
    assert refused.reason == "TASK_NOT_FOUND"


async def test_a_subscriber_of_a_working_task_misses_nothing(agent: Binding) -> None:
    """Between the task that comes first and the events after it there is no gap (§3.1.6)."""
    async with aclosing(agent.send_streaming(message(LASTS))) as sent:
        task_id = ids_of(await anext(sent))[0]
        async with aclosing(agent.subscribe(task_id)) as events:
            seen = await until(events, lambda event: state_of(event) in TERMINAL)
    last = await agent.get(task_id)
    assert seen[0].WhichOneof("payload") == "task"
    assert state_of(seen[-1]) == last.status.state

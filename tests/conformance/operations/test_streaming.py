"""SendStreamingMessage and SubscribeToTask: A2A 1.0 §3.1.2, §3.1.6, §3.5.2, §11.7."""

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest
from a2a.types import a2a_pb2 as pb

from tests.conformance.messages import (
    ANSWERS_DIRECTLY,
    ASKS,
    COMPLETES,
    INTERRUPTED,
    REJECTS,
    STREAMS,
    TERMINAL,
    all_of,
    ids_of,
    message,
    state_of,
)
from tests.support.wires.agent import Agent, refusal


@pytest.mark.parametrize("behaviour", [COMPLETES, ASKS, REJECTS, STREAMS])
async def test_a_stream_begins_with_the_task(agent: Agent, behaviour: str) -> None:
    """The first event is the Task; updates of it follow, in its context (§3.1.2, §4.2.1)."""
    first, *others = await all_of(agent.send_streaming(message(behaviour)))
    assert first.WhichOneof("payload") == "task"
    assert {event.WhichOneof("payload") for event in others} <= {"status_update", "artifact_update"}
    assert all(ids_of(first))
    assert {ids_of(event) for event in others} == {ids_of(first)}


async def test_a_stream_ends_with_the_task(agent: Agent) -> None:
    """The last event, and only that, has the terminal state, and the stream closes (§3.1.2)."""
    events = await all_of(agent.send_streaming(message(STREAMS)))
    states = [state for event in events if (state := state_of(event)) is not None]
    assert state_of(events[-1]) == pb.TASK_STATE_COMPLETED
    assert [state for state in states if state in TERMINAL] == [pb.TASK_STATE_COMPLETED]


async def test_a_stream_ends_where_the_task_is_interrupted(agent: Agent) -> None:
    """Input-required closes the stream of a send (§11.7)."""
    events = await all_of(agent.send_streaming(message(ASKS)))
    states = [state for event in events if (state := state_of(event)) is not None]
    assert states[-1] == pb.TASK_STATE_INPUT_REQUIRED
    assert [state for state in states if state in INTERRUPTED | TERMINAL] == [pb.TASK_STATE_INPUT_REQUIRED]


async def test_events_come_in_the_order_they_were_made(agent: Agent) -> None:
    """Working, then the artifact, then completed; times do not go back (§3.5.2)."""
    events = await all_of(agent.send_streaming(message("tck-stream-ordering-001")))
    kinds = [event.WhichOneof("payload") for event in events]
    working = next(n for n, event in enumerate(events) if state_of(event) == pb.TASK_STATE_WORKING)
    assert working < kinds.index("artifact_update") < len(kinds) - 1
    times = [
        event.status_update.status.timestamp.ToNanoseconds()
        for event in events
        if event.HasField("status_update")
    ]
    assert times == sorted(times)


async def test_a_streamed_direct_answer_is_one_message(agent: Agent) -> None:
    """A stream that answers with a Message has nothing else, and closes (§3.1.2)."""
    (only,) = await all_of(agent.send_streaming(message(ANSWERS_DIRECTLY)))
    assert only.WhichOneof("payload") == "message"
    assert only.message.role == pb.ROLE_AGENT


async def test_returning_immediately_means_nothing_to_a_stream(agent: Agent) -> None:
    """A stream goes on to the end of the task, whatever the value of returnImmediately (§3.2.2)."""
    events = await all_of(agent.send_streaming(message(STREAMS, configuration={"returnImmediately": True})))
    assert state_of(events[-1]) == pb.TASK_STATE_COMPLETED


async def test_a_subscription_stays_while_the_task_waits(agent: Agent) -> None:
    """It begins with the task; interrupted is not terminal: the events after the answer follow (§3.1.6)."""
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

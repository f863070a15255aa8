"""Clients of A2A 0.3 over gRPC: 0.3 §3.2.2."""

from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as v03
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub

from tests.conformance.messages import ASKS, COMPLETES, STREAMS, fresh
from tests.conformance.stack import Stack


def _said(behaviour: str, task_id: str = "") -> v03.SendMessageRequest:
    message = v03.Message(
        message_id=fresh(behaviour), role=v03.ROLE_USER, content=[v03.Part(text="Please.")], task_id=task_id
    )
    return v03.SendMessageRequest(request=message, configuration=v03.SendMessageConfiguration(blocking=True))


async def test_tasks_are_sent_read_and_canceled(stack: Stack) -> None:
    """The service of 0.3 answers on the same port (0.3 §3.5.6)."""
    async with grpc.aio.insecure_channel(stack.grpc_address) as channel:
        service: Any = A2AServiceStub(channel)
        asking = (await service.SendMessage(_said(ASKS))).task
        assert asking.status.state == v03.TASK_STATE_INPUT_REQUIRED
        found = await service.GetTask(v03.GetTaskRequest(name=f"tasks/{asking.id}"))
        assert found.id == asking.id
        canceled = await service.CancelTask(v03.CancelTaskRequest(name=f"tasks/{asking.id}"))
        assert canceled.status.state == v03.TASK_STATE_CANCELLED


@pytest.mark.parametrize("behaviour", [STREAMS, ASKS])
async def test_a_stream_has_one_final_update(stack: Stack, behaviour: str) -> None:
    """The task first, one final status last (0.3 §7.2)."""
    async with grpc.aio.insecure_channel(stack.grpc_address) as channel:
        service: Any = A2AServiceStub(channel)
        events = [event async for event in service.SendStreamingMessage(_said(behaviour))]
    assert events[0].WhichOneof("payload") == "task"
    finals = [event.status_update.final for event in events if event.HasField("status_update")]
    assert finals == [False] * (len(finals) - 1) + [True]


async def test_errors_have_their_statuses(stack: Stack) -> None:
    """Not found, and failed preconditions (0.3 §8)."""
    async with grpc.aio.insecure_channel(stack.grpc_address) as channel:
        service: Any = A2AServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.GetTask(v03.GetTaskRequest(name="tasks/none"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        done = (await service.SendMessage(_said(COMPLETES))).task
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.CancelTask(v03.CancelTaskRequest(name=f"tasks/{done.id}"))
        assert caught.value.code() is not grpc.StatusCode.INTERNAL


async def test_an_extended_card_that_is_not_declared_is_refused(stack: Stack) -> None:
    """GetAgentCard is 0.3's word for the extended card (0.3 §3.5.6), which wants to know who calls."""
    async with grpc.aio.insecure_channel(stack.grpc_address) as channel:
        service: Any = A2AServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.GetAgentCard(v03.GetAgentCardRequest())
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "read the public card" in str(caught.value.details())

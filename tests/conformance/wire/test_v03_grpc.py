"""Clients of A2A 0.3 over gRPC: 0.3 §3.2.2."""

from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as v03
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub

from tests.conformance.messages import ASKS, STREAMS, fresh
from tests.conformance.stack import Stack


@pytest.mark.parametrize("behaviour", [STREAMS, ASKS])
async def test_a_stream_has_one_final_update(stack: Stack, behaviour: str) -> None:
    """The task first, one final status last (0.3 §7.2), also where the task waits for its user."""
    message = v03.Message(message_id=fresh(behaviour), role=v03.ROLE_USER, content=[v03.Part(text="Please.")])
    async with grpc.aio.insecure_channel(stack.grpc_address) as channel:
        service: Any = A2AServiceStub(channel)
        sent = service.SendStreamingMessage(v03.SendMessageRequest(request=message))
        events = [event async for event in sent]
    assert events[0].WhichOneof("payload") == "task"
    finals = [event.status_update.final for event in events if event.HasField("status_update")]
    assert finals == [False] * (len(finals) - 1) + [True]

"""What is gRPC's own: A2A 1.0 §10."""

from typing import Any, cast

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from a2a.utils.grpc_status import status_from_call
from google.rpc import error_details_pb2

from tests.conformance.bindings import OPERATIONS
from tests.conformance.messages import COMPLETES, fresh, message
from tests.conformance.stack import Stack

METADATA = (("a2a-version", "1.0"),)


async def test_every_method_of_the_service_is_there() -> None:
    """The operations that the tests know are those of the service's definition (§10.3)."""
    assert set(pb.DESCRIPTOR.services_by_name["A2AService"].methods_by_name) == set(OPERATIONS)


async def _refused(stack: Stack, method: str, request: bytes) -> grpc.aio.AioRpcError:
    """Return what a call with these bytes fails with."""
    async with grpc.aio.insecure_channel(stack.grpc_address) as channel:
        call = cast("Any", channel).unary_unary(f"/lf.a2a.v1.A2AService/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(request, metadata=METADATA)
    return caught.value


async def test_an_error_carries_a_status_with_an_error_info(stack: Stack) -> None:
    """The trailers hold a google.rpc.Status that says the same as the call, with an ErrorInfo (§10.6)."""
    error = await _refused(stack, "GetTask", pb.GetTaskRequest(id=fresh("task")).SerializeToString())
    status = status_from_call(error)
    assert status
    assert (status.code, status.message) == (5, error.details())
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("TASK_NOT_FOUND", "a2a-protocol.org")


async def test_a_malformed_request_shows_nothing_of_the_inside(stack: Stack) -> None:
    """Bytes that are no message are refused before the service sees them (§10.1)."""
    error = await _refused(stack, "GetTask", b"\xff\xff\xff")
    assert error.code() is not grpc.StatusCode.OK
    assert "Traceback" not in (error.details() or "")


async def test_unknown_methods_are_unimplemented(stack: Stack) -> None:
    """As gRPC has it (§10.3)."""
    error = await _refused(stack, "Nothing", b"")
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("metadata", [(), METADATA], ids=["no version", "1.0"])
async def test_a_call_speaks_the_version_of_its_service(
    stack: Stack, metadata: tuple[tuple[str, str], ...]
) -> None:
    """Each version has a service of its own, so that a call without a version is clear, too (own rule)."""
    async with grpc.aio.insecure_channel(stack.grpc_address) as channel:
        service: Any = A2AServiceStub(channel)
        answer = await service.SendMessage(message(COMPLETES), metadata=metadata)
    assert answer.task.status.state == pb.TASK_STATE_COMPLETED

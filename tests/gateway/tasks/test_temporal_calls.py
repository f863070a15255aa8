"""What failures of Temporal mean."""

import pytest
from google.protobuf.any_pb2 import Any
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure, NotFoundFailure
from temporalio.service import RPCError, RPCStatusCode

from everloop.gateway.errors import (
    TaskUnknownError,
    TemporalUnavailableError,
    translate_not_found,
    translate_temporal_errors,
)
from everloop.runtime.temporal.describe import UNAVAILABLE

ABOUT_THE_CALL = set(RPCStatusCode) - UNAVAILABLE - {RPCStatusCode.OK}


@pytest.mark.parametrize("status", sorted(UNAVAILABLE))
async def test_what_passes_is_an_outage(status: RPCStatusCode) -> None:
    """What the SDK itself tries again, such as the INTERNAL of a killed server, may be asked again."""
    with pytest.raises(TemporalUnavailableError):
        async with translate_temporal_errors():
            raise RPCError("away", status, b"")


@pytest.mark.parametrize("status", sorted(ABOUT_THE_CALL))
async def test_what_does_not_pass_is_no_outage(status: RPCStatusCode) -> None:
    """A call that is wrong or not allowed stays so; clients are not asked to repeat it."""
    with pytest.raises(RPCError):
        async with translate_temporal_errors():
            raise RPCError("no", status, b"")


@pytest.mark.parametrize(
    ("detail", "meaning"),
    [(NotFoundFailure(), TaskUnknownError), (NamespaceNotFoundFailure(), TemporalUnavailableError)],
)
async def test_a_namespace_that_is_not_found_is_an_outage(
    detail: NotFoundFailure | NamespaceNotFoundFailure, meaning: type[Exception]
) -> None:
    """A server that was paused says so for a moment; no task is taken for unknown because of it."""
    packed = Any()
    packed.Pack(detail)
    status = GrpcStatus(code=RPCStatusCode.NOT_FOUND, details=[packed])
    with pytest.raises(meaning):
        async with translate_temporal_errors(), translate_not_found("task"):
            raise RPCError("not found", RPCStatusCode.NOT_FOUND, status.SerializeToString())

"""A gateway that speaks gRPC too, as `python -m everloop.gateway` does with EVERLOOP_GRPC_PORT."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.grpc import GrpcServer
from everloop.gateway.http.server import STALLED_AFTER
from everloop.gateway.settings import GatewaySettings
from everloop.stores.log.log_store import TaskViews
from tests.gateway.harness import RunningGateway, running_gateway

SERVICE, LEGACY_SERVICE = "/lf.a2a.v1.A2AService", "/a2a.v1.A2AService"

MESSAGE_BYTES, BODY_BYTES = 1_000_000, 2_000_000
"""Limit of the bytes of a request, also over HTTP."""


@dataclass
class GrpcGateway:
    """A gateway, its gRPC server, and a channel to it."""

    http: RunningGateway
    server: GrpcServer
    channel: grpc.aio.Channel

    @property
    def url(self) -> str:
        return self.http.url

    def subscribe(
        self, task_id: str, *, channel: grpc.aio.Channel | None = None, **metadata: str
    ) -> grpc.aio.UnaryStreamCall[pb.SubscribeToTaskRequest, pb.StreamResponse]:
        """Subscribe to a task without the official client, which hides the status of a call."""
        method: grpc.aio.UnaryStreamMultiCallable[pb.SubscribeToTaskRequest, pb.StreamResponse] = (
            channel or self.channel
        ).unary_stream(
            f"{SERVICE}/SubscribeToTask",
            request_serializer=pb.SubscribeToTaskRequest.SerializeToString,
            response_deserializer=pb.StreamResponse.FromString,
        )
        named = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
        return method(pb.SubscribeToTaskRequest(id=task_id), metadata=named)

    def stop(self) -> None:
        """Stop the servers as the process does at SIGTERM."""
        self.server.stop()
        self.http.server.stop()


@asynccontextmanager
async def running_grpc_gateway(
    client: Client,
    views: TaskViews,
    *,
    access: AccessControl | None = None,
    stalled_after: float = STALLED_AFTER,
    **options: Any,  # noqa: ANN401 -- those of `running_gateway`
) -> AsyncGenerator[GrpcGateway]:
    """Serve a gateway and gRPC, each on a free port, until the block ends."""
    options = {"max_message_bytes": MESSAGE_BYTES, "max_body_bytes": BODY_BYTES, **options}
    settings = GatewaySettings(
        grpc_port=0, shutdown_grace=1, max_message_bytes=MESSAGE_BYTES, max_body_bytes=BODY_BYTES
    )
    access = access or AccessControl()
    server = GrpcServer(settings, access, stalled_after=stalled_after)
    async with (
        running_gateway(client, views, access=access, grpc_port=server.port, **options) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        await server.start(gateway.app.state.handler)
        try:
            yield GrpcGateway(gateway, server, channel)
        finally:
            await server.stopped()


async def refused(gateway: GrpcGateway, method: str, content: bytes, **metadata: str) -> grpc.aio.AioRpcError:
    """Call a method with some bytes, and return the error of the call."""
    named = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = gateway.channel.unary_unary(method)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(content, metadata=named)
    return caught.value

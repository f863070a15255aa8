"""A gateway that speaks gRPC too, as `python -m everloop.gateway` does with EVERLOOP_GRPC_PORT."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.grpc import GrpcServer
from everloop.gateway.cards.signing import CardKey
from everloop.gateway.operations.push import PushOperations
from everloop.gateway.server import STALLED_AFTER
from everloop.gateway.settings import GatewaySettings
from everloop.stores.views.interface import TaskViews
from tests.gateway.harness import AGENT, RunningGateway, running_gateway

SERVICE = "/lf.a2a.v1.A2AService"

BODY_BYTES = 1_000_000
"""What these gateways read at most."""


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
        """Subscribe to a task without the official client, which hides what a call ends with."""
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
        """Do what the process does at SIGTERM."""
        self.server.stop()
        self.http.server.stop()


@asynccontextmanager
async def running_grpc_gateway(  # noqa: PLR0913 -- what a test may set of a gateway, each by its name
    client: Client,
    views: TaskViews,
    *,
    queue: str,
    agents: Sequence[Agent] = (AGENT,),
    access: AccessControl | None = None,
    push: PushOperations | None = None,
    card_key: CardKey | None = None,
    stalled_after: float = STALLED_AFTER,
) -> AsyncGenerator[GrpcGateway]:
    """Serve a gateway and gRPC, each on a free port, until the block ends."""
    access = access or AccessControl()
    settings = GatewaySettings(
        grpc_port=0, shutdown_grace=1, max_message_bytes=BODY_BYTES - 1, max_body_bytes=BODY_BYTES
    )
    server = GrpcServer(settings, access, stalled_after=stalled_after)
    async with (
        running_gateway(
            client,
            views,
            queue=queue,
            agents=agents,
            access=access,
            push=push,
            card_key=card_key,
            grpc_port=server.port,
        ) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        await server.start(gateway.app.state.handler)
        try:
            yield GrpcGateway(gateway, server, channel)
        finally:
            await server.stopped()


async def refused(gateway: GrpcGateway, method: str, content: bytes, **metadata: str) -> grpc.aio.AioRpcError:
    """Call a method with some bytes, and return what the call ends with."""
    named = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = gateway.channel.unary_unary(method)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(content, metadata=named)
    return caught.value

"""The gRPC server of a gateway process: A2A 1.0 and 0.3, each as a service of its own."""

import asyncio
from typing import NoReturn

import grpc
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import (
    add_A2AServiceServicer_to_server as add_legacy_service,  # pyright: ignore[reportUnknownVariableType] -- generated code
)
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2_grpc import (
    add_A2AServiceServicer_to_server as add_service,  # pyright: ignore[reportUnknownVariableType] -- generated code
)
from a2a.utils.errors import A2AError

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.grpc_calls import CallContexts, Calls, Context
from everloop.gateway.bindings.grpc_front import GrpcFront
from everloop.gateway.bindings.legacy_handler import LegacyHandler
from everloop.gateway.context import MAX_HEAD_BYTES
from everloop.gateway.http.server import STALLED_AFTER, listen_for_grpc
from everloop.gateway.settings import GatewaySettings

_SECOND = 1_000
_OPTIONS = (
    # A client that is gone is noticed within a minute and a half; one that is idle costs little.
    ("grpc.keepalive_time_ms", 60 * _SECOND),
    ("grpc.keepalive_timeout_ms", 20 * _SECOND),
    ("grpc.max_connection_idle_ms", 600 * _SECOND),
    ("grpc.max_concurrent_streams", 1_000),  # of one connection; further calls wait at the client
    # As over HTTP, names, values and 32 bytes for each. The bound on their number is ours (`CallHeaders`).
    ("grpc.max_metadata_size", MAX_HEAD_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_HEAD_BYTES),
    # Compressed messages would be unpacked before authentication: they are refused, as UNIMPLEMENTED.
    ("grpc.compression_enabled_algorithms_bitset", 1 << grpc.Compression.NoCompression.value),
    # Clients behind proxies ping to keep their connections open; by default gRPC hangs up on them.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10 * _SECOND),
    # Read buffer of a connection; by default tens of MiB for a fast sender.
    ("grpc.experimental.tcp_max_read_buffer_size", 65_536),
)


class GrpcServer:
    """Listens on the configured port once made, and answers once started.

    It closes connections beyond `connections`; None: no limit.

    Raises:
        AddressInUseError: the port is taken or not permitted.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        access: AccessControl,
        *,
        connections: int | None = None,
        stalled_after: float = STALLED_AFTER,
    ) -> None:
        self._listener = listen_for_grpc(settings)
        self._front = GrpcFront(connections)
        self.port: int = self._listener.getsockname()[1]
        self._calls = Calls(access, self._front.host_of, stalled_after=stalled_after)
        self._grace = settings.shutdown_grace
        self._stops: list[asyncio.Task[None]] = []
        options = [*_OPTIONS, ("grpc.max_receive_message_length", settings.max_body_bytes)]
        self._server = grpc.aio.server(interceptors=[self._calls], options=options)
        self._server.add_insecure_port(self._front.address)

    async def start(self, handler: RequestHandler) -> None:
        """Serve calls with a handler common to all bindings."""
        contexts = CallContexts()
        add_service(_Service(handler, contexts), self._server)
        add_legacy_service(_LegacyService(handler, contexts), self._server)
        await self._server.start()
        await self._front.start(self._listener)

    def stop(self) -> None:
        """Accept no more calls, and give running ones the grace period; only the first call does.

        The caller ends the streams, which otherwise last as long as their tasks.
        """
        grace = 0 if self._stops else self._grace
        self._front.close()
        self._calls.is_stopping = True
        self._stops.append(asyncio.create_task(self._server.stop(grace)))

    async def stopped(self) -> None:
        """Wait until no call runs; stop first if necessary."""
        if not self._stops:
            self.stop()
        await asyncio.gather(*self._stops)
        self._front.remove()


class _Service(GrpcHandler):
    """A2A 1.0, with errors translated like everywhere."""

    async def abort_context(self, error: A2AError, context: Context) -> NoReturn:
        raise error


class _LegacyService(CompatGrpcHandler):
    """A2A 0.3, with errors translated like everywhere."""

    def __init__(self, handler: RequestHandler, contexts: CallContexts) -> None:
        super().__init__(handler, contexts)
        self.handler03 = LegacyHandler(handler)

    async def abort_context(self, error: A2AError, context: Context) -> NoReturn:
        raise error

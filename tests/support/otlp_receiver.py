"""A receiver of OTLP traces over HTTP, for tests (OpenTelemetry Protocol 1.x, `/v1/traces`, protobuf)."""

import asyncio
import gzip
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deploy.local.servers import LOOPBACK
from tests.support.scripted_openai import QuietServer


@dataclass
class OtlpReceiver:
    """What came in, by process: `services` holds the service.name of each span, in the same order."""

    url: str
    spans: list[Span] = field(default_factory=list[Span])
    services: list[str] = field(default_factory=list[str])
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def receive(self, request: Request) -> Response:
        """Take one export."""
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        async with self._arrived:
            self._keep(ExportTraceServiceRequest.FromString(body))
            self._arrived.notify_all()
        return Response(media_type="application/x-protobuf")

    def _keep(self, export: ExportTraceServiceRequest) -> None:
        for group in export.resource_spans:
            names = [a.value.string_value for a in group.resource.attributes if a.key == "service.name"]
            for scope in group.scope_spans:
                self.spans.extend(scope.spans)
                self.services.extend(names * len(scope.spans))

    async def wait_for(self, name: str) -> Span:
        """Return the span of that name, as soon as it is there."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: any(span.name == name for span in self.spans))
        return next(span for span in self.spans if span.name == name)


@asynccontextmanager
async def running_otlp_receiver() -> AsyncGenerator[OtlpReceiver]:
    """Yield a receiver that listens."""
    listener = socket.create_server((LOOPBACK, 0))
    host, port = listener.getsockname()
    receiver = OtlpReceiver(f"http://{host}:{port}")
    routes = [Route("/v1/traces", receiver.receive, methods=["POST"])]
    server = QuietServer(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield receiver
    finally:
        server.should_exit = True
        await serving
        listener.close()

"""A receiver of OTLP traces and metrics over HTTP, for tests (OpenTelemetry Protocol 1.x, protobuf)."""

import asyncio
import gzip
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everloop.local.servers import LOOPBACK
from tests.support.servers.scripted_openai import QuietServer


@dataclass
class OtlpReceiver:
    """The received spans and metrics; `services` has the service.name of each span, in the same order."""

    url: str
    spans: list[Span] = field(default_factory=list[Span])
    services: list[str] = field(default_factory=list[str])
    metrics: list[Metric] = field(default_factory=list[Metric])
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def receive_traces(self, request: Request) -> Response:
        """Receive one export of spans."""
        export = ExportTraceServiceRequest.FromString(await _body(request))
        async with self._arrived:
            self._keep(export)
            self._arrived.notify_all()
        return Response(media_type="application/x-protobuf")

    async def receive_metrics(self, request: Request) -> Response:
        """Receive one export of metrics; each has the sum since the process started."""
        export = ExportMetricsServiceRequest.FromString(await _body(request))
        async with self._arrived:
            for group in export.resource_metrics:
                for scope in group.scope_metrics:
                    self.metrics.extend(scope.metrics)
            self._arrived.notify_all()
        return Response(media_type="application/x-protobuf")

    def _keep(self, export: ExportTraceServiceRequest) -> None:
        for group in export.resource_spans:
            names = [a.value.string_value for a in group.resource.attributes if a.key == "service.name"]
            for scope in group.scope_spans:
                self.spans.extend(scope.spans)
                self.services.extend(names * len(scope.spans))

    async def wait_for(self, name: str) -> Span:
        """Wait for the span of this name, and return it."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: any(span.name == name for span in self.spans))
        return next(span for span in self.spans if span.name == name)

    async def wait_for_metric(self, name: str) -> Metric:
        """Wait until the counter of this name has counted, and return it."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: any(map(has_counted, self._named(name))))
        return next(filter(has_counted, self._named(name)))

    def _named(self, name: str) -> Iterator[Metric]:
        return (metric for metric in reversed(self.metrics) if metric.name == name)


def has_counted(metric: Metric) -> bool:
    return any(point.as_int or point.as_double for point in metric.sum.data_points)


async def _body(request: Request) -> bytes:
    body = await request.body()
    return gzip.decompress(body) if request.headers.get("content-encoding") == "gzip" else body


@asynccontextmanager
async def running_otlp_receiver() -> AsyncGenerator[OtlpReceiver]:
    """Yield a receiver that listens."""
    listener = socket.create_server((LOOPBACK, 0))
    host, port = listener.getsockname()
    receiver = OtlpReceiver(f"http://{host}:{port}")
    routes = [
        Route("/v1/traces", receiver.receive_traces, methods=["POST"]),
        Route("/v1/metrics", receiver.receive_metrics, methods=["POST"]),
    ]
    server = QuietServer(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield receiver
    finally:
        server.should_exit = True
        await serving
        listener.close()

"""The server of a colleague for tests: the a2a-sdk's own request handler, on a real port of this process."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import grpc
import uvicorn
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everloop.local.servers import LOOPBACK
from tests.support.servers.peer_agent import FILE, Colleague, RemoteAgent
from tests.support.servers.scripted_openai import QuietServer

_EVENTS = b"text/event-stream"
_Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Handler(DefaultRequestHandler):
    """The SDK's own handler; a test may remove operations from it."""

    def __init__(self, remote: RemoteAgent, card: pb.AgentCard) -> None:
        super().__init__(Colleague(remote), InMemoryTaskStore(), card)
        self.card = card
        self._remote = remote

    def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        self._refuse("SendStreamingMessage")
        if self._remote.refuses and params.message.parts[0].text == self._remote.refuses:
            raise InvalidParamsError(f"{self._remote.refuses} is no answer")
        return cast("AsyncGenerator[Event]", super().on_message_send_stream(params, context))

    def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        self._refuse("SubscribeToTask")
        # A decorator of the SDK hides the type.
        return cast("AsyncGenerator[Event]", super().on_subscribe_to_task(params, context))

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task | None:
        self._refuse("GetTask")
        # As above.
        return await cast("Awaitable[pb.Task | None]", super().on_get_task(params, context))

    def _refuse(self, operation: str) -> None:
        if operation in self._remote.lacks:
            raise UnsupportedOperationError


class _CutError(Exception):
    """Makes the server drop the connection in the middle of a body."""


class _Gate:
    """An app before the SDK's server that records requests, and breaks answers as a test demands."""

    def __init__(self, inner: ASGIApp, remote: RemoteAgent) -> None:
        self._inner = inner
        self._remote = remote

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        if request.url.path.startswith("/.well-known"):
            self._remote.cards += 1
            nonsense = self._remote.nonsense
            card = self._inner if nonsense is None else JSONResponse(nonsense)
            await card(scope, receive, send)
            return
        method = json.loads(body)["method"] if request.url.path == "/" else request.url.path
        await self._remote.hear(method, dict(request.headers))
        status = self._refusal(request)
        if status:
            await Response(status_code=status, headers={"retry-after": self._remote.retry_after})(
                scope, receive, send
            )
            return
        await self._inner(scope, _replay(body, receive), self._cutting(send))

    def _refusal(self, request: Request) -> int:
        if self._remote.refusals:
            return self._remote.refusals.pop(0)
        wanted = f"Bearer {self._remote.wants}"
        return 401 if self._remote.wants and request.headers.get("authorization") != wanted else 0

    def _cutting(self, send: Send) -> Send:
        streams = False

        async def cut(message: Message) -> None:
            nonlocal streams
            if message["type"] == "http.response.start":
                streams = dict(message["headers"]).get(b"content-type", b"").startswith(_EVENTS)
            is_event = streams and message.get("body", b"").startswith(b"data")
            if not is_event or self._remote.cut is None:
                await send(message)
                return
            if self._remote.cut:
                await send(message)
                self._remote.cut -= 1
            if self._remote.cut == 0:
                self._remote.cut = None
                raise _CutError

        return cut


def _replay(body: bytes, receive: Receive) -> Receive:
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again


class _Listener(grpc.aio.ServerInterceptor):
    """Records the requests over gRPC."""

    def __init__(self, remote: RemoteAgent) -> None:
        self._remote = remote

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["_Method | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "_Method | None":
        metadata = handler_call_details.invocation_metadata
        await self._remote.hear(handler_call_details.method, {key: str(value) for key, value in metadata})
        return await continuation(handler_call_details)


@asynccontextmanager
async def running_peer(
    *, version: str = "1.0", binding: str = "JSONRPC", streaming: bool = True
) -> AsyncGenerator[RemoteAgent]:
    """Serve a colleague that speaks one version over one binding."""
    remote = RemoteAgent()
    grpc_server = grpc.aio.server(interceptors=[_Listener(remote)])
    with socket.create_server((LOOPBACK, 0)) as listening:
        remote.url = f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        grpc_url = f"{LOOPBACK}:{grpc_server.add_insecure_port(f'{LOOPBACK}:0')}"
        url = f"{remote.url}/"
        if binding == "GRPC":
            url, remote.hosts = grpc_url, [grpc_url]
        handler = Handler(remote, _card(url, version, binding, streaming=streaming))
        remote.card = handler.card
        _serve_grpc(grpc_server, handler, version)
        await grpc_server.start()
        app = _Gate(Starlette(routes=_routes(handler, binding, is_legacy=version == "0.3")), remote)
        server = QuietServer(uvicorn.Config(app, log_config=None, lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield remote
        finally:
            remote.gate.set()
            server.should_exit = True
            await serving
            await grpc_server.stop(None)
            await handler.aclose()


def _serve_grpc(server: grpc.aio.Server, handler: Handler, version: str) -> None:
    if version == "0.3":
        a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), server)
    else:
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)


def _card(url: str, version: str, binding: str, *, streaming: bool) -> pb.AgentCard:
    interface = pb.AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
    return pb.AgentCard(
        name="Colleague",
        description="Does what it is told.",
        version="1",
        supported_interfaces=[interface],
        capabilities=pb.AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="all", name="All", description="Anything.", tags=["all"])],
    )


def _routes(handler: Handler, binding: str, *, is_legacy: bool) -> list[BaseRoute]:
    made = (
        create_jsonrpc_routes(handler, "/", enable_v0_3_compat=is_legacy)
        if binding == "JSONRPC"
        else create_rest_routes(handler, enable_v0_3_compat=is_legacy)
    )
    return [*create_agent_card_routes(handler.card), Route("/file", _file), *made]


async def _file(_request: Request) -> Response:
    return Response(FILE, media_type="application/x-two")

"""One connection to an MCP server, with the official SDK."""

import codecs
import json
import logging
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from http import HTTPStatus
from typing import Any, Protocol, cast

import httpx2
import structlog
from anyio import EndOfStream
from anyio.abc import ObjectReceiveStream
from mcp import Client, StdioServerParameters
from mcp.client.stdio import get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    Implementation,
    JSONRPCNotification,
    JSONRPCResponse,
    ServerNotification,
    ToolListChangedNotification,
)
from opentelemetry import propagate
from typing_extensions import Buffer

from everloop.agents.mcp import launcher
from everloop.agents.mcp.definition import McpDefinition
from everloop.agents.mcp.errors import Fault, McpUnavailableError
from everloop.agents.mcp.repair import repaired
from everloop.runtime.outbound.responses import (
    UNCOMPRESSED,
    AnswerBound,
    AnswerTooLargeError,
    bounding,
    check_encoding,
    is_event_stream,
)

# HTTP under MCP: the failure of one request becomes the answer to that request alone.
#
# The SDK ends a whole session, with all calls that are running in it, when one request cannot be sent, and
# hides the status of an error. Here both become JSON-RPC errors with the kind of failure.

CONNECTING = 10.0
"""Seconds to connect, and to send each piece of a request. Answers may take as long as their calls."""

CONNECTIONS = 1000
"""Maximum concurrent requests of one session; each call holds a connection until it is answered."""

SESSION_HEADER = "mcp-session-id"
_LONGEST_KIND = 100
"""Maximum characters of a content type."""


class FaultClient(httpx2.AsyncClient):
    """Sends requests with `headers`, and turns failures into JSON-RPC errors."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(
            headers={**UNCOMPRESSED, **headers},
            timeout=httpx2.Timeout(CONNECTING, read=None),
            limits=httpx2.Limits(max_connections=CONNECTIONS),
            event_hooks={"response": [_bound]},
        )

    async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:  # noqa: ANN401 -- the SDK's
        """Send a request of the SDK, in the trace of its call."""
        propagate.inject(request.headers)
        try:
            response = await super().send(request, **settings)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError):
            return _faulty(request, Fault.UNREACHABLE, 503)
        except httpx2.TransportError:
            return _faulty(request, Fault.LOST, 502)
        except AnswerTooLargeError:
            return _faulty(request, Fault.COMPRESSED, 502)
        fault = await _fault_of(request, response)
        if fault is None:
            return response
        await response.aclose()
        if fault is Fault.FOREIGN:
            kind = response.headers.get("content-type", "").partition(";")[0].strip()[:_LONGEST_KIND]
            answer = f"HTTP {response.status_code} with {kind or 'a body of no type'}"
            return _faulty(request, fault, 502, answer)
        return _faulty(request, fault, response.status_code)


async def _bound(response: httpx2.Response) -> None:
    """Limit the size of an answer; the SDK treats a larger one as unreadable."""
    check_encoding(response.headers)
    error = httpx2.SSEError if is_event_stream(response.headers) else httpx2.StreamError
    await bounding(error)(response)


_KINDS = ("application/json", "text/event-stream")
"""Content types of MCP answers."""


async def _fault_of(request: httpx2.Request, response: httpx2.Response) -> Fault | None:
    status, kind = response.status_code, response.headers.get("content-type", "").lower()
    if not response.is_error:
        is_answer = request.method == "POST" and status == HTTPStatus.OK
        return None if not is_answer or kind.startswith(_KINDS) else Fault.FOREIGN
    if status in {401, 403}:
        return Fault.REFUSED
    told = await _json_of(response) if kind.startswith(_KINDS[0]) else {}
    # 404 is specified by MCP; many servers built after the TypeScript SDK's examples send 400.
    if status in {400, 404} and SESSION_HEADER in request.headers and request.method == "POST":
        return None if _is_answer(told, request) else Fault.GONE
    if "error" in told and "jsonrpc" in told:
        return None
    return Fault.BUSY if status in {429, 503} else Fault.FAILED


async def _json_of(response: httpx2.Response) -> dict[str, Any]:
    try:
        told: object = json.loads(await response.aread())
    except (ValueError, RecursionError, httpx2.StreamError, httpx2.TransportError):
        return {}
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}


def _is_answer(told: Mapping[str, Any], request: httpx2.Request) -> bool:
    """Return True if an error is about this request, and not about its session."""
    asked: dict[str, Any] = json.loads(request.content)
    is_own = "error" in told and told.get("id") == asked.get("id", "")
    return is_own and "session" not in json.dumps(told["error"]).lower()


def _faulty(request: httpx2.Request, fault: Fault, status: int, answer: str = "") -> httpx2.Response:
    data = {"fault": fault.value, "answer": answer or f"HTTP {status}"}
    error = {"code": INTERNAL_ERROR, "message": fault.value, "data": data}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


# The messages of a server, over either transport.

Message = SessionMessage | Exception

_log = structlog.get_logger()


class MessageStream(Protocol):
    """Source of messages of the SDK's transports."""

    async def receive(self) -> Message: ...
    async def aclose(self) -> None: ...


class ServerStream(ObjectReceiveStream[Message]):
    """The messages of a server, with repaired results. Reports their end."""

    def __init__(
        self,
        stream: MessageStream,
        server: str,
        output_schemas: dict[str, object],
        on_end: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._server = server
        self._output_schemas = output_schemas
        self._on_end = on_end

    @property
    def last_context(self) -> Context | None:
        """The context of the last message's sender, in which the SDK handles it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Message:
        try:
            message = await self._stream.receive()
        except BaseException:
            self._on_end()
            raise
        match message:
            case SessionMessage(message=JSONRPCResponse() as response):
                response.result = repaired(response.result, self._server, self._output_schemas)
            case SessionMessage(message=JSONRPCNotification() as notice) if notice.method == LINE_TOO_LARGE:
                self._on_end()
                raise EndOfStream
            case _:
                pass
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()


# MCP servers that a command starts.

LINE_TOO_LARGE = "notifications/everloop/line_too_large"
"""Message in place of a line of a server that exceeds the limits; ends its session."""

_LINES = "everloop_mcp_lines"
"""Name of the encoding of servers."""


class LinesDecoder(codecs.IncrementalDecoder):
    """Decodes UTF-8 by whole lines, each of limited size.

    The SDK joins the pieces of a line by copying all of them for each piece, however long it becomes; the
    encoding is its only setting for how it reads.
    """

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors)
        self._bound = AnswerBound()
        self._pieces = list[bytes]()
        self._has_ended = False

    def decode(self, input: Buffer, final: bool = False) -> str:  # noqa: A002, FBT001, FBT002 -- as in the base class
        if self._has_ended:
            return ""
        piece = bytes(input)
        self._pieces.append(piece)
        try:
            self._bound.feed(piece)
        except AnswerTooLargeError as problem:
            _log.warning("MCP server ended", reason=f"a line is too large: {problem}")
            self._has_ended, self._pieces = True, []
            return f'\n{{"jsonrpc": "2.0", "method": "{LINE_TOO_LARGE}"}}\n'
        if b"\n" not in piece:
            return ""
        whole, self._pieces, self._bound = b"".join(self._pieces), [], AnswerBound()
        return self._utf8.decode(whole)


def _find_lines(name: str) -> codecs.CodecInfo | None:
    utf8 = codecs.lookup("utf-8")
    return (
        codecs.CodecInfo(utf8.encode, utf8.decode, incrementaldecoder=LinesDecoder)
        if name == _LINES
        else None
    )


codecs.register(_find_lines)


def _parameters(definition: McpDefinition) -> StdioServerParameters:
    words = [_executable(definition), *definition.command[1:]]
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), *words]
    return StdioServerParameters(
        command=words[0],
        args=words[1:],
        env=dict(definition.env),
        encoding=_LINES,
        encoding_error_handler="replace",  # a log line in another encoding would end all reading
    )


def _executable(definition: McpDefinition) -> str:
    """Return the path of the command; a launcher could not report a missing one."""
    path = definition.env.get("PATH", get_default_environment().get("PATH"))
    if found := shutil.which(definition.command[0], path=path):
        return found
    raise McpUnavailableError(
        f"the command {definition.command[0]!r} of the MCP server {definition.label!r} was not found; "
        "install it where the worker runs, or give its full path"
    )


READING = 30.0
"""Timeout in seconds of requests other than tool calls."""

LARGEST_EVENT = 64 * 1024 * 1024
"""Maximum bytes of one server-sent event; an image or a file comes in one."""

for _module in ("mcp", "httpx2", "httpcore2"):
    # They log session ids, URLs with secrets, and stacks; failures are reported by errors.
    logging.getLogger(_module).setLevel(logging.CRITICAL)

_US = Implementation(name="everloop", version="1")


def connection_to(
    definition: McpDefinition,
    headers: Mapping[str, str],
    *,
    output_schemas: dict[str, object],
    on_change: Callable[[], None],
    on_end: Callable[[], None],
) -> Client:
    """Return a connection that is not open yet; it has to be opened and closed by the same task.

    `output_schemas` gets those of listed tools. `on_change` is called when the server's tools have changed,
    `on_end` when it has ended. It cannot request anything of us (sampling, elicitation, roots), and its log
    messages are dropped.
    """

    async def notice(message: ServerNotification | Exception) -> None:
        if isinstance(message, ToolListChangedNotification):
            on_change()

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        async with _transport(definition, headers) as (read, write):
            yield ServerStream(read, definition.label, output_schemas, on_end), write

    return Client(
        transport(),
        read_timeout_seconds=READING,
        message_handler=notice,
        client_info=_US,
        cache=None,
    )


@asynccontextmanager
async def _transport(definition: McpDefinition, headers: Mapping[str, str]) -> AsyncGenerator[Any]:
    """Connect to the server, or start it and end it with the block: SIGTERM and SIGKILL follow 2 s apart.

    Its standard error goes to that of this process, even if `sys.stderr` was replaced.

    Raises:
        McpUnavailableError: the command does not exist, or no client can be made.
    """
    if definition.command:
        async with stdio_client(_parameters(definition), sys.__stderr__ or sys.stderr) as streams:
            yield streams
        return
    async with (
        _http_client(definition, headers) as client,
        streamable_http_client(
            definition.url, http_client=client, max_sse_event_size=LARGEST_EVENT
        ) as streams,
    ):
        yield streams


def _http_client(definition: McpDefinition, headers: Mapping[str, str]) -> FaultClient:
    try:
        return FaultClient(headers)
    except OSError as error:
        raise McpUnavailableError(
            f"the MCP server {definition.label!r} cannot be asked: SSL_CERT_FILE or SSL_CERT_DIR names "
            f"certificates that cannot be read ({error.strerror}); correct or unset it"
        ) from None

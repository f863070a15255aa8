"""A model provider for tests: a real HTTP server with scripted replies, by default Chat Completions."""

import asyncio
import json
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self
from uuid import uuid4

import uvicorn
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from everloop.local.servers import LOOPBACK
from tests.support.seeded_secrets import seed_json

Delta = dict[str, JsonValue]
_EVENT_STREAM = (b"content-type", b"text/event-stream")


@dataclass(frozen=True)
class Reasoning:
    """A piece of reasoning, in a field of the delta that is not part of the API."""

    text: str
    field: str = "reasoning_content"


ANY_ID = "…"
"""Stands for an id that differs in each played reply, as with real providers."""


@dataclass(frozen=True)
class CallFragment:
    """A piece of a tool call; None leaves the field out."""

    index: int | None = 0
    id: str | None = None
    name: str | None = None
    arguments: str | None = None


@dataclass(frozen=True)
class Raw:
    """The data of one server-sent event, as it is."""

    data: str


Step = str | Reasoning | CallFragment | Raw | asyncio.Event
"""A step of a reply: a text or another part to send, or an event of the test to wait for."""


@dataclass(frozen=True)
class Reply:
    """A streamed completion.

    `finish_reason` follows from the steps by default. `usage` is (input, output) tokens, None for none.
    `ending`: "done"; "bare" gives no finish reason; "quiet" ends the body after the last step; "cut" loses
    the connection there.
    """

    steps: Sequence[Step] = ()
    usage: tuple[int, int] | None = (10, 5)
    finish_reason: str = ""
    ending: Literal["done", "bare", "quiet", "cut"] = "done"


@dataclass(frozen=True)
class Refusal:
    """An HTTP error in OpenAI's shape."""

    status: int
    code: str | None = None
    message: str = "refused"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class ReceivedRequest:
    """A client's request. `disconnected` is set when the client left before the reply was over."""

    body: dict[str, JsonValue]
    headers: Mapping[str, str]
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def messages(self) -> list[JsonValue]:
        messages = self.body["messages"] if "messages" in self.body else self.body["input"]
        assert isinstance(messages, list)
        return messages

    @property
    def conversation(self) -> list[dict[str, JsonValue]]:
        """The messages, each as an object."""
        return [message for message in self.messages if isinstance(message, dict)]

    @property
    def tool_results(self) -> list[str]:
        """The results of tools, in order."""
        chat = [message["content"] for message in self.conversation if message.get("role") == "tool"]
        items = (item["output"] for item in self.conversation if item.get("type") == "function_call_output")
        return [str(result) for result in (*chat, *items)]


@dataclass(frozen=True)
class Whole:
    """A JSON body, regardless of the request."""

    body: JsonValue


@dataclass(frozen=True)
class Wire:
    """An answer byte for byte, in the pieces that are written.

    `is_cut`: then the connection is lost. `is_silent`: then nothing follows, until the client leaves.
    """

    pieces: Sequence[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    is_cut: bool = False
    is_silent: bool = False


Answer = Reply | Refusal | Whole | Wire
Script = Sequence[Answer] | Callable[[ReceivedRequest], Answer]


def _said(message: dict[str, JsonValue]) -> JsonValue:
    """Return the text of a message of any role; a system prompt is the operator's own."""
    if message.get("role") == "system":
        return None
    calls = message.get("tool_calls")
    asked = [call["function"] for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    item = [message.get("arguments"), message.get("output")]  # of the Responses API
    return [message.get("content"), *item, *(one.get("arguments") for one in asked if isinstance(one, dict))]


def _written(reply: Reply) -> JsonValue:
    """Return the model's text, and the arguments of its calls."""
    fragments = [step.arguments for step in reply.steps if isinstance(step, CallFragment)]
    return ["".join(step for step in reply.steps if isinstance(step, str)), *fragments]


def tool_call(name: str, arguments: str = "{}", *, index: int = 0) -> CallFragment:
    """Return a complete tool call with a new id."""
    return CallFragment(index, ANY_ID, name, arguments)


def by_model(**scripts: list[Answer]) -> Script:
    """Return a script that dispatches to a script for each model."""
    return lambda received: scripts[str(received.body["model"])].pop(0)


class ScriptedOpenAI:
    """Serves POST /v1/chat/completions and /v1/responses while the `async with` block runs.

    The script is a list of answers, in the order of the requests, or a function that answers a request. A
    request after the end of the list is refused with status 400, which no client retries. It listens on
    `listener` if given, otherwise on a loopback socket of its own.
    """

    def __init__(self, script: Script = (), listener: socket.socket | None = None) -> None:
        self._listener = listener
        self.requests: list[ReceivedRequest] = []
        self.script = script
        self._arrivals = asyncio.Condition()
        self._playing: set[asyncio.Task[None]] = set()

    @property
    def playing(self) -> int:
        """The number of replies that are being streamed."""
        return len(self._playing)

    def requests_of(self, model: str) -> list[ReceivedRequest]:
        return [received for received in self.requests if received.body["model"] == model]

    async def request(self, number: int) -> ReceivedRequest:
        """Wait for a request, counted from 1."""
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def __aenter__(self) -> Self:
        # The socket listens already, so that clients need not wait for the server.
        self._socket = self._listener or socket.create_server((LOOPBACK, 0))
        host, port = self._socket.getsockname()
        self.base_url = f"http://{host}:{port}/v1"
        paths = ("/v1/chat/completions", "/v1/responses")
        routes = [Route(path, self._complete, methods=["POST"]) for path in paths]
        self._server = QuietServer(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._playing:
            task.cancel()
        self._server.should_exit = True
        await self._serving
        self._socket.close()

    async def _complete(self, request: Request) -> Response:
        received = ReceivedRequest(await request.json(), dict(request.headers))
        seed_json([_said(message) for message in received.conversation])
        async with self._arrivals:
            self.requests.append(received)
            number = len(self.requests)
            self._arrivals.notify_all()
        answer = self._answer(received, number)
        if isinstance(answer, Refusal):
            error = {"message": answer.message, "type": None, "param": None, "code": answer.code}
            return JSONResponse({"error": error}, answer.status, answer.headers)
        if isinstance(answer, Whole):
            seed_json(answer.body)
            return JSONResponse(answer.body)
        if not isinstance(answer, Wire):
            seed_json(_written(answer))
        return _Stream(answer, received, self._playing)

    def _answer(self, received: ReceivedRequest, number: int) -> Answer:
        if callable(self.script):
            return self.script(received)
        if number > len(self.script):
            return Refusal(400, "script_is_over", f"the script has {len(self.script)} answers")
        return self.script[number - 1]


class QuietServer(uvicorn.Server):
    """A server inside a test run."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the test run."""
        yield


class _CutError(Exception):
    """Makes the server drop the connection in the middle of a body."""


class _Stream(Response):
    """Plays one reply and records a disconnect of the client."""

    def __init__(
        self, reply: Reply | Wire, received: ReceivedRequest, playing: set[asyncio.Task[None]]
    ) -> None:
        super().__init__()
        self._reply = reply
        self._received = received
        self._playing = playing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = self._reply
        play = asyncio.create_task(
            _write(reply, send) if isinstance(reply, Wire) else self._play(reply, send)
        )
        watch = asyncio.create_task(_disconnection(receive))
        self._playing.add(play)
        try:
            await asyncio.wait((play, watch), return_when=asyncio.FIRST_COMPLETED)
            if not play.done():
                self._received.disconnected.set()
        finally:
            self._playing.discard(play)
            watch.cancel()
            play.cancel()
            (outcome, _) = await asyncio.gather(play, watch, return_exceptions=True)
        if isinstance(outcome, _CutError):
            raise outcome

    async def _play(self, reply: Reply, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [_EVENT_STREAM]})
        for step in reply.steps:
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                await _send_event(send, step.data if isinstance(step, Raw) else self._chunk(_delta(step)))
        if reply.ending == "cut":
            raise _CutError
        if reply.ending == "bare":
            await _send_event(send, "[DONE]")
        if reply.ending == "done":
            for data in self._closing_events(reply):
                await _send_event(send, data)
        await send({"type": "http.response.body", "body": b""})

    def _closing_events(self, reply: Reply) -> list[str]:
        asks = any(isinstance(step, CallFragment) for step in reply.steps)
        finish_reason = reply.finish_reason or ("tool_calls" if asks else "stop")
        events = [self._chunk({}, finish_reason=finish_reason)]
        if reply.usage and self._received.body.get("stream_options") == {"include_usage": True}:
            sent, written = reply.usage
            usage = {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written}
            events.append(self._event({"choices": [], "usage": {**usage}}))
        return [*events, "[DONE]"]

    def _chunk(self, delta: Delta, finish_reason: str | None = None) -> str:
        return self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})

    def _event(self, content: dict[str, JsonValue]) -> str:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0}
        return json.dumps({**head, "model": self._received.body["model"], **content})


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(wire: Wire, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in wire.headers.items()]
    await send({"type": "http.response.start", "status": wire.status, "headers": headers})
    for piece in wire.pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    if wire.is_cut:
        raise _CutError
    if wire.is_silent:
        await asyncio.Event().wait()
    await send({"type": "http.response.body", "body": b""})


async def _send_event(send: Send, data: str) -> None:
    await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True})


def _delta(step: str | Reasoning | CallFragment) -> Delta:
    if isinstance(step, str):
        return {"content": step}
    if isinstance(step, Reasoning):
        return {step.field: step.text}
    function = {"name": step.name, "arguments": step.arguments}
    fragment: Delta = {"function": {key: value for key, value in function.items() if value is not None}}
    if step.index is not None:
        fragment["index"] = step.index
    if step.id is not None:
        fragment["id"] = f"call_{uuid4().hex[:24]}" if step.id == ANY_ID else step.id
    return {"tool_calls": [fragment]}

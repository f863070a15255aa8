"""A model without latency: Chat Completions, streamed, as the last message of the user orders.

`python -m bench.servers.model PORT`. Where no stream is asked for it replies as a whole. The message is a
JSON object: `{"iterations": n, "size": s}` asks for the tool `produce` (or `"tool"`) with size s (or with
`"arguments"`) until n results are there, and with `"asks": true` then for the tool `ask`;
`{"megabytes": n}` asks once for the tool `write_file` with size n; `{"answer": n}` has an answer of n
characters; `{"tokens": n, "rate": r}` writes n tokens, r a second, each with its time (`bench.orders`).
"""

import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import NotRequired, TypedDict
from uuid import uuid4

import orjson
import uvicorn
from starlette.types import Receive, Scope, Send

from bench.orders import Order, prose, stamped_tokens
from everloop.local.servers import LOOPBACK

HEADERS = [(b"content-type", b"text/event-stream")]
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
DONE = "done"
JSON = [(b"content-type", b"application/json")]


class ChatMessage(TypedDict):
    """A message of the request, as far as it matters here."""

    role: str
    content: str


class ChatRequest(TypedDict):
    """The request, as far as it matters here."""

    messages: list[ChatMessage]
    stream: NotRequired[bool]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any request, as a raw ASGI application: a framework would cost more than the answer."""
    request: ChatRequest = orjson.loads(await _body(receive))
    if not request.get("stream"):
        await send({"type": "http.response.start", "status": 200, "headers": JSON})
        await send({"type": "http.response.body", "body": _whole(request["messages"])})
        return
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    async for data in _answer(request["messages"]):
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


async def _answer(messages: list[ChatMessage]) -> AsyncGenerator[bytes]:
    """Yield server-sent events; those that belong to one moment in one piece."""
    order, call = _next_call(messages)
    if call:
        yield b"".join((_chunk({"tool_calls": [{"index": 0, **call}]}), *_end("tool_calls")))
    elif tokens := order.get("tokens", 0):
        async for token in stamped_tokens(tokens, order.get("rate", 1.0)):
            yield _chunk({"content": token})
        yield b"".join(_end("stop"))
    else:
        yield b"".join((_chunk({"content": _text(order)}), *_end("stop")))


def _whole(messages: list[ChatMessage]) -> bytes:
    order, call = _next_call(messages)
    said = {"content": None, "tool_calls": [call]} if call else {"content": _text(order)}
    choice = {"index": 0, "finish_reason": "tool_calls" if call else "stop"}
    choices = [{**choice, "message": {"role": "assistant", **said}}]
    completion = {"id": "bench", "object": "chat.completion", "created": 0, "model": "bench"}
    return orjson.dumps({**completion, "choices": choices, "usage": USAGE})


def _text(order: Order) -> str:
    return prose(order["answer"]) if "answer" in order else DONE


def _next_call(messages: list[ChatMessage]) -> tuple[Order, dict[str, object] | None]:
    """Return what is ordered, and the tool call that is to come next; None for the answer."""
    order: Order = orjson.loads(next(m["content"] for m in reversed(messages) if m["role"] == "user"))
    done = sum(message["role"] == "tool" for message in messages)
    if done < order.get("iterations", 0):
        arguments = order.get("arguments") or {"size": order.get("size", 0)}
        return order, _tool_call(order.get("tool", "produce"), arguments)
    if done == order.get("iterations", 0) and order.get("asks"):
        return order, _tool_call("ask", {})
    if not done and (megabytes := order.get("megabytes")):
        return order, _tool_call("write_file", {"size": megabytes})
    return order, None


def _tool_call(name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
    return {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function}


def _end(finish_reason: str) -> Iterator[bytes]:
    yield _chunk({}, finish_reason)
    yield _event({"choices": [], "usage": USAGE})
    yield b"data: [DONE]\n\n"


def _chunk(delta: dict[str, object], finish_reason: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def _event(fields: dict[str, object]) -> bytes:
    chunk = {"id": "bench", "object": "chat.completion.chunk", "created": 0, "model": "bench", **fields}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


if __name__ == "__main__":
    uvicorn.run(app, host=LOOPBACK, port=int(sys.argv[1]), lifespan="off", log_level="warning")

"""A model without latency: Chat Completions, streamed, as the last message of the user orders.

`python -m bench.servers.model PORT`. The message is a JSON object:
`{"iterations": n, "size": s}` asks for the tool `produce` with size s until n results are there;
`{"megabytes": n}` asks once for the tool `write_file` with size n;
`{"tokens": n, "rate": r}` writes n tokens, r a second, each with its time (`bench.tokens`).
"""

import sys
from collections.abc import AsyncGenerator, Iterator
from typing import TypedDict
from uuid import uuid4

import orjson
import uvicorn
from starlette.types import Receive, Scope, Send

from bench.tokens import stamped_tokens
from everloop.deploy.local.servers import LOOPBACK

HEADERS = [(b"content-type", b"text/event-stream")]


class Order(TypedDict, total=False):
    """What the user's message orders."""

    iterations: int
    size: int
    megabytes: int
    tokens: int
    rate: float


class ChatMessage(TypedDict):
    """A message of the request, as far as it matters here."""

    role: str
    content: str


class ChatRequest(TypedDict):
    """The request, as far as it matters here."""

    messages: list[ChatMessage]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any request, as a raw ASGI application: a framework would cost more than the answer."""
    request: ChatRequest = orjson.loads(await _body(receive))
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
    order: Order = orjson.loads(next(m["content"] for m in reversed(messages) if m["role"] == "user"))
    done = sum(message["role"] == "tool" for message in messages)
    if done < order.get("iterations", 0):
        yield b"".join(_tool_call("produce", order.get("size", 0)))
    elif not done and (megabytes := order.get("megabytes")):
        yield b"".join(_tool_call("write_file", megabytes))
    elif tokens := order.get("tokens", 0):
        async for token in stamped_tokens(tokens, order.get("rate", 1.0)):
            yield _chunk({"content": token})
        yield b"".join(_end("stop"))
    else:
        yield b"".join((_chunk({"content": "done"}), *_end("stop")))


def _tool_call(name: str, size: int) -> Iterator[bytes]:
    function = {"name": name, "arguments": f'{{"size":{size}}}'}
    yield _chunk(
        {
            "tool_calls": [
                {"index": 0, "id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function}
            ]
        }
    )
    yield from _end("tool_calls")


def _end(finish_reason: str) -> Iterator[bytes]:
    yield _chunk({}, finish_reason)
    yield _event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
    yield b"data: [DONE]\n\n"


def _chunk(delta: dict[str, object], finish_reason: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def _event(fields: dict[str, object]) -> bytes:
    chunk = {"id": "bench", "object": "chat.completion.chunk", "created": 0, "model": "bench", **fields}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


if __name__ == "__main__":
    uvicorn.run(app, host=LOOPBACK, port=int(sys.argv[1]), lifespan="off", log_level="warning")

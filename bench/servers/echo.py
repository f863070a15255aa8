"""The floor of streaming: a bare server of events and bytes (`python -m bench.servers.echo PORT`)."""

import sys
from collections.abc import AsyncGenerator

import uvicorn
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from bench.agent import megabytes
from bench.orders import stamped_tokens
from everloop.local.servers import LOOPBACK


async def stream(request: Request) -> EventSourceResponse:
    """Send `tokens` tokens, `rate` a second."""
    count, rate = int(request.query_params["tokens"]), float(request.query_params["rate"])
    return EventSourceResponse({"data": token} async for token in stamped_tokens(count, rate))


async def send_bytes(request: Request) -> StreamingResponse:
    """Send `megabytes` MiB."""

    async def pieces() -> AsyncGenerator[bytes]:
        for piece in megabytes(int(request.query_params["megabytes"])):
            yield piece

    return StreamingResponse(pieces())


app = Starlette(routes=[Route("/", stream), Route("/bytes", send_bytes)])

if __name__ == "__main__":
    uvicorn.run(app, host=LOOPBACK, port=int(sys.argv[1]), log_level="warning")

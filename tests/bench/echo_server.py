"""The floor of streaming: a bare server of server-sent events (`python -m tests.bench.echo_server PORT`)."""

import sys

import uvicorn
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from deploy.local.servers import LOOPBACK
from tests.bench.tokens import stamped_tokens


async def stream(request: Request) -> EventSourceResponse:
    """Send `tokens` tokens, `rate` a second."""
    count, rate = int(request.query_params["tokens"]), float(request.query_params["rate"])
    return EventSourceResponse({"data": token} async for token in stamped_tokens(count, rate))


app = Starlette(routes=[Route("/", stream)])

if __name__ == "__main__":
    uvicorn.run(app, host=LOOPBACK, port=int(sys.argv[1]), log_level="warning")

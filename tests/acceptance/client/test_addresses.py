"""Addresses of gateways and agents, as users pass them to a client."""

import asyncio
import socket

import pytest
import uvicorn
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from everloop.client import Client
from everloop.local.servers import LOOPBACK
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION, HTTP_EXTENSION
from tests.acceptance.client.test_scripted_servers import Json, task
from tests.support.servers.scripted_openai import QuietServer

CARD = "/.well-known/agent-card.json"
INSIDE = "http://inside.example:8080"
"""Addresses in the card of a gateway without a setting for its public path."""

V1 = "/ai/agents/v1"
ADDRESSES: list[tuple[str, str, str | None, str]] = [
    (V1, V1, None, ""),
    (V1, f"{V1}/", "desk", "/agents/desk"),
    (V1, f"{V1}/agents/desk", None, "/agents/desk"),
    (V1, f"{V1}/agents/lead", "desk", "/agents/desk"),
    (V1, f"{V1}{CARD}", None, ""),
    (V1, f"{V1}/agents/desk{CARD}", None, "/agents/desk"),
    ("/ai", "/ai/agents/lead", "desk", "/agents/desk"),
    ("", "/agents/desk", None, "/agents/desk"),
    ("", "", None, ""),
]
"""The address of a gateway, the client's argument, and the path of its calls below the gateway."""


@pytest.mark.parametrize("public", ["", INSIDE])
@pytest.mark.parametrize(("base", "url", "agent", "called"), ADDRESSES)
async def test_an_address_of_a_gateway_may_have_a_segment_called_agents(
    base: str, url: str, agent: str | None, called: str, public: str
) -> None:
    """It is kept unchanged, for A2A and for other calls, whatever address the card has."""
    asked = list[str]()

    async def card(request: Request) -> Response:
        path = request.url.path.removesuffix(CARD)
        of_agent = path.removeprefix(base)
        name = public or f"{origin}{base}"
        if of_agent == "/agents/desk":
            address = f"{name}/agents/desk/"
        elif of_agent in {"", "/agents/lead"}:  # the default agent
            address = f"{name}/"
        else:
            return Response(status_code=404)
        extension: Json = {
            "uri": HTTP_EXTENSION,
            "params": {"base": ("" if public else base) + "/beside/v1"},
        }
        interface: Json = {"url": address, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        extensions: list[JsonValue] = [{"uri": EVENTS_EXTENSION}, extension]
        return JSONResponse(
            {
                "name": "Here",
                "supportedInterfaces": [interface],
                "capabilities": {"streaming": True, "extensions": extensions},
            }
        )

    async def call(request: Request) -> Response:
        asked.append(request.url.path)
        if request.method == "GET":
            return JSONResponse([] if request.url.path.endswith("/agents") else {"questions": []})
        sent = await request.json()
        known = task("COMPLETED")["task"]
        return JSONResponse({"jsonrpc": "2.0", "id": sent["id"], "result": known})

    routes = [
        Route(f"/{{rest:path}}{CARD}", card),
        Route(CARD, card),
    ]
    routes += [Route("/{rest:path}", call, methods=["GET", "POST"])]
    with socket.create_server((LOOPBACK, 0)) as listening:
        origin = f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        server = QuietServer(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with Client(f"{origin}{url}", agent=agent) as client:
                await client.task("t")
                await client.agents()
                _ = [question async for question in client.questions()]
        finally:
            server.should_exit = True
            await serving
    assert asked == [f"{base}{called}/", f"{base}/agents", f"{base}/beside/v1/questions"]

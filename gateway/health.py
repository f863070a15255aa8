"""Probes: is the process alive, and can it serve."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

PROBE_TIMEOUT = 2.0
"""Seconds that a server has to answer in."""

Probe = Callable[[], Awaitable[object]]


def health_routes(probes: Mapping[str, Probe]) -> list[Route]:
    """Return /healthz, which answers while the process runs, and /readyz, which asks each server we need."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        outcomes = await asyncio.gather(*(_outcome(probe) for probe in probes.values()))
        ready = all(outcome == "ok" for outcome in outcomes)
        return JSONResponse(
            {
                "status": "ready" if ready else "unavailable",
                "checks": dict(zip(probes, outcomes, strict=True)),
            },
            status_code=200 if ready else 503,
        )

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


async def _outcome(probe: Probe) -> str:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            await probe()
    except TimeoutError:
        return f"no answer in {PROBE_TIMEOUT:g} s"
    except Exception as error:  # noqa: BLE001 -- whatever is wrong with a server, we are not ready
        return f"failed: {type(error).__name__}"
    return "ok"

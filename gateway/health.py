"""Probes: is the process alive, and can it serve."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

PROBE_TIMEOUT = 2.0
"""Seconds that a server has to answer in."""

ANSWER_HOLDS = 1.0
"""Seconds for which all who ask get the same answer: strangers may ask, as often as they like."""

Probe = Callable[[], Awaitable[object]]


def health_routes(probes: Mapping[str, Probe], clock: Callable[[], float] = time.monotonic) -> list[Route]:
    """Return /healthz, which answers while the process runs, and /readyz, which asks each server we need.

    `clock` counts seconds.
    """
    readiness = _Readiness(probes, clock)

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        outcomes = await readiness.outcomes()
        ready = all(outcome == "ok" for outcome in outcomes.values())
        return JSONResponse(
            {"status": "ready" if ready else "unavailable", "checks": outcomes},
            status_code=200 if ready else 503,
        )

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


class _Readiness:
    """Asks the servers once for all who want to know within a second, and never twice at a time."""

    def __init__(self, probes: Mapping[str, Probe], clock: Callable[[], float]) -> None:
        self._probes = probes
        self._clock = clock
        self._asking: asyncio.Task[Mapping[str, str]] | None = None
        self._answered_at = 0.0

    async def outcomes(self) -> Mapping[str, str]:
        """Return what each server answered. A caller who leaves does not stop it for the others."""
        asking = self._asking
        if asking is None or (asking.done() and self._clock() - self._answered_at >= ANSWER_HOLDS):
            asking = self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(asking)

    async def _ask(self) -> Mapping[str, str]:
        outcomes = await asyncio.gather(*(outcome_of(probe) for probe in self._probes.values()))
        self._answered_at = self._clock()
        return dict(zip(self._probes, outcomes, strict=True))


async def outcome_of(probe: Probe) -> str:
    """Return "ok" if the server answered in time, or else what was wrong."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            await probe()
    except TimeoutError:
        return f"no answer in {PROBE_TIMEOUT:g} s"
    except Exception as error:  # noqa: BLE001 -- whatever is wrong with a server, we are not ready
        return f"failed: {type(error).__name__}"
    return "ok"

"""Removes artifacts whose time to live is over, and blobs that no artifact names."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from gateway.errors import STORE_FAILURES
from stores.blobs import BlobError

HOUSEKEEPING_PAUSE = 300.0
"""Seconds between two rounds."""

_log = structlog.get_logger()


class Housekeeping:
    """Does a round every few minutes. Any number of processes may do so at once."""

    def __init__(
        self, run_once: Callable[[], Awaitable[object]], *, pause: float = HOUSEKEEPING_PAUSE
    ) -> None:
        self._run_once = run_once
        self._pause = pause
        self._failing: type[Exception] | None = None

    async def run(self) -> None:
        """Do rounds until cancelled; what fails is logged once and tried again."""
        while True:
            await self.round()
            await asyncio.sleep(self._pause)

    async def round(self) -> None:
        """Do one round."""
        try:
            await self._run_once()
        except Exception as error:  # noqa: BLE001 -- no defect may end it silently
            if self._failing is not type(error):
                is_defect = not isinstance(error, (BlobError, *STORE_FAILURES))
                _log.warning("cannot clean up artifacts now", error=str(error), exc_info=is_defect)
            self._failing = type(error)
        else:
            self._failing = None

"""An orderly end on Ctrl-C and on the signals of service managers."""

import asyncio
import signal
from collections.abc import Coroutine

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_until_signal(work: Coroutine[None, None, int]) -> int | None:
    """Run the work and return its exit code; cancel it at SIGINT, SIGTERM or SIGHUP and return None.

    A second signal interrupts what the work still does after the first.
    """
    return asyncio.run(_run(work))


async def _run(work: Coroutine[None, None, int]) -> int | None:
    running = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return None

"""A bare Temporal worker with the settings of ours: `python -m bench.servers.floor_worker`."""

import asyncio
import os
import signal
import sys
from datetime import timedelta

import uvloop
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from bench.servers.floor_workflow import Floor, act, ask
from everloop.runtime.temporal.connection import connect_temporal
from everloop.worker import CANCELLATION_LATENCY, WorkerSettings

READY = "floor worker ready"


async def run() -> None:
    """Work until SIGTERM; the options are those of `worker.py`."""
    settings = WorkerSettings()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Worker(
        await connect_temporal(),
        task_queue=settings.task_queue,
        workflows=[Floor],
        activities=[ask, act],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=settings.max_cached_workflows,
        tuner=settings.tuner(settings.task_queue),
        workflow_task_poller_behavior=settings.pollers,
        activity_task_poller_behavior=settings.pollers,
        graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_grace),
        default_heartbeat_throttle_interval=CANCELLATION_LATENCY,
        max_heartbeat_throttle_interval=CANCELLATION_LATENCY,
    ):
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        await stopping.wait()


if __name__ == "__main__":
    uvloop.run(run())
    # Temporal's native threads may abort an interpreter that tears itself down.
    os._exit(0)

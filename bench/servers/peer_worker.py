"""A bare worker with the settings of ours: `python -m bench.servers.peer_worker floor`, or `naive`."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from importlib import import_module

import uvloop
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from everloop.worker import CANCELLATION_LATENCY, LOST_WORKER_TIMEOUT
from everloop.workers.settings import WorkerSettings

READY = "peer worker ready"


async def run(peer: str) -> None:
    """Work until SIGTERM; the options are those of `worker.py`."""
    settings, module = WorkerSettings(), import_module(f"bench.servers.{peer}")
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Worker(
        await Client.connect(os.environ["TEMPORAL_ADDRESS"]),
        task_queue=settings.task_queue,
        workflows=[module.WORKFLOW],
        activities=module.ACTIVITIES,
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=settings.max_cached_workflows,
        tuner=settings.tuner(settings.task_queue),
        workflow_task_poller_behavior=settings.pollers,
        activity_task_poller_behavior=settings.pollers,
        sticky_queue_schedule_to_start_timeout=LOST_WORKER_TIMEOUT,
        graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_grace),
        default_heartbeat_throttle_interval=CANCELLATION_LATENCY,
        max_heartbeat_throttle_interval=CANCELLATION_LATENCY,
    ):
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        await stopping.wait()


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1]))
    # Temporal's native threads may abort an interpreter that tears itself down.
    os._exit(0)

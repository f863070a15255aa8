"""Eviction of tasks that wait for people from a worker's workflow cache."""

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from temporalio.worker import Interceptor, Worker, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from everloop.workflows.contract.names import PARKED

EVICT_AFTER = timedelta(minutes=1)
"""Time until a waiting task is evicted."""


class ParkedTaskEviction(Interceptor):
    """Evicts tasks that wait for people; they are replayed when they continue.

    The SDK has no setting for this: it evicts when the cache is full. Workflows report that they wait
    (`everloop.workflows.scope.parked`) from the threads in which they run.
    """

    def __init__(self, evict_after: timedelta = EVICT_AFTER) -> None:
        self._evict_after = evict_after.total_seconds()
        self._since: dict[str, float] = {}

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 -- the SDK's
    ) -> type[WorkflowInboundInterceptor] | None:
        input.unsafe_extern_functions[PARKED] = self._parked
        return None

    async def run(self, workers: Sequence[Worker]) -> None:
        """Evict waiting tasks while these workers run."""
        caches = [worker for worker in workers if worker.config().get("workflows")]
        while caches:
            await asyncio.sleep(self._evict_after / 4)
            for run_id, since in self._since.copy().items():
                if time.monotonic() - since >= self._evict_after:
                    self._since.pop(run_id, None)
                    for worker in caches:  # what one is doing with the task just now is done first
                        worker._bridge_worker.request_workflow_eviction(run_id)  # noqa: SLF001 -- there is no other way  # pyright: ignore[reportPrivateUsage] -- likewise

    @contextmanager
    def _parked(self, run_id: str) -> Generator[None]:
        self._since[run_id] = time.monotonic()
        try:
            yield
        finally:
            self._since.pop(run_id, None)

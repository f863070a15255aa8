"""What heartbeats carry from one attempt to the next, on a real server."""

from datetime import timedelta
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from everloop.activities.lease import heartbeating


@activity.defn
async def count() -> int:
    """Count a failure in the first and the third attempt, and fail in the first two."""
    async with heartbeating() as heartbeat:
        match activity.info().attempt:
            case 1:
                heartbeat.count_failure()
                raise RuntimeError
            case 2:
                raise RuntimeError
            case _:
                return heartbeat.count_failure()


@workflow.defn
class Counting:
    """Runs the activity until it succeeds."""

    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(
            count,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10)),
        )


async def test_failures_are_counted_across_attempts(temporal_address: str) -> None:
    """The count survives an attempt that failed at once, and one that counted nothing."""
    client, queue = await Client.connect(temporal_address), str(uuid4())
    async with Worker(
        client,
        task_queue=queue,
        build_id="test",
        workflows=[Counting],
        activities=[count],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        assert await client.execute_workflow(Counting.run, id=queue, task_queue=queue) == 2

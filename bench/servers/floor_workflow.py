"""The floor of durable work: two activities an iteration that do nothing and carry nothing."""

from datetime import timedelta

from temporalio import activity, workflow

TIMEOUT = timedelta(seconds=30)


@activity.defn
async def ask() -> None:
    """Stand where the model is called."""


@activity.defn
async def act() -> None:
    """Stand where a tool runs."""


@workflow.defn
class Floor:
    """Iterates as a task does."""

    @workflow.run
    async def run(self, iterations: int) -> None:
        for _ in range(iterations):
            await workflow.execute_activity(ask, start_to_close_timeout=TIMEOUT)
            await workflow.execute_activity(act, start_to_close_timeout=TIMEOUT)

"""The floor of durable work: two activities an iteration, of which the second returns what a tool returns."""

from datetime import timedelta

from temporalio import activity, workflow

from bench.orders import Order, prose

TIMEOUT = timedelta(seconds=30)


@activity.defn
async def ask() -> None:
    """Stand where the model is called."""


@activity.defn
async def act(size: int) -> str:
    """Stand where a tool runs."""
    return prose(size)


@workflow.defn
class Floor:
    """Iterates as a task does; `turns` are how often it is spoken to."""

    def __init__(self) -> None:
        self._messages = 1

    @workflow.run
    async def run(self, order: Order, turns: int) -> None:
        for _ in range(order.get("iterations", 0)):
            await workflow.execute_activity(ask, start_to_close_timeout=TIMEOUT)
            await workflow.execute_activity(act, order.get("size", 0), start_to_close_timeout=TIMEOUT)
        for turn in range(1, turns):
            await workflow.wait_condition(lambda: self._messages > turn)  # noqa: B023 -- it ends before the next turn
            await workflow.execute_activity(ask, start_to_close_timeout=TIMEOUT)

    @workflow.signal
    def say(self, order: Order) -> None:
        """Take in one more message."""
        self._messages += 1


WORKFLOW, ACTIVITIES = Floor, [ask, act]

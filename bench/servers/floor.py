"""The floor of durable work: two activities per iteration, of which the second returns a tool's result."""

from datetime import timedelta

from temporalio import activity, workflow

from bench.orders import Order, prose

TIMEOUT = timedelta(seconds=30)


@activity.defn
async def ask() -> None:
    """Stand in for the model call."""


@activity.defn
async def act(size: int) -> str:
    """Stand in for a tool."""
    return prose(size)


@workflow.defn
class Floor:
    """Workflow that iterates as a task does; `turns` is the number of its messages."""

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
        """Accept one more message."""
        self._messages += 1


WORKFLOW, ACTIVITIES = Floor, [ask, act]

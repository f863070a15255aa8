"""Notification of each new status of a task, and of nothing else."""

from collections.abc import Sequence

import pytest
from redis.asyncio import Redis

from everloop.stores.push.configs import PushConfig, PushConfigs
from everloop.stores.push.deliveries import NotificationError, NotifyingTaskViews
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import answered, chunk, status, submitted


class Harness:
    """A task whose notifications are recorded; while `away`, they fail."""

    def __init__(self, redis: Redis) -> None:
        self.configs = PushConfigs(redis)
        self.views = NotifyingTaskViews(redis, self.configs, self.notify)
        self.task = submitted()
        self.notified: list[tuple[str, list[str]]] = []
        self.away = False

    async def begin(self, *config_ids: str) -> None:
        await self.views.create(self.task)
        for config_id in config_ids:
            config = PushConfig(
                id=config_id, task_id=self.task.task_id, owner="o", context_id="c", url="a", public_url="b"
            )
            await self.configs.put(config)

    async def notify(self, task_id: str, config_ids: Sequence[str]) -> None:
        if self.away:
            raise NotificationError
        self.notified.append((task_id, list(config_ids)))


@pytest.fixture
def harness(redis: Redis) -> Harness:
    return Harness(redis)


async def test_each_way_to_a_new_status_is_told(harness: Harness) -> None:
    """Publishing, ending and restoring each notify once of a new status, for all configs of the task."""
    await harness.begin("a", "b")
    task_id = harness.task.task_id

    await harness.views.publish(task_id, "run", [chunk("x"), status(1)])
    await harness.views.restore(answered(harness.task, "run", 2))
    did_it = await harness.views.end(task_id, "run", status(3, TaskState.FAILED))

    assert did_it
    assert harness.notified == [(task_id, ["a", "b"])] * 5


@pytest.mark.parametrize("state", TaskState)
async def test_who_cannot_tell_fails_where_it_matters(harness: Harness, state: TaskState) -> None:
    """A failing notification of an end or a question fails the call, which is retried.

    For a passing status, the next one notifies.
    """
    await harness.begin("a")
    harness.away = True
    task_id, change = harness.task.task_id, status(1, state)

    if state.is_terminal or state.is_interrupted:
        with pytest.raises(NotificationError):
            await harness.views.publish(task_id, "run", [change])
    else:
        await harness.views.publish(task_id, "run", [change])
    harness.away = False
    await harness.views.publish(task_id, "run", [change])

    assert await harness.views.state(task_id) is state
    assert harness.notified == [(task_id, ["a"])]


@pytest.mark.parametrize("way", ["end", "restore"])
async def test_who_cannot_tell_of_an_end_does_not_show_it(harness: Harness, way: str) -> None:
    """A failing notification of an end leaves the view without it.

    Otherwise no later repair would notify: none changes a view with an end.
    """
    await harness.begin("a")
    task_id = harness.task.task_id
    failed = status(1, TaskState.FAILED)

    async def put_right() -> None:
        if way == "end":
            await harness.views.end(task_id, "run", failed)
        else:
            view = answered(harness.task, "run", 1)
            ended = view.status.model_copy(update={"state": TaskState.FAILED})
            await harness.views.restore(view.model_copy(update={"status": ended}))

    harness.away = True
    with pytest.raises(NotificationError):
        await put_right()
    before = await harness.views.state(task_id)
    harness.away = False
    await put_right()

    assert before is TaskState.SUBMITTED
    assert await harness.views.state(task_id) is TaskState.FAILED
    assert harness.notified == [(task_id, ["a"])] * 2

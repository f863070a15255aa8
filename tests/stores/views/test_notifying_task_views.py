"""Whoever wants to be notified of a task hears of each new status, and of nothing else."""

from collections.abc import Sequence
from inspect import getmembers, isfunction

import pytest

from everloop.stores.push.configs import PushConfig
from everloop.stores.push.notifying import NotificationError, NotifyingTaskViews
from everloop.stores.views.interface import START, TaskQuery, TaskViews
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import answered, chunk, status, submitted
from tests.support.memory.push_configs import MemoryPushConfigs
from tests.support.memory.task_views import MemoryTaskViews


class CountingConfigs(MemoryPushConfigs):
    """Counts how often it is asked who wants to be notified."""

    asked = 0

    async def config_ids(self, task_id: str) -> list[str]:
        self.asked += 1
        return await super().config_ids(task_id)


class Stage:
    """A task whose notifications are noted; `away`: nobody takes them."""

    def __init__(self) -> None:
        self.inner, self.configs = MemoryTaskViews(), CountingConfigs()
        self.views = NotifyingTaskViews(self.inner, self.configs, self.notify)
        self.task = submitted()
        self.notified: list[tuple[str, list[str]]] = []
        self.away = False

    async def begin(self, *config_ids: str) -> None:
        await self.views.create(self.task)
        for config_id in config_ids:
            await self.configs.put(
                PushConfig(
                    id=config_id,
                    task_id=self.task.task_id,
                    owner="owner",
                    context_id="c",
                    url="https://a",
                    public_url="https://b",
                )
            )

    async def notify(self, task_id: str, config_ids: Sequence[str]) -> None:
        if self.away:
            raise NotificationError
        self.notified.append((task_id, list(config_ids)))


async def test_each_way_to_a_new_status_is_told() -> None:
    """Publishing, and, before and after it, ending and restoring; with all configs of the task."""
    stage = Stage()
    await stage.begin("a", "b")
    task_id = stage.task.task_id

    await stage.views.publish(task_id, "run", [chunk("x"), status(1)])
    await stage.views.restore(answered(stage.task, "run", 2))
    did_it = await stage.views.end(task_id, "run", status(3, TaskState.FAILED))

    assert did_it
    assert stage.notified == [(task_id, ["a", "b"])] * 5


async def test_other_events_cost_nothing() -> None:
    """Nobody looks whether somebody wants to hear of them."""
    stage = Stage()
    await stage.begin("a")

    await stage.views.publish(stage.task.task_id, "run", [chunk("x"), chunk("y", index=1)])
    await stage.views.publish(stage.task.task_id, "run", [])

    assert (stage.configs.asked, stage.notified) == (0, [])


async def test_a_task_without_configs_tells_nobody() -> None:
    """One look is all that it costs."""
    stage = Stage()
    await stage.begin()

    await stage.views.publish(stage.task.task_id, "run", [status(1), status(2)])

    assert (stage.configs.asked, stage.notified) == (1, [])


@pytest.mark.parametrize("state", TaskState)
async def test_who_cannot_tell_fails_where_it_matters(state: TaskState) -> None:
    """The caller does it again; of a status that only passes, the next one tells as well."""
    stage = Stage()
    await stage.begin("a")
    stage.away = True
    task_id, change = stage.task.task_id, status(1, state)

    if state.is_terminal or state.is_interrupted:
        with pytest.raises(NotificationError):
            await stage.views.publish(task_id, "run", [change])
    else:
        await stage.views.publish(task_id, "run", [change])
    stage.away = False
    await stage.views.publish(task_id, "run", [change])

    assert await stage.views.state(task_id) is state
    assert stage.notified == [(task_id, ["a"])]


@pytest.mark.parametrize("way", ["end", "restore"])
async def test_who_cannot_tell_of_an_end_does_not_show_it(way: str) -> None:
    """Else nobody would tell of it later: whoever puts a view right does nothing once it says an end."""
    stage = Stage()
    await stage.begin("a")
    task_id = stage.task.task_id
    failed = status(1, TaskState.FAILED)

    async def put_right() -> None:
        if way == "end":
            await stage.views.end(task_id, "run", failed)
        else:
            view = answered(stage.task, "run", 1)
            ended = view.status.model_copy(update={"state": TaskState.FAILED})
            await stage.views.restore(view.model_copy(update={"status": ended}))

    stage.away = True
    with pytest.raises(NotificationError):
        await put_right()
    before = await stage.views.state(task_id)
    stage.away = False
    await put_right()

    assert before is TaskState.SUBMITTED
    assert await stage.views.state(task_id) is TaskState.FAILED
    assert stage.notified == [(task_id, ["a"])] * 2


async def test_an_end_that_is_shown_stands_although_its_second_word_fails() -> None:
    """The first one was enough: a delivery runs, and looks again by itself."""
    stage = Stage()
    await stage.begin("a")
    task_id = stage.task.task_id

    class Away(MemoryTaskViews):
        async def end(self, task_id: str, run_id: str, status: StatusChanged) -> bool:
            stage.away = True
            return await stage.inner.end(task_id, run_id, status)

    views = NotifyingTaskViews(Away(), stage.configs, stage.notify)

    assert await views.end(task_id, "run", status(1, TaskState.FAILED))
    assert stage.notified == [(task_id, ["a"])]


async def test_everything_else_is_as_it_was() -> None:
    """Readers see the views behind it."""
    stage = Stage()
    await stage.begin()
    task_id = stage.task.task_id
    await stage.views.publish(task_id, "run", [status(1), chunk("x")])
    query = TaskQuery(stage.task.owner, stage.task.agent_id)
    await stage.views.wake()

    assert await stage.views.load(task_id) == await stage.inner.load(task_id)
    assert await stage.views.state(task_id) is TaskState.WORKING
    assert await stage.views.artifact(task_id, "response") == await stage.inner.artifact(task_id, "response")
    assert await stage.views.holds(task_id, START)
    assert len(await stage.views.read({task_id: START}, wait=0)) == 3
    assert await stage.views.list_tasks(query) == await stage.inner.list_tasks(query)


def test_every_method_is_passed_on() -> None:
    """What the interface gets next must not get lost here."""
    names = {name for name, _ in getmembers(TaskViews, isfunction) if not name.startswith("_")}

    assert names <= set(vars(NotifyingTaskViews))

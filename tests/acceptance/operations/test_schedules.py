"""Schedules on real servers: made, changed and removed by commands; clients see the tasks they start."""

import functools
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, ListTasksRequest, Task, TaskState
from a2a.utils.errors import TaskNotCancelableError
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    WorkflowExecutionStatus,
)

from everloop.runtime.schedules.recurrence import read_interval
from everloop.workflows.contract import names
from tests.support.a2a_client import connected, response_of
from tests.support.rigs.deployment import ACCEPTANCE_AGENT, Service
from tests.support.servers.processes import run_everloop
from tests.support.servers.scripted_openai import Reply

Command = Callable[..., Awaitable[tuple[int, str]]]
"""Runs a command with these arguments; returns its exit code and its output."""


def command_for(environment: dict[str, str]) -> Command:
    return functools.partial(run_everloop, environment, "schedules")


@pytest.fixture
def schedule(temporal_address: str) -> Command:
    """Run a command against a Temporal without workers."""
    return command_for(
        {
            "TEMPORAL_ADDRESS": temporal_address,
            "EVERLOOP_AGENTS": ACCEPTANCE_AGENT,
            "EVERLOOP_TASK_QUEUE": f"schedules-{uuid4()}",
        }
    )


@pytest_asyncio.fixture
async def temporal(temporal_address: str) -> Client:
    return await Client.connect(temporal_address)


@pytest.fixture
def name() -> str:
    return f"daily-{uuid4()}"


async def line_of(schedule: Command, name: str, *, having: str = "") -> str:
    """List until a schedule's line has a word: Temporal shows a change a moment later."""
    while True:
        code, listed = await schedule("list")
        assert code == 0
        for line in listed.splitlines():
            if line.startswith(name) and having in line:
                return line


def adding(name: str, *more: str) -> list[str]:
    return ["add", "--agent", "acceptance", "--text", "Report.", "--id", name, *more]


async def test_a_schedule_is_made_changed_and_removed(schedule: Command, temporal: Client, name: str) -> None:
    """Each command reports its action; a started task goes on without its schedule."""
    # Rarely, so that none is due meanwhile.
    rarely = ("--cron", "0 9 29 2 *", "--time-zone", "Europe/Berlin", "--note", "Ask Ann.")
    added, again = await schedule(*adding(name, *rarely)), await schedule(*adding(name, *rarely))
    code, told = added
    first, next_run = told.splitlines()
    assert (code, first) == (0, f"added {name}: agent acceptance, 0 9 29 2 * (Europe/Berlin)")
    assert next_run.startswith("next run: ")
    assert next_run.endswith("-02-29 09:00:00 CET")
    assert again == (
        1,
        f"everloop: there is a schedule {name!r} already; remove it first, or give this one another --id\n",
    )
    listed = await line_of(schedule, name)
    assert listed.split()[1:8] == ["acceptance", "0", "9", "29", "2", "*", "(Europe/Berlin)"]
    assert next_run.removeprefix("next run: ") in listed
    assert listed.split()[-2:] == ["-", "no"]

    assert await schedule("pause", name) == (
        0,
        f"paused {name}; it starts nothing until `everloop schedules resume {name}`\n",
    )
    assert (await line_of(schedule, name, having=" yes")).split()[-3:] == ["-", "-", "yes"]
    handle = temporal.get_schedule_handle(name)
    assert (await handle.describe()).schedule.state.note == "Ask Ann."

    code, triggered = await schedule("trigger", name)
    task_id = triggered.split()[-1]
    assert (code, triggered) == (0, f"triggered {name}; it started task {task_id}\n")
    assert task_id.startswith(f"acceptance-{name}-2")
    assert task_id in await line_of(schedule, name, having=task_id)
    skipped = await schedule("trigger", name)
    assert skipped[0] == 0
    assert (
        "nothing new has started within 5 s: the overlap policy (see --overlap of `add`), or another trigger "
        "in the same second"
    ) in skipped[1]

    assert await schedule("resume", name) == (0, f"resumed {name}\n{next_run}\n")
    assert not (await handle.describe()).schedule.state.paused

    assert await schedule("remove", name) == (0, f"removed {name}; tasks that it has started go on\n")
    assert await schedule("remove", name) == (
        1,
        f"everloop: there is no schedule {name!r}; `everloop schedules list` shows which there are\n",
    )
    task = temporal.get_workflow_handle(task_id)
    assert (await task.describe()).status is WorkflowExecutionStatus.RUNNING
    await task.terminate()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--cron", "0 99 * * *"], "--cron: '0 99 * * *' cannot be used: "),
        (
            ["--every", "1h", "--time-zone", "Mars/Olympus"],
            "--time-zone: unknown time zone Mars/Olympus; give a name of the IANA database",
        ),
    ],
    ids=["hour", "zone"],
)
async def test_what_temporal_refuses_is_one_line(
    schedule: Command, name: str, arguments: list[str], expected: str
) -> None:
    """It names the option, the problem, and the expected form."""
    code, said = await schedule(*adding(name, *arguments))
    (line,) = said.splitlines()
    assert code == 1
    assert line.startswith(f"everloop: {expected}")


async def test_schedules_of_others_are_left_alone(schedule: Command, temporal: Client, name: str) -> None:
    """One that starts another workflow is neither listed nor removed."""
    action = ScheduleActionStartWorkflow("Other", id=name, task_queue="other")
    every = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=read_interval("1d"))])
    other = await temporal.create_schedule(name, Schedule(action=action, spec=every))
    ours = f"ours-{name}"
    assert (await schedule(*adding(ours, "--every", "1d")))[0] == 0

    assert await schedule("remove", name) == (
        1,
        f"everloop: schedule {name!r} starts no tasks of agents, so it is not Everloop's\n",
    )
    await line_of(schedule, ours)
    assert name not in [line.split()[0] for line in (await schedule("list"))[1].splitlines()]
    for handle in (other, temporal.get_schedule_handle(ours)):
        await handle.delete()


async def test_a_schedule_starts_tasks_that_clients_see(service: Service, name: str) -> None:
    """A task started by command, and one that was due: both are listed, read and complete."""
    service.script(lambda _: Reply(["The report."]))
    gateway, schedule = service.gateway, command_for(service.everloop.environment)

    assert (await schedule(*adding(name, "--cron", "0 0 1 1 *")))[0] == 0
    task_id = (await schedule("trigger", name))[1].split()[-1]
    async with connected(gateway.url, streaming=False) as client:
        task = await completed(client, task_id)
        assert response_of(task) == "The report."
        assert [message.parts[0].text for message in task.history] == ["Report."]
        assert task.context_id == names.derive_context_id(task_id)
        assert task_id in {one.id for one in await listed(client)}
        with pytest.raises(TaskNotCancelableError, match="completed already"):
            await client.cancel_task(CancelTaskRequest(id=task_id))

    frequent = f"{name}-often"
    assert (await schedule(*adding(frequent, "--every", "1s", "--context", "talk")))[0] == 0
    async with connected(gateway.url, streaming=False) as client:
        due = await first_of(client, frequent)
        assert (await schedule("remove", frequent))[0] == 0
        assert response_of(await completed(client, due.id)) == "The report."
        assert due.context_id == "talk"


async def completed(client: A2AClient, task_id: str) -> Task:
    while True:
        task = await client.get_task(GetTaskRequest(id=task_id))
        if task.status.state == TaskState.TASK_STATE_COMPLETED:
            return task
        assert task.status.state in {TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING}


async def listed(client: A2AClient) -> list[Task]:
    return list((await client.list_tasks(ListTasksRequest())).tasks)


async def first_of(client: A2AClient, name: str) -> Task:
    while True:
        for task in await listed(client):
            if task.id.startswith(f"acceptance-{name}-2"):
                return task

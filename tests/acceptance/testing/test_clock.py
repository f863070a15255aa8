"""Skipped time in tests of agents: for tasks, and for schedules."""

from datetime import timedelta
from uuid import uuid4

import pytest

from everloop import Limits, tool
from everloop.agents.limits import Retries
from everloop.testing import Script, TaskError, call, running
from tests.acceptance.testing.test_app import agent

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


async def test_time_is_skipped_for_pauses_questions_and_limits() -> None:
    """An hour is over at once, in which a failed tool is retried, and a limit is met."""
    attempts: list[int] = []

    @tool(retries=Retries(delay=HOUR, longest=HOUR))
    async def flaky() -> str:
        """Fail once."""
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("away")
        return "there"

    ask = call("request_input", kind="clarification", question="Which city?")
    limits = Limits(wall_clock=3 * HOUR)
    async with running(agent(flaky, limits=limits), model=Script(call("flaky"), ask)) as app:
        task = await app.start("Try it")
        await app.wait(task, call="flaky")
        await app.skip_time(2 * HOUR)
        asked = await app.wait(task)
        assert (asked.state, len(attempts)) == ("input-required", 2)

        await app.skip_time(HOUR)
        assert (await app.wait(task)).reason == "TimeLimit"


async def test_time_is_skipped_for_a_schedule() -> None:
    """It starts due tasks, and skips some by its overlap policy. Time passes for its tasks, too."""
    ask = call("request_input", kind="clarification", question="Which city?")
    limits = Limits(wall_clock=30 * HOUR)
    async with running(agent(limits=limits), model=Script("One.", "Two.", ask, "Three.")) as app:
        made = await app.client.create_schedule("Report", id=f"daily-{uuid4()}", cron="0 9 * * *")
        first = await app.skip_time(2 * DAY, schedule=made.id)
        answers = [(await app.wait(task)).text for task in first]
        (asking,) = await app.skip_time(DAY, schedule=made.id)
        asked = await app.wait(asking)
        left_out = await app.skip_time(DAY, schedule=made.id)
        (last,) = await app.skip_time(DAY, schedule=made.id)
        over = [await app.wait(task) for task in (asking, last)]
        await app.client.pause_schedule(made.id)
        paused = await app.skip_time(DAY, schedule=made.id)
        await app.client.delete_schedule(made.id)

    assert (answers, asked.state, left_out, paused) == (["One.", "Two."], "input-required", [], [])
    assert [(task.reason, task.text) for task in over] == [("TimeLimit", ""), ("", "Three.")]


async def test_what_cannot_be_skipped_for_a_schedule_is_said() -> None:
    """It does not exist, or it starts more tasks than a test can wait for."""
    async with running(agent(), model=Script()) as app:
        often = await app.client.create_schedule("Report", id=f"often-{uuid4()}", every="1m")
        with pytest.raises(TaskError, match="starts more than 100 tasks in that time"):
            await app.skip_time(DAY, schedule=often.id)
        await app.client.delete_schedule(often.id)
        with pytest.raises(TaskError, match="no schedule 'none'"):
            await app.skip_time(HOUR, schedule="none")

"""The reporter's work, on a real Temporal and a real Valkey; a script takes the place of the model."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from agent import agent, reported_day

from everloop.testing import App, Script, StartApp, call

TILL = "article,pieces,cents\nkettle,2,3900\ngrinder,1,11900\nkettle,1,3900\n"
REPORT = call("publish", report="# 236 euros\n\nKettles sold well.")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Delivery folder of the tills."""
    monkeypatch.setenv("SALES_FOLDER", str(tmp_path))
    return tmp_path


def deliver(folder: Path, day: date) -> None:
    """Deliver the sales of a day, as the tills do."""
    (folder / f"sales-{day}.csv").write_text(TILL, encoding="utf-8")


@asynccontextmanager
async def scheduled(app: App, context: str = "") -> AsyncGenerator[str]:
    """Create the nightly schedule, and yield its id."""
    schedule = await app.client.create_schedule(
        "Report on yesterday.",
        id=f"nightly-{uuid4().hex[:8]}",  # schedules are those of the whole session
        cron="0 2 * * *",
        time_zone="Europe/Berlin",
        context_id=context,
    )
    try:
        yield schedule.id
    finally:
        await app.client.delete_schedule(schedule.id)


async def test_a_night_brings_a_report(everloop_app: StartApp, folder: Path) -> None:
    """The schedule starts the task. The numbers are the code's, and the report is there to download."""
    app = await everloop_app(agent, model=Script(call("sales"), REPORT, "The report is there."))
    deliver(folder, reported_day(""))

    async with scheduled(app) as schedule:
        result = await app.wait(await app.client.run_schedule(schedule))

    assert '"cents":{"kettle":11700,"grinder":11900},"total":23600' in str(result.tool_calls[0].result)
    assert [artifact.id for artifact in result.artifacts if artifact.id != "response"] == [
        f"report-{reported_day(result.id)}"
    ]


async def test_a_report_waits_for_tills_that_are_late(everloop_app: StartApp, folder: Path) -> None:
    """It looks again and again, for hours if need be, while the task costs nothing."""
    app = await everloop_app(agent, model=Script(call("sales"), REPORT, "The report is there."))

    async with scheduled(app) as schedule:
        task = await app.client.run_schedule(schedule)
        await app.wait(task, call="sales")
        await app.skip_time(timedelta(minutes=10))
        deliver(folder, reported_day(task))
        await app.skip_time(timedelta(hours=1))
        result = await app.wait(task)

    assert (result.state, result.tool_calls[0].is_error) == ("completed", False)


async def test_a_night_recalls_the_night_before(everloop_app: StartApp, folder: Path) -> None:
    """All of them are one conversation, so that the model can compare."""
    night = (call("sales"), REPORT, "Kettles sold well.")
    script = Script(*night, *night)
    app = await everloop_app(agent, model=script)
    deliver(folder, reported_day(""))

    async with scheduled(app, "reports") as one, scheduled(app, "reports") as another:
        await app.wait(await app.client.run_schedule(one))
        await app.wait(await app.client.run_schedule(another))

    assert "Kettles sold well." in [message.text for message in script.requests[3].messages]


def test_a_late_task_reports_on_its_own_day() -> None:
    """The day is that of the schedule, in the time zone of the shop, and not that of the clock."""
    assert reported_day("nightly-report-daily-2026-07-01T00:00:00Z") == date(2026, 6, 30)
    assert reported_day("nightly-report-daily-2026-06-30T23:30:00Z") == date(2026, 6, 30)
    assert datetime.now(UTC).date() - reported_day("somebody-asked") <= timedelta(days=2)

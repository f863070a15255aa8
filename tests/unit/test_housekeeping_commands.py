"""What the commands of the housekeeping say; what they do is tested with real servers."""

import io
import socket
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import pytest

from deploy.housekeeping.__main__ import main as housekeeping
from deploy.housekeeping.runs import PastRun, ScheduleStatus
from deploy.housekeeping.table import failures, status_lines, table
from deploy.reindex.__main__ import main as reindex
from deploy.reindex.progress import Progress
from deploy.reindex.rebuild import Rebuild
from deploy.reindex.shown_tasks import Chosen, FoundTask
from gateway.errors import TaskUnknownError
from stores.retention import RetentionSettings
from workflows.contract.housekeeping import HousekeepingResult, Kind, KindResult
from workflows.contract.tasks import TaskView

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
RESULT = HousekeepingResult(
    kinds={
        Kind.VIEWS: KindResult(removed=12, finished_at=NOON),
        Kind.PAYLOADS: KindResult(removed=3, cursor="a"),
        Kind.ARTIFACTS: KindResult(failure="Redis is away"),
    }
)


def test_a_run_is_a_table() -> None:
    """A kind a line; beside the count it says what is left or failed, the reasons are lines of their own."""
    assert table(RESULT).splitlines() == [
        "KIND                                 REMOVED",
        "expired views                        12",
        "payloads of workflows that are gone  3        more is left",
        "artifacts                            0        failed",
    ]
    assert failures(RESULT) == ["artifacts: Redis is away"]
    assert "WOULD BE REMOVED" in table(RESULT.model_copy(update={"dry_run": True}))


def test_the_status_shows_the_last_runs() -> None:
    """With what they removed, and whether the schedule is paused and why."""
    runs = (PastRun(NOON, "b", "running", None), PastRun(NOON, "a", "completed", RESULT))
    assert status_lines(
        ScheduleStatus("s", is_paused=True, note="Ask Ann.", next_run=None, last_runs=runs)
    ).splitlines() == [
        "schedule  s",
        "paused    yes (Ask Ann.)",
        "next run  -",
        "LAST RUNS                STATUS     REMOVED  FAILED",
        "2026-07-01 12:00:00 UTC  running    -        -",
        "2026-07-01 12:00:00 UTC  completed  15       artifacts",
    ]
    fresh = ScheduleStatus("s", is_paused=False, note="", next_run=NOON, last_runs=())
    assert status_lines(fresh).splitlines()[1:] == [
        "paused    no",
        "next run  2026-07-01 12:00:00 UTC",
        "it has not run yet",
    ]


def test_tasks_are_chosen_by_agent_and_owner() -> None:
    """Whatever signs their names hold; and by their queue, so that another Everloop's stay out."""
    query = Chosen("q'", "it's", "a\\b", NOON).query
    assert r"AND TaskQueue = 'q\'' AND" in query
    assert query.endswith(r"AND AgentId = 'it\'s' AND Owner = 'a\\b'")
    assert "Owner" not in Chosen("q", "", "", NOON).query


class OddTasks:
    """Tasks of which one is answered in a way that nobody expects."""

    async def view(self, task_id: str) -> TaskView:
        if task_id == "odd":
            raise KeyError("Unknown payload encoding")
        raise TaskUnknownError(task_id)


async def test_an_odd_task_keeps_no_other_from_being_restored() -> None:
    """It is named, with what was wrong."""
    progress, odd = Progress(io.StringIO()), cast("Any", OddTasks())
    rebuild = Rebuild(odd, odd, odd, progress, at_once=1)
    await rebuild.restore([FoundTask("odd", is_running=True), FoundTask("gone", is_running=True)])
    assert progress.failed == {"odd": "KeyError: 'Unknown payload encoding'"}
    assert progress.summary.startswith("0 tasks restored, 1 not shown to clients or gone, 1 not restored")


@pytest.mark.parametrize("number", ["0", "1001", "-1", "many", "³"])
def test_a_wrong_number_is_refused(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As argparse refuses what it cannot read."""
    with pytest.raises(SystemExit):
        reindex(["--at-once", number])
    assert f"{number!r} is no number from 1 to 1000" in capsys.readouterr().err


def test_a_server_that_is_away_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the variable that tells where the server is."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
        monkeypatch.setenv("EVERLOOP_REDIS_URL", f"redis://{address}/0")
        assert housekeeping(["status"]) == 1
        assert reindex([]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["housekeeping", "reindex"]
    assert "TEMPORAL_ADDRESS" in said[0]
    assert "EVERLOOP_REDIS_URL" in said[1]


def test_a_run_without_a_worker_says_what_it_waits_for(
    temporal_address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And gives up in the end."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    monkeypatch.setenv("EVERLOOP_TASK_QUEUE", queue := f"nobody-{uuid4()}")
    monkeypatch.setattr("deploy.housekeeping.__main__.NOTICE", 0.1)
    assert housekeeping(["run", "--dry-run"], patience=timedelta(seconds=1)) == 1
    waiting, ended = capsys.readouterr().err.splitlines()
    assert (
        waiting == f"housekeeping: a worker of the queue {queue} (EVERLOOP_TASK_QUEUE) has to do it; waiting"
    )
    assert "has not ended within 1 s; see whether a worker runs" in ended


@pytest.mark.parametrize("days", ["0", "36501", "soon"])
def test_a_wrong_time_to_live_names_its_variable(
    days: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one counts as not set."""
    monkeypatch.setenv("EVERLOOP_CONVERSATION_TTL_DAYS", "")
    assert RetentionSettings().conversation_ttl_days == 30
    monkeypatch.setenv("EVERLOOP_TASK_TTL_DAYS", days)
    assert reindex([]) == 1
    assert capsys.readouterr().err.startswith(
        "reindex: wrong setting: EVERLOOP_TASK_TTL_DAYS: Input should be"
    )

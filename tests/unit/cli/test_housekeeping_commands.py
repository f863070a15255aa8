"""Output of the housekeeping commands; their effects are tested with real servers."""

import io
import json
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from everloop.cli.commands import run
from everloop.cli.housekeeping.housekeeping_commands import NAMES
from everloop.cli.housekeeping.housekeeping_runs import HousekeepingRun, HousekeepingRuns, ScheduleStatus
from everloop.cli.reindex.listed_tasks import Chosen, FoundTask
from everloop.cli.reindex.progress import ReindexProgress
from everloop.cli.reindex.rebuild import Rebuild
from everloop.gateway.errors import TaskUnknownError
from everloop.stores.lifetimes import RetentionSettings
from everloop.workflows.contract.housekeeping_payloads import HousekeepingResult, Kind, KindResult
from everloop.workflows.contract.tasks import TaskView

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
RESULT = HousekeepingResult(
    kinds={
        Kind.VIEWS: KindResult(removed=12, finished_at=NOON),
        Kind.PAYLOADS: KindResult(removed=3, cursor="a"),
        Kind.ARTIFACTS: KindResult(failure="Redis is away"),
    }
)


class ToldRuns(HousekeepingRuns):
    """Runs with given results."""

    def __init__(self, result: HousekeepingResult, known: ScheduleStatus) -> None:
        self.task_queue = "q"
        self._result = result
        self._known = known

    async def run(self, *, dry_run: bool) -> HousekeepingResult:
        return self._result.model_copy(update={"dry_run": dry_run})

    async def status(self) -> ScheduleStatus:
        return self._known


def fresh(last_runs: tuple[HousekeepingRun, ...] = ()) -> ScheduleStatus:
    return ScheduleStatus("s", is_paused=False, note="", next_run=NOON, last_runs=last_runs)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Callable[[HousekeepingResult, ScheduleStatus], None]:
    """Connect commands to these runs."""

    def connect(result: HousekeepingResult, known: ScheduleStatus) -> None:
        async def runs() -> HousekeepingRuns:
            return ToldRuns(result, known)

        monkeypatch.setattr("everloop.cli.housekeeping.housekeeping_runs.connected_runs", runs)

    return connect


Connect = Callable[[HousekeepingResult, ScheduleStatus], None]


def test_a_run_is_a_table(connected: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each kind; beside the count are left and failed ones, the reasons are on stderr."""
    connected(RESULT, fresh())

    assert run(["housekeeping", "run"]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "KIND                                 REMOVED",
        "expired views                        12",
        "payloads of workflows that are gone  3        more is left",
        "artifacts                            0        failed",
    ]
    assert said.err == "everloop: artifacts: Redis is away\n"
    assert NAMES.keys() == set(Kind)

    assert run(["housekeeping", "run", "--dry-run"]) == 1
    assert "WOULD BE REMOVED" in capsys.readouterr().out


def test_programs_read_json(connected: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    """On stdout, and nothing else there; exit codes are those of the tables."""
    connected(RESULT, fresh((HousekeepingRun(NOON, "a", "completed", RESULT),)))

    assert run(["housekeeping", "run", "--json"]) == 1
    done = json.loads(capsys.readouterr().out)
    assert done["kinds"]["artifacts"] == {"removed": 0, "is_done": True, "failure": "Redis is away"}
    assert done["kinds"]["payloads"] == {"removed": 3, "is_done": False, "failure": None}
    assert run(["housekeeping", "status", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert (known["schedule"], known["next_run"]) == ("s", "2026-07-01T12:00:00+00:00")
    assert known["last_runs"][0]["result"] == done


class OddTasks:
    """Tasks of which one gets an unexpected answer."""

    async def view(self, task_id: str) -> TaskView:
        if task_id == "odd":
            raise KeyError("Unknown payload encoding")
        raise TaskUnknownError(task_id)


async def test_an_odd_task_keeps_no_other_from_being_restored() -> None:
    """It is named, with the problem."""
    progress, odd = ReindexProgress(io.StringIO()), cast("Any", OddTasks())
    rebuild = Rebuild(odd, odd, odd, progress, at_once=1)
    await rebuild.restore([FoundTask("odd", is_running=True), FoundTask("gone", is_running=True)])
    assert progress.failed == {"odd": "KeyError: 'Unknown payload encoding'"}
    assert progress.summary.startswith("0 tasks restored, 1 not shown to clients or gone, 1 not restored")


def test_a_server_that_is_away_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the variable of the server's address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
        monkeypatch.setenv("EVERLOOP_REDIS_URL", f"redis://{address}/0")
        assert run(["housekeeping", "status"]) == 1
        assert run(["reindex"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["everloop", "everloop"]
    assert "TEMPORAL_ADDRESS" in said[0]
    assert "EVERLOOP_REDIS_URL" in said[1]


@pytest.mark.parametrize("days", ["0", "36501", "soon"])
def test_a_wrong_time_to_live_names_its_variable(
    days: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one counts as not set."""
    monkeypatch.setenv("EVERLOOP_CONVERSATION_TTL_DAYS", "")
    assert RetentionSettings().conversation_ttl_days == 7
    monkeypatch.setenv("EVERLOOP_TASK_TTL_DAYS", days)
    assert run(["reindex"]) == 1
    assert capsys.readouterr().err.startswith(
        "everloop: wrong setting: EVERLOOP_TASK_TTL_DAYS: Input should be"
    )


def test_tasks_are_chosen_by_agent_and_owner() -> None:
    """With any characters in their names; and by queue, which leaves out those of another Everloop."""
    query = Chosen("q'", "it's", "a\\b", NOON).query
    assert r"AND TaskQueue = 'q\'' AND" in query
    assert query.endswith(r"AND AgentId = 'it\'s' AND Owner STARTS_WITH 'a'")
    assert "Owner" not in Chosen("q", "", "", NOON).query

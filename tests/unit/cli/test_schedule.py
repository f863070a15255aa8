"""Schedules: arguments of the command line, and calls of Temporal."""

import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.client import ScheduleActionStartWorkflow

from everloop.agents.agent import Agent
from everloop.cli.commands import run
from everloop.runtime.schedules.recurrence import Recurrence, read_interval
from everloop.runtime.schedules.schedule_definition import ScheduleDefinition
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.tasks import AgentSpec, TaskInput

NOW = datetime(2026, 7, 1, 12, 30, tzinfo=UTC)
ADD = ["schedules", "add", "--agent", "demo", "--text", "Look.", "--every", "1h"]
LIST = ["schedules", "list"]

AGENTS = [Agent(id="writer", name="Writer", description="")]


def definition(**fields: object) -> ScheduleDefinition:
    given = {
        "agent_id": "writer",
        "agent_name": "Writer",
        "parts": (TextPart(text="Write."),),
        "recurrence": Recurrence("0 9 * * *"),
    }
    return ScheduleDefinition(**{**given, **fields})  # pyright: ignore[reportArgumentType] -- a table of fields


def action_of(defined: ScheduleDefinition) -> ScheduleActionStartWorkflow:
    action = defined.schedule("queue", NOW).action
    assert isinstance(action, ScheduleActionStartWorkflow)
    return action


@pytest.mark.parametrize(("text", "seconds"), [("1h30m", 5400), ("7d", 604_800), ("1d1h1m1s", 90_061)])
def test_intervals_are_written_as_people_do(text: str, seconds: int) -> None:
    """An interval has days, hours, minutes and seconds, each at most once, in that order."""
    assert read_interval(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "h", "-1h", "1.5h", "0s", "99999999999999d", "٣h"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    """An invalid interval is refused with examples of valid ones."""
    with pytest.raises(ValueError, match="is not an interval; write 90s, 30m, 1h30m or 7d"):
        read_interval(text)


def test_a_scheduled_task_is_that_of_a_message() -> None:
    """A scheduled task begins with the current version of its agent, in the context of its schedule."""
    defined = definition(owner="acme", context_id="talk", name="daily", priority=2)
    action = action_of(defined)

    assert (action.workflow, action.task_queue) == (names.WORKFLOW_TYPE, "queue")
    assert re.fullmatch("writer-[0-9a-f]{12}-daily", action.id)
    assert action.id.endswith(defined.id)
    assert action.priority == names.place_in_queues("acme", 2)
    (task,) = action.args
    assert isinstance(task, TaskInput)
    assert task.agent == AgentSpec(id="writer")
    assert (task.scheduled, task.owner, task.context_id, task.created_at) == (True, "acme", "talk", NOW)
    assert (task.message.message_id, task.message.parts) == (defined.id, (TextPart(text="Write."),))


def test_the_same_schedule_has_the_same_id() -> None:
    """A repeated command finds the same schedule; another message, time, owner or context makes a new one."""
    differing = [
        definition(parts=(TextPart(text="Read."),)),
        definition(recurrence=Recurrence("0 8 * * *")),
        definition(owner="acme"),
        definition(context_id="talk"),
    ]
    assert definition().id == definition(note="again").id
    assert len({each.id for each in [definition(), *differing]}) == 5


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (ADD[:-2], "a schedule has one of --cron and --every"),
        ([*ADD, "--cron", "0 9 * * *"], "a schedule has one of --cron and --every"),
        ([*ADD[:-2], "--cron", " "], "the expression is empty; write '0 9 * * 1-5'"),
        ([*ADD[:-1], "soon"], "'soon' is not an interval; write 90s"),
        ([*ADD[:5], " ", *ADD[6:]], "the message is empty"),
        ([*ADD[:5], "x" * 100_001, *ADD[6:]], "the message has 100001 bytes; give at most 100000"),
        ([*ADD, "--id", "a/b"], "expected at most 64 letters, digits"),
        ([*ADD, "--context", "x" * 256], "the id of the context has 256 bytes"),
    ],
)
def test_a_wrong_argument_is_told(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    """An invalid argument is reported in one line before any connection, with exit code 2."""
    assert run(arguments) == 2
    assert expected in capsys.readouterr().err.splitlines()[-1]


UNUSABLE = "cannot use the settings of the connection to Temporal"
UNREADABLE = "cannot read '/no/such' for the connection to Temporal: No such file or directory. Correct TEMP"


@pytest.mark.parametrize(
    ("variables", "arguments", "expected"),
    [
        ({}, [*ADD[:3], "nobody", *ADD[4:]], "no agent 'nobody' here; this process serves: writer"),
        ({"EVERLOOP_AGENTS": "no.such:agent"}, ADD, "EVERLOOP_AGENTS: cannot load 'no.such:agent'"),
        ({"TEMPORAL_PROFILE": "nope"}, LIST, f"{UNUSABLE}: Profile 'nope' not found. See TEMP"),
        ({"TEMPORAL_TLS_SERVER_CA_CERT_PATH": "/no/such"}, LIST, UNREADABLE),
        ({"TEMPORAL_TLS_CLIENT_CERT_DATA": "one"}, LIST, f"{UNUSABLE}: Must have both client cert and priv"),
    ],
    ids=["agent", "agents", "profile", "path", "no_key"],
)
def test_what_stops_a_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    arguments: list[str],
    expected: str,
) -> None:
    """A command that cannot run ends with exit code 1 and one line with the reason."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("EVERLOOP_AGENTS", f"{__name__}:AGENTS")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert run(arguments) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"everloop: {expected}")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (
            "TEMPORAL_API_KEY",
            "secret\udcff",
            "TEMPORAL_API_KEY is not in UTF-8; write it in UTF-8",
        ),
        ("TEMPORAL_TLS_CLIENT_KEY_PATH", "secret\nof lines", "cannot read what is given as a path"),
    ],
)
def test_a_wrong_variable_of_temporal_is_told_without_its_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, expected: str
) -> None:
    """The error for an invalid variable leaves out its value, which may be a key."""
    monkeypatch.setenv(name, value)

    assert run(LIST) == 1

    (told,) = capsys.readouterr().err.splitlines()
    assert expected in told
    assert "secret" not in told


def test_a_temporal_that_does_not_answer_is_waited_for_so_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command waits for Temporal only for the given time, also if a process accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr("everloop.runtime.schedules.schedules.ANSWER_TIMEOUT", timedelta(seconds=0.5))
        assert run(LIST) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "everloop: Temporal does not answer within 0.5 s; see TEMPORAL_ADDRESS and whether"
    )


@pytest.mark.parametrize("line", ['api_key = "secret', "api_key = secret"])
def test_a_wrong_file_of_temporal_is_told_without_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str
) -> None:
    """The error for an invalid file leaves out its lines, which may contain a key, and names the position."""
    (tmp_path / "temporal.toml").write_text(f"[profile.default]\n{line}\n")
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))

    assert run(LIST) == 1

    (told,) = capsys.readouterr().err.splitlines()
    assert "TOML parse error at line 2, column 1" in told
    assert "secret" not in told
    assert "5ecre7" not in told

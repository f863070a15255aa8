"""Lines of the log by any library, and content that they leave out."""

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import structlog
from temporalio.exceptions import ActivityError, RetryState
from temporalio.service import RPCError, RPCStatusCode

from everloop.runtime.telemetry.logs import (
    CHATTY,
    LogLevel,
    bind_task,
    configure_logs,
    owner_hash,
    task_fields,
    temporal_core_logs,
)
from everloop.workflows.contract.tasks import TaskRef

CONTENT = "what somebody said"
TASK = TaskRef(task_id="t", run_id="r", context_id="c", owner="ann@example.org", agent_id="a")


class Log:
    """The log of this process during the test."""

    def __init__(self) -> None:
        self.out = io.StringIO()

    def configure(self, level: LogLevel = "info") -> None:
        configure_logs(level, self.out)

    @property
    def line(self) -> dict[str, Any]:
        (line,) = self.out.getvalue().splitlines()
        return json.loads(line)


@pytest.fixture
def log() -> Iterator[Log]:
    root, hook = logging.getLogger(), sys.excepthook
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in CHATTY}
    kept = Log()
    kept.configure()
    yield kept
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.captureWarnings(capture=False)
    sys.excepthook = hook
    root.handlers[:], root.level = handlers, level
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def fail() -> None:
    nothing: dict[str, str] = {}
    try:
        nothing[CONTENT]
    except KeyError as error:
        raise ValueError(CONTENT) from error


def lose() -> None:
    raise OSError(CONTENT)


def test_an_exception_is_told_by_kind_and_place(log: Log) -> None:
    """Its text, and those of its causes, may quote a user."""
    try:
        fail()
    except ValueError:
        structlog.get_logger("ours").exception("it failed")

    assert (log.line["error_type"], log.line["caused_by"]) == ("ValueError", ["KeyError"])
    assert log.line["stack"][-1].endswith(" fail")
    assert CONTENT not in log.out.getvalue()


@pytest.mark.parametrize(
    ("works", "kind", "causes", "last"),
    [
        (("fail",), "ValueError", ["KeyError"], " fail"),
        (("fail", "lose"), "ExceptionGroup", ["ValueError", "KeyError", "OSError"], " lose"),
    ],
)
async def test_of_a_group_the_inner_errors_are_told(
    log: Log, works: Sequence[str], kind: str, causes: list[str], last: str
) -> None:
    """A task group raises one for any failure; for a single error the group is left out."""

    async def run(work: str) -> None:
        {"fail": fail, "lose": lose}[work]()

    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(run(work))
    except ExceptionGroup:
        structlog.get_logger("ours").exception("it failed")

    assert (log.line["error_type"], log.line["caused_by"]) == (kind, causes)
    assert log.line["stack"][-1].endswith(last)
    assert CONTENT not in log.out.getvalue()


def test_an_error_of_temporals_server_is_told_with_its_text(log: Log) -> None:
    """It is about namespaces, workflows and attributes, and not about users' content; also as a cause."""
    error = RPCError("Namespace x lacks\nAgentId" + "!" * 1_000, RPCStatusCode.INVALID_ARGUMENT, b"")
    wrapped = RuntimeError(CONTENT)
    wrapped.__cause__ = error
    structlog.get_logger("ours").error("it failed", exc_info=wrapped)

    assert (log.line["error_type"], log.line["caused_by"]) == ("RuntimeError", ["RPCError"])
    assert log.line["error"].startswith("INVALID_ARGUMENT: Namespace x lacks AgentId!")
    assert len(log.line["error"]) < 600
    assert CONTENT not in log.out.getvalue()


def test_what_a_library_adds_to_a_line_is_left_out(log: Log) -> None:
    """Except the fields of Temporal's SDK for the workflow or activity of the line."""
    details = {"workflow_id": "t", "activity_type": "run_tool", "attempt": 2, "namespace": "default"}
    logging.getLogger("lib").warning("x", extra={"body": CONTENT, "temporal_activity": details})

    assert {key: log.line[key] for key in ("task_id", "activity_type", "attempt")} == {
        "task_id": "t",
        "activity_type": "run_tool",
        "attempt": 2,
    }
    assert CONTENT not in log.out.getvalue()


def test_a_line_names_its_task_and_not_the_owner(log: Log) -> None:
    """Owners' names may be those of people."""
    bind_task(TASK)
    structlog.get_logger("ours").info("done")

    about = {"task_id": "t", "context_id": "c", "owner_hash": owner_hash("ann@example.org")}
    assert task_fields(TASK) == about
    assert about.items() <= log.line.items()
    assert "ann" not in log.out.getvalue()


def test_lines_of_temporals_native_part_come_without_their_fields() -> None:
    """They contain the failure of a workflow with its text."""
    forwarding = temporal_core_logs().forwarding

    assert forwarding
    assert not forwarding.append_log_fields_to_message


def test_a_librarys_exception_is_told_by_kind_too(log: Log) -> None:
    """Temporal's SDK logs the exception of every failed activity."""
    try:
        fail()
    except ValueError:
        logging.getLogger("temporalio.activity").warning("Completing activity as failed", exc_info=True)

    assert log.line["error_type"] == "ValueError"
    assert CONTENT not in log.out.getvalue()


def test_of_what_a_library_writes_the_first_line_counts(log: Log) -> None:
    """The later lines of asyncio contain a forgotten task's exception or result."""
    logging.getLogger("asyncio").error("something is wrong\ntask: %r", CONTENT)

    assert (log.line["event"], log.line["logger"]) == ("something is wrong", "asyncio")


def test_what_ends_the_process_is_a_line(log: Log) -> None:
    """Python would print its text."""
    sys.excepthook(ValueError, ValueError(CONTENT), None)

    assert (log.line["level"], log.line["error_type"]) == ("critical", "ValueError")
    assert CONTENT not in log.out.getvalue()


def test_an_activity_that_fails_at_the_moment_of_its_cancellation_is_no_error(log: Log) -> None:
    """The SDK drops such a failure unread, and asyncio logs it; other unread failures are logged."""
    failed = ActivityError(
        "Activity task failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="worker",
        activity_type="run_tool",
        activity_id="1",
        retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )
    steps = logging.getLogger("temporalio.worker._workflow_instance")
    steps.error("Future exception was never retrieved\nfuture: <Future finished>", exc_info=failed)
    assert log.out.getvalue() == ""

    steps.error("Future exception was never retrieved\nfuture: <Future finished>", exc_info=ValueError("x"))
    assert log.line["error_type"] == "ValueError"

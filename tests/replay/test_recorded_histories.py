"""Tasks in flight must survive a deploy."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from everloop.workflows.deletion import DeletionWorkflow
from everloop.workflows.housekeeping import Housekeeping
from everloop.workflows.push_delivery import PushDelivery

HISTORIES = sorted(Path(__file__).with_name("histories").glob("*.json"))

SANDBOX = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules(
        "opentelemetry", "pydantic", "everloop.workflows.contract"
    )
)
"""Reloads `workflows`, except its data types, for each history; clocks, chance and I/O raise an error."""


def test_there_are_histories() -> None:
    """Without them the next test would prove nothing."""
    assert HISTORIES


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_still_replays(path: Path) -> None:
    """A change that breaks this needs `workflow.patched` (docs/development/workflow-changes.md).

    In Temporal's sandbox, which refuses clocks, chance and I/O; workers run without it (ADR 19).
    """
    history = WorkflowHistory.from_json(path.stem, path.read_text(encoding="utf-8"))

    replayer = Replayer(
        workflows=[AgentTask, DeletionWorkflow, Housekeeping, PushDelivery],
        workflow_runner=SANDBOX,
        data_converter=WIRE_DATA_CONVERTER,
    )
    await replayer.replay_workflow(history)

"""Metrics of a gateway."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from temporalio.api.workflowservice.v1 import PauseWorkflowExecutionRequest
from temporalio.client import Client

from everloop.gateway.extension.health import Gauges
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.local.servers import LOOPBACK
from everloop.workflows.contract.tasks import AgentSpec
from tests.gateway.harness import task_input, unique
from tests.support.recorded_metrics import Recorded
from tests.support.servers.processes import ROOT

OPEN = "everloop.tasks.open"


async def test_open_tasks_are_counted_by_agent_and_state(client: Client) -> None:
    """Counts are those of visibility, including paused tasks; foreign and ended tasks do not count."""
    agent_id, recorded = unique("agent"), Recorded()
    tasks, task_ids = Tasks(client, unique("nobody")), [unique("open") for _ in range(3)]
    for task_id in task_ids:
        await tasks.start(task_id, task_input(agent=AgentSpec(id=agent_id)), summary="open")
    await client.get_workflow_handle(task_ids[0]).terminate()
    pause = PauseWorkflowExecutionRequest(namespace=client.namespace, workflow_id=task_ids[1], request_id="r")
    await client.workflow_service.pause_workflow_execution(pause)
    asking = Gauges(client, [agent_id, "idle"], {})
    await asking.round()
    while recorded.gauge(OPEN)[agent_id, "submitted"] != 2:
        await asking.round()
    ours = {labels: n for labels, n in recorded.gauge(OPEN).items() if labels[0] in {agent_id, "idle"}}
    assert sum(ours.values()) == 2
    assert len(ours) == 8
    for task_id in task_ids[1:]:
        await client.get_workflow_handle(task_id).terminate()


def test_an_address_that_is_taken_ends_a_worker_too(tmp_path: Path) -> None:
    """The worker exits at once with one line that names the remedy.

    The same test of a gateway is among those of its process.
    """
    with socket.create_server((LOOPBACK, 0)) as listener:
        address = f"{LOOPBACK}:{listener.getsockname()[1]}"
        variables = {"EVERLOOP_METRICS_ADDRESS": address, "OPENAI_API_KEY": "k", "EVERLOOP_MODEL": "m"}
        ran = subprocess.run(
            [sys.executable, "worker.py"],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            check=False,
        )
    assert ran.returncode == 1
    assert (ran.stdout + ran.stderr).decode() == (
        f"worker: cannot listen on {address} for metrics: Address already in use; stop what listens there, "
        "or set EVERLOOP_METRICS_ADDRESS to another host:port\n"
    )

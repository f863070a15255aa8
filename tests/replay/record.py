"""Records golden histories: `python -m tests.replay.record CHANGE`, one commit before the change.

Each scenario becomes `histories/SCENARIO_before_CHANGE.json`. A history that is there is not recorded again:
it stands for tasks that are in flight somewhere. What names a machine (identities, stack traces) is left out.
"""

import asyncio
import json
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.replay.housekeeping_scenarios import HOUSEKEEPING_SCENARIOS, run_housekeeping
from tests.replay.push_scenarios import PUSH_SCENARIOS, run_push
from tests.replay.scenarios import LONG_EVENTS, SCENARIOS, Scenario
from tests.support.fake_ports import TASK_WORK
from tests.support.processes import running_temporal
from worker import WorkerSettings, running_workers
from workflows.contract import names
from workflows.contract.messages import TextPart, UserMessage
from workflows.contract.tasks import TaskInput, TaskResult

HOST = re.compile(r"\b\d+@[\w.-]+")
NAMES_A_MACHINE = frozenset({"identity", "stackTrace"})
HISTORIES = Path(__file__).with_name("histories")


async def record(client: Client, name: str, scenario: Scenario, path: Path) -> None:
    """Run a scenario and keep its history."""
    task = TaskInput(
        context_id="context",
        owner="owner",
        agent=scenario.agent,
        message=UserMessage(message_id="m1", parts=(TextPart(text="Hello"),)),
        created_at=datetime.now(UTC),
    ).model_copy(update=scenario.changes)
    async with running_workers(client, scenario.ports.wired(), WorkerSettings(task_queue=name), TASK_WORK):
        handle = await client.start_workflow(
            names.WORKFLOW_TYPE, task, id=path.stem, task_queue=name, result_type=TaskResult
        )
        await scenario.act(handle)
        try:
            await handle.result()
        except WorkflowFailureError as error:
            sys.stdout.write(f"{name}: ended with {error.cause}\n")
        # Of a task that went on in new runs, the first run.
        history = await client.get_workflow_handle(
            handle.id, run_id=handle.first_execution_run_id
        ).fetch_history()
    await _keep(history, path)


async def _keep(history: WorkflowHistory, path: Path) -> None:
    kept = json.dumps(_anonymous(json.loads(history.to_json())), indent=1)
    await asyncio.to_thread(path.write_text, f"{kept}\n", "utf-8")
    sys.stdout.write(f"{path.name}: {len(history.events)} events\n")


def _anonymous(value: object) -> object:
    match value:
        case dict():
            fields = cast("dict[str, object]", value)
            return {key: _anonymous(v) for key, v in fields.items() if key not in NAMES_A_MACHINE}
        case list():
            return [_anonymous(item) for item in cast("list[object]", value)]
        case str():
            return HOST.sub("worker", value)
        case _:
            return value


async def main(change: str) -> None:
    """Record every scenario for this change."""
    with tempfile.TemporaryDirectory() as directory:
        settings = [f"limit.historyCount.suggestContinueAsNew={LONG_EVENTS}"]
        async with running_temporal(Path(directory), settings) as (_, address):
            client = await Client.connect(address, data_converter=pydantic_data_converter)
            for name, scenario in SCENARIOS.items():
                path = HISTORIES / f"{name}_before_{change}.json"
                if not path.exists():
                    await record(client, name, scenario(), path)
            for name, push in PUSH_SCENARIOS.items():
                path = HISTORIES / f"{name}_before_{change}.json"
                if not path.exists():
                    run = await run_push(client, name, push(), path.stem)
                    await _keep(await run.fetch_history(), path)
            for name, cleaners in HOUSEKEEPING_SCENARIOS.items():
                path = HISTORIES / f"{name}_before_{change}.json"
                if not path.exists():
                    await _keep(await run_housekeeping(client, name, cleaners(), path.stem), path)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

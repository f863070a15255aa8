"""Record golden histories: `python -m tests.replay.record CHANGE [SCENARIO…]`, one commit before the change.

Each scenario, or each of those named, becomes `histories/SCENARIO_before_CHANGE.json`. An existing history is
not recorded again: it represents tasks in flight. Names of a machine (identities, stack traces) are left out.
"""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from temporalio.client import Client, WorkflowFailureError, WorkflowHistory

from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from everloop.workflows.contract.tasks import TaskInput, TaskResult
from tests.replay.housekeeping_scenarios import (
    DELETION_SCENARIOS,
    HOUSEKEEPING_SCENARIOS,
    run_deletion,
    run_housekeeping,
)
from tests.replay.push_scenarios import PUSH_SCENARIOS, run_push
from tests.replay.scenarios import LONG_EVENTS, SCENARIOS, Scenario
from tests.support.fakes.ports import TASK_WORK
from tests.support.servers.processes import running_temporal

HOST = re.compile(r"\b\d+@[\w.-]+")
NAMES_A_MACHINE = frozenset({"identity", "stackTrace"})
HISTORIES = Path(__file__).with_name("histories")


async def run_task(client: Client, name: str, scenario: Scenario, workflow_id: str) -> WorkflowHistory:
    """Run a scenario and return its history; of a task with several runs, that of the first."""
    task = TaskInput(
        context_id="context",
        owner="owner",
        agent=scenario.agent,
        message=UserMessage(message_id="m1", parts=(TextPart(text="Hello"),)),
        created_at=datetime.now(UTC),
    ).model_copy(update=scenario.changes)
    async with running_workers(client, scenario.ports.wired(), WorkerSettings(task_queue=name), TASK_WORK):
        handle = await client.start_workflow(
            names.WORKFLOW_TYPE, task, id=workflow_id, task_queue=name, result_type=TaskResult
        )
        await scenario.act(handle)
        try:
            await handle.result()
        except WorkflowFailureError as error:
            sys.stdout.write(f"{name}: ended with {error.cause}\n")
        first = client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        return await first.fetch_history()


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


async def main(change: str, chosen: Collection[str]) -> None:
    """Record every scenario, or the named ones, for this change."""
    known = {*SCENARIOS, *PUSH_SCENARIOS, *HOUSEKEEPING_SCENARIOS, *DELETION_SCENARIOS}
    if unknown := set(chosen) - known:
        sys.exit(f"there is no scenario {', '.join(sorted(unknown))}; expected: {', '.join(sorted(known))}")
    paths = {name: HISTORIES / f"{name}_before_{change}.json" for name in chosen or known}
    wanted = {name: path for name, path in paths.items() if not path.exists()}
    HISTORIES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        settings = [f"limit.historyCount.suggestContinueAsNew={LONG_EVENTS}"]
        async with running_temporal(Path(directory), settings) as (_, address):
            client = await Client.connect(address, data_converter=WIRE_DATA_CONVERTER)
            for name, path in sorted(wanted.items()):
                await _record(client, name, path)


async def _record(client: Client, name: str, path: Path) -> None:
    if scenario := SCENARIOS.get(name):
        history = await run_task(client, name, scenario(), path.stem)
    elif push := PUSH_SCENARIOS.get(name):
        history = await (await run_push(client, name, push(), path.stem)).fetch_history()
    elif deletion := DELETION_SCENARIOS.get(name):
        history = await run_deletion(client, deletion(), path.stem)
    else:
        history = await run_housekeeping(client, name, HOUSEKEEPING_SCENARIOS[name](), path.stem)
    kept = json.dumps(_anonymous(json.loads(history.to_json())), indent=1)
    await asyncio.to_thread(path.write_text, f"{kept}\n", "utf-8")
    sys.stdout.write(f"{path.name}: {len(history.events)} events\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))

"""An operator of a complete Everloop: the `temporal` command, and a client that watches."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from a2a.client import Client
from a2a.types.a2a_pb2 import GetTaskRequest, Task, TaskState
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client as Temporal

from tests.support.a2a_client import request, send
from tests.support.rigs.deployment import Deployment, Gateway
from tests.support.servers.scripted_openai import Answer, ReceivedRequest, Refusal

Fact = TypeVar("Fact")
_PAUSE = 0.05
_PAUSED = PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED


async def until(look: Callable[[], Awaitable[Fact]], *, does: Callable[[Fact], bool] = bool) -> Fact:
    """Repeat a check of other processes until its result is as expected; return that result."""
    while not does(seen := await look()):  # noqa: ASYNC110 -- facts of other processes, no events
        await asyncio.sleep(_PAUSE)
    return seen


@dataclass
class Harness:
    """An operator's tools. `scripts`: for each first message, the model's answers in order."""

    everloop: Deployment
    gateway: Gateway
    scripts: dict[str, list[Answer]] = field(default_factory=dict[str, list[Answer]])
    requests: dict[str, list[ReceivedRequest]] = field(default_factory=dict[str, list[ReceivedRequest]])
    _client: Temporal | None = None

    def answer(self, received: ReceivedRequest) -> Answer:
        """Play the script of the requesting task."""
        prompt = next(str(m["content"]) for m in received.conversation if m["role"] == "user")
        self.requests.setdefault(prompt, []).append(received)
        script = self.scripts[prompt]
        return script.pop(0) if script else Refusal(400, "script_is_over")

    async def start(self, client: Client, *script: Answer) -> tuple[str, list[ReceivedRequest]]:
        """Start a task with a script of its own; return its id, and the model's requests for it."""
        prompt = f"task {len(self.scripts)}"
        self.scripts[prompt] = list(script)
        task = await send(client, request(prompt, return_immediately=True))
        return task.id, self.requests.setdefault(prompt, [])

    async def temporal(self, *arguments: str) -> str:
        """Run a command as an operator does, and return its output."""
        process = await self._run(*arguments)
        out, err = await process.communicate()
        assert process.returncode == 0, f"temporal {' '.join(arguments)}: {err.decode()}"
        return out.decode()

    async def tries(self, *arguments: str) -> bool:
        """Run a command and return True if it succeeded."""
        process = await self._run(*arguments)
        await process.communicate()
        return process.returncode == 0

    async def ask(self, *arguments: str) -> Any:  # noqa: ANN401 -- JSON, of a shape that the test knows
        """Run a command that prints JSON."""
        printed = await self.temporal(*arguments, "--output", "json")
        return json.loads(printed) if printed.strip() else []

    async def found(self, query: str) -> set[str]:
        """Return the ids of the tasks that a list query finds."""
        listed = await self.ask("workflow", "list", "--query", query)
        return {str(run["execution"]["workflowId"]) for run in listed}

    async def details(self, task_id: str) -> str:
        """Return the current details, as on the task's page."""
        metadata = await self.ask("workflow", "metadata", "--workflow-id", task_id)
        return str(metadata["queryResult"][0].get("currentDetails", ""))

    async def activity(self, task_id: str) -> tuple[str, str]:
        """Return id and state of the activity that the task waits for, or empty."""
        for pending in await self._pending(task_id):
            state = PendingActivityState.Name(pending.state).removeprefix("PENDING_ACTIVITY_STATE_")
            return pending.activity_id, state
        return "", ""

    async def until_heard(self, task_id: str) -> None:
        """Wait for the answers to two heartbeats, which tell the running activity that it is paused."""
        for _ in range(2):
            before = _heartbeats(await self._pending(task_id))
            await until(
                lambda: self._pending(task_id),
                does=lambda seen, last=before: (
                    _heartbeats(seen) != last or any(each.state == _PAUSED for each in seen)
                ),
            )

    async def _pending(self, task_id: str) -> Sequence[PendingActivityInfo]:
        """Describe the workflow as `temporal workflow describe` does, without its process.

        Tests do so repeatedly.
        """
        if not self._client:
            self._client = await Temporal.connect(self.everloop.temporal_address)
        asked = DescribeWorkflowExecutionRequest(
            namespace="default", execution=WorkflowExecution(workflow_id=task_id)
        )
        return (await self._client.workflow_service.describe_workflow_execution(asked)).pending_activities

    async def history(self, task_id: str) -> list[dict[str, Any]]:
        """Return the events of the newest run."""
        shown = await self.ask("workflow", "show", "--workflow-id", task_id)
        return list(shown["events"])

    async def _run(self, *arguments: str) -> asyncio.subprocess.Process:
        command = Path(sys.executable).with_name("temporal")
        return await asyncio.create_subprocess_exec(
            str(command),
            *arguments,
            "--address",
            self.everloop.temporal_address,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


def _heartbeats(pending: Sequence[PendingActivityInfo]) -> list[int]:
    return [each.last_heartbeat_time.ToNanoseconds() for each in pending]


async def in_state(client: Client, task_id: str, state: TaskState) -> Task:
    """Wait until GetTask returns this state."""
    return await until(
        lambda: client.get_task(GetTaskRequest(id=task_id)), does=lambda task: task.status.state == state
    )


def said(task: Task) -> str:
    """Return the text of the status."""
    return "".join(part.text for part in task.status.message.parts)

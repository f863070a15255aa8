"""The two scenes of the demo."""

import asyncio
from dataclasses import dataclass

from a2a.client import Client

from everloop.deploy.demo.conversation import converse
from everloop.deploy.demo.count import LEGEND, Count
from everloop.deploy.demo.errors import DemoError
from everloop.deploy.demo.evidence import Evidence, Midway, written_by
from everloop.deploy.demo.history import fetch_record
from everloop.deploy.demo.screen import Screen
from everloop.deploy.local.stack import LocalStack
from everloop.deploy.local.supervisor import Supervisor

# Of directories that are called so in a clone, where it is installed, and in images.
QUESTION = (
    'Look at the directory `everloop/workflows/contract`, search it for "TaskState", and count its lines.'
)
SURVEY = (
    "Survey the files of the directory `everloop/stores`: list them, then read the three largest at once, "
    "then count their lines. Take notes: one when you have the list, one for each file that you read, one "
    "for the sum."
)


@dataclass(frozen=True)
class Stage:
    """What a scene plays on."""

    stack: LocalStack
    supervisor: Supervisor
    client: Client
    screen: Screen


async def answer_a_question(stage: Stage) -> str:
    """Show one task from the question to the answer; return its id.

    Raises:
        DemoError: it did not complete.
    """
    stage.screen.title("A task, streamed over A2A")
    stage.screen.say(f"You: {QUESTION}\n")
    evidence = Evidence()
    async for arrival in converse(stage.client, QUESTION):
        evidence.take(arrival)
        stage.screen.show(arrival)
    evidence.check_completed()
    return evidence.task_id


async def survive_a_killed_worker(stage: Stage) -> str:
    """Kill the worker in the middle of a task, show that the task goes on, and count; return its id.

    Raises:
        DemoError: it did not complete, there was no moment to kill its worker in the middle of it, or a tool
            did not run exactly once.
    """
    stage.screen.title("A task whose worker is killed")
    stage.screen.say(f"You: {SURVEY}\n")
    evidence, midway = Evidence(), Midway()
    comeback: asyncio.Task[None] | None = None
    async for arrival in converse(stage.client, SURVEY):
        evidence.take(arrival)
        stage.screen.show(arrival)
        if comeback is None and midway.is_reached_by(arrival):
            comeback = await _kill_the_worker(stage)
    if comeback is None:
        raise DemoError(
            "the task was over before the worker could be killed in the middle of it; run it again"
        )
    await comeback
    evidence.check_completed()
    count = Count(
        record=await fetch_record(stage.stack.temporal_http, evidence.task_id),
        starts=evidence.starts,
        lines=written_by(evidence.task_id, stage.stack.ledger),
    )
    stage.screen.say(_account(count))
    count.check_once()
    stage.screen.say("\nThe task finished, and every tool ran exactly once.")
    return evidence.task_id


async def _kill_the_worker(stage: Stage) -> asyncio.Task[None]:
    """End the worker without warning; return the wait for the next one."""
    pid = stage.supervisor.pid("worker")
    stage.screen.alarm(f"SIGKILL to the worker (process {pid}) while it reads the model's reply")
    await stage.supervisor.kill("worker")
    return asyncio.create_task(_await_the_next(stage))


async def _await_the_next(stage: Stage) -> None:
    await stage.supervisor.wait_until_ready("worker")
    pid = stage.supervisor.pid("worker")
    stage.screen.supervisor(
        f"a new worker is ready (process {pid}); it gets the call when its heartbeat is 10 s late"
    )


def _account(count: Count) -> str:
    attempts = count.record.model_attempts
    again = sum(attempts) - len(attempts)
    workers = ", ".join(f"{calls} by {worker}" for worker, calls in count.workers.items())
    lines = ["\nThe count of its tool calls:\n", count.table(), "", LEGEND, ""]
    lines += [f"   Tool calls by process: {workers}"]
    lines += [f"   Replies of the model: {len(attempts)}, asked for again after the kill: {again}"]
    return "\n".join(lines)

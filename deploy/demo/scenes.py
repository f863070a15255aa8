"""The two scenes of the demo."""

import asyncio
from dataclasses import dataclass

from a2a.client import Client

from deploy.demo.conversation import converse
from deploy.demo.errors import DemoError
from deploy.demo.evidence import Evidence, written_by
from deploy.demo.history import recorded_tool_calls
from deploy.demo.screen import Screen
from deploy.local.stack import LocalStack
from deploy.local.supervisor import Supervisor

QUESTION = 'Look at the directory `workflows/contract`, search it for "TaskState", and count its lines.'
SURVEY = (
    "Survey the files of the directory `stores`: list them, then read the three largest at once, then count "
    "their lines. Take notes: one when you have the list, one for each file that you read, one for the sum."
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
        DemoError: it did not complete, nothing was running to be killed, or a tool's effect is missing or
            there twice.
    """
    stage.screen.title("A task whose worker is killed")
    stage.screen.say(f"You: {SURVEY}\n")
    evidence = Evidence()
    interrupted = ""
    comeback: asyncio.Task[None] | None = None
    async for arrival in converse(stage.client, SURVEY):
        evidence.take(arrival)
        stage.screen.show(arrival)
        if comeback is None and evidence.is_midway:
            interrupted = evidence.running
            comeback = await _kill_the_worker(stage, interrupted)
    if comeback is None:
        raise DemoError(
            "the task was over before the worker could be killed in the middle of it; run it again"
        )
    await comeback
    evidence.check_completed()
    recorded = await recorded_tool_calls(stage.stack.temporal_http, evidence.task_id)
    evidence.check_calls(recorded)
    written = written_by(evidence.task_id, stage.stack.ledger)
    evidence.check_notes(written)
    stage.screen.say(_account(evidence, interrupted, written))
    return evidence.task_id


async def _kill_the_worker(stage: Stage, running: str) -> asyncio.Task[None]:
    """End the worker without warning; return the wait for the next one."""
    pid = stage.supervisor.pid("worker")
    stage.screen.alarm(f"SIGKILL to the worker (process {pid}) while it runs {running}")
    await stage.supervisor.kill("worker")
    return asyncio.create_task(_await_the_next(stage))


async def _await_the_next(stage: Stage) -> None:
    await stage.supervisor.wait_until_ready("worker")
    pid = stage.supervisor.pid("worker")
    stage.screen.supervisor(
        f"a new worker is ready (process {pid}); it gets the calls when their heartbeat is 10 s late"
    )


def _account(evidence: Evidence, interrupted: str, written: list[str]) -> str:
    confirmed, unknown = len(evidence.notes("ok")), len(evidence.notes("unknown"))
    doubt = f" ({unknown} more with an outcome that nobody knows)" if unknown else ""
    rows = {
        "Tool calls": f"{len(evidence.calls)} ({evidence.names})",
        "In Temporal's history": f"{len(evidence.calls)} tool calls, each with one outcome",
        "Running at the kill": f"{interrupted}, which may be repeated: they only read",
        "Repeated by the new worker": evidence.repeated,
        "Notes asked for": f"{confirmed}{doubt}",
        "Lines in the ledger": f"{len(written)}, from {len(set(written))} different calls",
    }
    width = max(map(len, rows))
    lines = [f"   {name:<{width}}  {value}" for name, value in rows.items()]
    return "\n".join(["\nThe task finished, and no note was written twice:\n", *lines])

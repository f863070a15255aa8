"""Demonstrate Everloop: two scenes on a separate stack, in a fresh directory."""

import asyncio
import shlex
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

from everloop.cli.client.screen import Screen
from everloop.cli.demo.evidence import HEADINGS, LEGEND, Count, Midway, completed, written_by
from everloop.cli.demo.recorded_calls import DemoError, fetch_record
from everloop.cli.output import print_line, print_table
from everloop.client import Client, ClientError, Event, OtherEvent
from everloop.local.servers import LOOPBACK
from everloop.local.stack import LocalStack, running_stack
from everloop.local.stack_settings import StackSettings, load_settings
from everloop.local.supervisor import Supervisor

TIME_LIMIT = 60.0
TIME_LIMIT_WITH_A_REAL_MODEL = 600.0

ROOT = Path(__file__).parents[3]
"""Parent directory of the package: the repository, or the installation."""

ENVIRONMENT = {
    "EVERLOOP_AGENTS": "everloop.examples.demo:agent",
    "EVERLOOP_DEMO_DIRECTORY": str(ROOT),
    # Slow enough to be watched.
    "EVERLOOP_DEMO_TOOL_DELAY": "0.5",
}

ABOUT_THE_MODEL = """\
The answers came from a script, not from a language model. For a real one, set EVERLOOP_MODEL
and the key of its provider (OPENAI_API_KEY for OpenAI; EVERLOOP_MODEL=ollama/qwen3 needs none), and run it
again."""


# Directories of these names in a clone, in an installation, and in images.
QUESTION = (
    'Look at the directory `everloop/workflows/contract`, search it for "TaskState", and count its lines.'
)
SURVEY = (
    "Survey the files of the directory `everloop/stores`: list them, then read the three largest at once, "
    "then count their lines. Take notes: one when you have the list, one for each file that you read, one "
    "for the sum."
)


class Watcher:
    """Output of the demo: tasks as `everloop send` shows them, and interventions."""

    def __init__(self) -> None:
        self._screen = Screen()

    def title(self, text: str) -> None:
        self._screen.say(f"\n━━ {text}", "bold")

    def supervisor(self, line: str) -> None:
        with suppress(OSError):  # a closed console must not keep processes alive
            self._screen.say(f"   [supervisor] {line}", "dim")

    def alarm(self, text: str) -> None:
        self._screen.say(f"\n✗✗ {text}\n", "bold red")

    async def task(self, title: str, question: str, client: Client) -> AsyncGenerator[Event]:
        """Send a question, and show the events until the task has ended.

        Raises:
            DemoError: it did not complete.
        """
        self.title(title)
        self._screen = Screen()
        self._screen.say(f"You: {question}\n")
        event = Event()
        try:
            async for event in client.stream(question):
                self._screen.show(event)
                yield event
        finally:
            self._screen.pause()
        self._screen.end(completed(event))


@dataclass(frozen=True)
class Scene:
    """Stack and output of the scenes."""

    stack: LocalStack
    supervisor: Supervisor
    client: Client
    watcher: Watcher


async def answer_a_question(scene: Scene) -> str:
    """Show one task from the question to the answer; return its id.

    Raises:
        DemoError: it did not complete.
    """
    events = scene.watcher.task("A task, streamed over A2A", QUESTION, scene.client)
    return [event async for event in events][-1].task_id


async def survive_a_killed_worker(scene: Scene) -> str:
    """Kill the worker in the middle of a task, show that the task goes on, and count; return its id.

    Raises:
        DemoError: it did not complete, there was no moment to kill its worker in the middle of it, or a tool
            did not run exactly once.
    """
    event, midway, starts = Event(), Midway(), Counter[str]()
    comeback: asyncio.Task[None] | None = None
    async with aclosing(scene.watcher.task("A task whose worker is killed", SURVEY, scene.client)) as events:
        async for event in events:
            if isinstance(event, OtherEvent) and event.kind == "tool-start":
                starts[str(event.data["call_id"])] += 1
            if comeback is None and midway.is_reached_by(event):
                comeback = await _kill_the_worker(scene)
    if comeback is None:
        raise DemoError(
            "the task was over before the worker could be killed in the middle of it; run it again"
        )
    await comeback
    record = await fetch_record(scene.stack.temporal_address, event.task_id)
    count = Count(record, starts, written_by(event.task_id, scene.stack.ledger))
    _print_account(count)
    count.check_once()
    print_line("\nThe task finished, and every tool ran exactly once.")
    sys.stdout.flush()
    return event.task_id


async def _kill_the_worker(scene: Scene) -> asyncio.Task[None]:
    """Kill the worker; return the wait for the next one."""
    pid = scene.supervisor.pid("worker")
    scene.watcher.alarm(f"SIGKILL to the worker (process {pid}) while it reads the model's reply")
    await scene.supervisor.kill("worker")
    return asyncio.create_task(_await_the_next(scene))


async def _await_the_next(scene: Scene) -> None:
    await scene.supervisor.wait_until_ready("worker")
    pid = scene.supervisor.pid("worker")
    scene.watcher.supervisor(
        f"a new worker is ready (process {pid}); it gets the call when its heartbeat is 10 s late"
    )


def _print_account(count: Count) -> None:
    attempts = count.record.model_attempts
    again = sum(attempts) - len(attempts)
    workers = ", ".join(f"{calls} by {worker}" for worker, calls in count.workers.items())
    print_line("\nThe count of its tool calls:\n")
    print_table(HEADINGS, count.rows)
    print_line(f"\n{LEGEND}\n")
    print_line(f"Tool calls by process: {workers}")
    print_line(f"Replies of the model: {len(attempts)}, asked for again after the kill: {again}")


async def play(directory: Path) -> None:
    """Play both scenes in an absolute directory, and stop all processes.

    Raises:
        DemoError: the demo did not show the expected result.
        LocalStackError: a stack cannot run here, or not now.
    """
    settings = load_settings().on_free_ports()
    environment = {**ENVIRONMENT, "EVERLOOP_DEMO_LEDGER": str(directory / "ledger.jsonl")}
    watcher = Watcher()
    print_line("\n━━ Starting Temporal, Valkey, a worker and a gateway")
    running = running_stack(directory, settings, watcher.supervisor, environment, fresh=True)
    async with running as (stack, supervisor):
        limit = TIME_LIMIT if settings.uses_demo_model else TIME_LIMIT_WITH_A_REAL_MODEL
        try:
            async with asyncio.timeout(limit), Client(f"http://{LOOPBACK}:{stack.ports.gateway}") as client:
                scene = Scene(stack, supervisor, client, watcher)
                tasks = [await answer_a_question(scene), await survive_a_killed_worker(scene)]
        except ClientError as error:
            said = f"{type(error).__name__}: {error}"
            raise DemoError(f"the gateway did not answer as it should: {said}") from error
        except TimeoutError:
            raise DemoError(f"it was not over after {limit:g} s; the logs are in {stack.logs}") from None
        print_line(_links(stack, settings, tasks))


def _links(stack: LocalStack, settings: StackSettings, tasks: list[str]) -> str:
    lines = ["\nThe tasks in Temporal's UI, each step with what went in and what came out:\n"]
    lines += [f"   {stack.temporal_ui}/namespaces/default/workflows/{task_id}" for task_id in tasks]
    lines += ["\nEverything stops now. This state comes back, at the same addresses, with\n"]
    lines += [f"   everloop up --directory {shlex.quote(str(stack.directory))}"]
    if settings.uses_demo_model:
        lines += ["", ABOUT_THE_MODEL]
    return "\n".join(lines)

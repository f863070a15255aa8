"""Show what Everloop does: two tasks on a stack of their own, in a fresh directory."""

import asyncio
from pathlib import Path

from everloop.deploy.demo.conversation import DemoError, connected
from everloop.deploy.demo.scenes import Scene, answer_a_question, survive_a_killed_worker
from everloop.deploy.demo.screen import Screen
from everloop.deploy.local.servers import LOOPBACK
from everloop.deploy.local.settings import StackSettings, load_settings
from everloop.deploy.local.stack import LocalStack, running_stack

TIME_LIMIT = 60.0
TIME_LIMIT_WITH_A_REAL_MODEL = 600.0

ROOT = Path(__file__).parents[3]
"""What holds the package: the repository, or where it is installed."""

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


async def play(directory: Path, screen: Screen) -> int:
    """Play both scenes in an absolute directory, stop all again, and return 0.

    Raises:
        DemoError: it did not show what it should.
        LocalStackError: a stack cannot run here, or not now.
    """
    settings = load_settings().on_free_ports()
    environment = {**ENVIRONMENT, "EVERLOOP_DEMO_LEDGER": str(directory / "ledger.jsonl")}
    screen.title("Starting Temporal, Valkey, a worker and a gateway")
    running = running_stack(directory, settings, screen.supervisor, environment, fresh=True)
    async with running as (stack, supervisor):
        limit = TIME_LIMIT if settings.uses_demo_model else TIME_LIMIT_WITH_A_REAL_MODEL
        try:
            async with (
                asyncio.timeout(limit),
                connected(f"http://{LOOPBACK}:{stack.ports.gateway}") as client,
            ):
                scene = Scene(stack, supervisor, client, screen)
                tasks = [await answer_a_question(scene), await survive_a_killed_worker(scene)]
        except TimeoutError:
            raise DemoError(f"it was not over after {limit:g} s; the logs are in {stack.logs}") from None
        screen.say(_links(stack, settings, tasks))
    return 0


def _links(stack: LocalStack, settings: StackSettings, tasks: list[str]) -> str:
    lines = ["\nThe tasks in Temporal's UI, each step with what went in and what came out:\n"]
    lines += [f"   {stack.temporal_ui}/namespaces/default/workflows/{task_id}" for task_id in tasks]
    lines += ["\nEverything stops now. This state comes back, at the same addresses, with\n"]
    lines += [f"   everloop up --directory {stack.directory}"]
    if settings.uses_demo_model:
        lines += ["", ABOUT_THE_MODEL]
    return "\n".join(lines)

"""Show what Everloop does: `python -m deploy.demo`.

A stack of its own is started in a fresh directory, two tasks run, and everything is stopped again.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from deploy.demo.conversation import connected
from deploy.demo.errors import DemoError
from deploy.demo.scenes import Stage, answer_a_question, survive_a_killed_worker
from deploy.demo.screen import Screen
from deploy.local.errors import LocalStackError
from deploy.local.servers import LOOPBACK
from deploy.local.settings import StackSettings, load_settings
from deploy.local.signals import run_until_signal
from deploy.local.stack import ROOT, LocalStack, running_stack

STATE = Path(".everloop/demo")
TIME_LIMIT = 60.0
TIME_LIMIT_WITH_A_REAL_MODEL = 600.0
INTERRUPTED = 130

ENVIRONMENT = {
    "EVERLOOP_AGENTS": "agents.demo:agent",
    "EVERLOOP_DEMO_DIRECTORY": str(ROOT),
    # Slow enough to be watched.
    "EVERLOOP_DEMO_TOOL_DELAY": "0.5",
}

ABOUT_THE_MODEL = """\
The answers came from a script, not from a language model. For a real one, set OPENAI_API_KEY and
EVERLOOP_MODEL (and OPENAI_BASE_URL for a provider other than OpenAI), and run it again."""


def main() -> int:
    """Play the demo; return 0 if it showed all it should, 1 if not, 130 if it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description="Show what Everloop does.")
    parser.add_argument(
        "--directory", type=Path, default=STATE, help="where state is kept, fresh at each run"
    )
    directory: Path = parser.parse_args().directory
    screen = Screen()
    try:
        code = run_until_signal(_demo(directory.absolute(), screen))
    except (DemoError, LocalStackError) as error:
        screen.say(f"\nThe demo failed: {error}")
        return 1
    return INTERRUPTED if code is None else code


async def _demo(directory: Path, screen: Screen) -> int:
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
                stage = Stage(stack, supervisor, client, screen)
                tasks = [await answer_a_question(stage), await survive_a_killed_worker(stage)]
        except TimeoutError:
            raise DemoError(f"it was not over after {limit:g} s; the logs are in {stack.logs}") from None
        screen.say(_links(stack, settings, tasks))
    return 0


def _links(stack: LocalStack, settings: StackSettings, tasks: list[str]) -> str:
    lines = ["\nThe tasks in Temporal's UI, each step with what went in and what came out:\n"]
    lines += [f"   {stack.temporal_ui}/namespaces/default/workflows/{task_id}" for task_id in tasks]
    lines += ["\nEverything stops now. This state comes back, at the same addresses, with\n"]
    lines += [f"   {sys.executable} -m deploy.local up --directory {stack.directory}"]
    if settings.uses_demo_model:
        lines += ["", ABOUT_THE_MODEL]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

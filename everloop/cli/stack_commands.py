"""`everloop up`, `conformance` and `demo`: all of Everloop on this machine."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everloop.cli.output import (
    INTERRUPTED,
    CommandError,
    print_fields,
    print_json,
    print_line,
    print_notice,
    reported,
)
from everloop.cli.server_commands import STATE, check_local_servers, use_env

if TYPE_CHECKING:
    from everloop.local.stack import LocalStack

DEMO_STATE = STATE / "demo"

CONFORMANCE_PORT = 9999
CONFORMANCE_AGENTS = "everloop.examples.conformance_agent:agent"
CONFORMANCE_WEBHOOKS = "127.0.0.0/8,::1,localhost,example.com"
"""Allowed targets of notifications for compatibility kits."""

INTERRUPTED_START = "interrupted before it was up; all that had started is stopped"
DEMO_AGENT = " (the demo agent alone: set EVERLOOP_AGENTS to serve yours, or use `everloop dev`)"
SCRIPTED = " (a script, no language model: set EVERLOOP_MODEL and its provider's key for a real one)"
INTERRUPTED_DEMO = "interrupted; all that had started is stopped"

Directory = Annotated[
    Path, typer.Option(metavar="PATH", file_okay=False, help="Where state is kept, logs included.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the addresses as JSON, all else on stderr.")]


commands = typer.Typer()


@commands.command(rich_help_panel="Run")
def up(directory: Directory = STATE, *, as_json: Json = False) -> None:
    """Run all of Everloop on this machine until Ctrl-C.

    That is Temporal with its UI, Valkey, a worker and a gateway, whose addresses are printed. State survives
    a restart. Without a model of yours a scripted one answers, and says so.
    """
    _run_stack(directory, {}, None, as_json=as_json)


@commands.command(rich_help_panel="Run")
def demo(
    directory: Annotated[
        Path, typer.Option(metavar="PATH", file_okay=False, help="Where state is kept, fresh at each run.")
    ] = DEMO_STATE,
) -> None:
    """Watch a task survive the kill of its worker.

    A stack of its own is started in a fresh directory. One task is streamed; the worker of another is killed,
    and a count proves that every tool ran exactly once. Then everything is stopped.
    """
    check_local_servers()
    use_env()
    from everloop.cli.demo.play import play
    from everloop.cli.demo.recorded_calls import DemoError
    from everloop.local.stack_errors import LocalStackError
    from everloop.local.supervisor import run_until_signal

    try:
        with reported(LocalStackError, interrupted=INTERRUPTED_DEMO):
            is_over = run_until_signal(play(directory.absolute()))
    except DemoError as error:
        raise CommandError(f"the demo failed: {error}") from error
    if not is_over:
        raise CommandError(INTERRUPTED_DEMO, INTERRUPTED)


@commands.command(rich_help_panel="Run")
def conformance(directory: Directory = STATE, *, as_json: Json = False) -> None:
    """Run Everloop with an agent for A2A compatibility kits.

    The gateway is on port 9999, or that of EVERLOOP_PORT.
    """
    environment = {
        "EVERLOOP_AGENTS": CONFORMANCE_AGENTS,
        "EVERLOOP_PUSH_ALLOW": os.environ.get("EVERLOOP_PUSH_ALLOW") or CONFORMANCE_WEBHOOKS,
    }
    _run_stack(directory, environment, CONFORMANCE_PORT, as_json=as_json)


def _run_stack(
    directory: Path, environment: Mapping[str, str], default_port: int | None, *, as_json: bool
) -> None:
    """Run a stack until a signal, its normal end; a signal before it is up interrupts it."""
    check_local_servers()
    use_env()
    say, state = print_notice if as_json else _say, directory.absolute()
    is_up = asyncio.Event()

    async def run() -> None:
        from everloop.local.stack import running_stack
        from everloop.local.stack_settings import load_settings

        settings = load_settings()
        if default_port and not settings.port:
            settings = settings.model_copy(update={"port": default_port})
        async with running_stack(state, settings, say, environment) as (stack, _):
            is_up.set()
            _announce(stack, as_json=as_json)
            await asyncio.Event().wait()

    run_servers(run(), is_up.is_set)
    say("stopped")


def run_servers(work: Coroutine[Any, Any, None], is_up: Callable[[], bool]) -> None:
    """Run servers until a signal.

    Raises:
        CommandError: they do not start, or the signal came before they were up.
    """
    from everloop.local.stack_errors import LocalStackError
    from everloop.local.supervisor import run_until_signal

    with reported(LocalStackError, interrupted=INTERRUPTED_START):
        run_until_signal(work)
    if not is_up():
        raise CommandError(INTERRUPTED_START, INTERRUPTED)


def _announce(stack: "LocalStack", *, as_json: bool) -> None:
    from everloop.local.demo_model.script import MODEL

    url = stack.gateway_url.rstrip("/")
    addresses = (
        ("gateway", "A2A gateway", stack.gateway_url),
        ("grpc", "gRPC", stack.grpc_address),
        ("agent_card", "Agent card", f"{url}/.well-known/agent-card.json"),
        ("agents", "All agents", f"{url}/agents"),
        ("model", "Model", stack.model),
        ("console", "Console", stack.console_url),
        ("temporal_ui", "Temporal UI", stack.temporal_ui),
        ("temporal", "Temporal", stack.temporal_address),
        ("redis", "Redis", stack.redis_address),
        ("logs", "Logs", str(stack.logs)),
    )
    with suppress(OSError):  # a closed console must not stop the processes
        if as_json:
            print_json({key: value or None for key, _, value in addresses})
        else:
            print_line("\nEverloop is up. Ctrl-C stops it; tasks go on at the next start.\n")
            shown = {f"  {label}": value for _, label, value in addresses}
            if stack.model == MODEL:
                shown["  Model"] += SCRIPTED
            if stack.serves_demo_agent:
                shown["  All agents"] += DEMO_AGENT
            print_fields(shown)
            print_line("")
        sys.stdout.flush()


def _say(line: str) -> None:
    with suppress(OSError):  # as above
        print_line(line)
        sys.stdout.flush()

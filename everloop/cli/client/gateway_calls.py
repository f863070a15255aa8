"""Calls of a gateway by commands: options, connection, errors and exit codes.

Exit codes of commands that follow a task: 0 completed, 3 failed, 4 rejected, 5 canceled, 6 waiting for
an answer; 1, 2 and 130 as everywhere (`everloop.cli.output`). After Ctrl-C the task goes on.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from everloop.cli.output import (
    CommandError,
    option,
    option_of,
    print_json,
    print_line,
    print_notice,
    print_table,
    reported,
)

if TYPE_CHECKING:
    from everloop.cli.client.profiles import Profile
    from everloop.client import Client, ClientError, Event, Result

T = TypeVar("T")

CODES = {"failed": 3, "rejected": 4, "canceled": 5, "input-required": 6, "auth-required": 6}
"""Exit code of a command that followed a task to this state."""

EXIT_CODES = (
    "Exit codes: 0 completed, 3 failed, 4 rejected, 5 canceled, 6 waits for an answer, 1 it could not be "
    "asked, 130 Ctrl-C (the task goes on)."
)

NO_AGENT = "there is no agent at "
"""Prefix of the client's error for a missing card."""

LOOK_CLOSER = " `everloop doctor` looks closer;"

ProfileName = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="NAME|URL",
        envvar="EVERLOOP_PROFILE",
        show_envvar=False,
        help="Profile, or address of a gateway (default: EVERLOOP_PROFILE, or the one that runs here).",
    ),
]
AgentId = Annotated[str, option("ID", "Agent (default: that of the profile, or the gateway's first).")]
TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The id of a task.", show_default=False)]
ContextArgument = Annotated[
    str, typer.Argument(metavar="CONTEXT", help="The id of a conversation.", show_default=False)
]
ContextId = Annotated[str, option("ID", "Conversation to continue (default: a new one).", name="--context")]
Folder = Annotated[Path | None, option("FOLDER", "Save artifacts there, without asking.", name="--save")]
Limit = Annotated[int, option("N", "Maximum number of rows.", most=10_000)]
MOST_LISTED = 20
"""Default limit of listed items."""


@dataclass(frozen=True)
class Gateway:
    """Gateway of a command. `origin` describes its source, `agent` is the agent of the command line."""

    profile: "Profile"
    origin: str
    agent: str = ""

    def client(self) -> "Client":
        """Return a client of the selected agent."""
        return self.profile.client(self.agent)

    @property
    def renewal(self) -> str:
        """Advice for credentials that the gateway rejects."""
        from everloop.cli.client.profiles import OF_FILE

        if self.profile.token_file:
            return f"Renew the token in {self.profile.token_file}"
        if self.origin.startswith(OF_FILE):
            return "Add the profile again, with others: `everloop profiles add --help`"
        return "Set EVERLOOP_API_KEY or EVERLOOP_TOKEN, or make a profile: `everloop profiles add --help`"

    async def client_of(self, task_id: str) -> "Client":
        """Return a client of the agent of a task: the task id begins with the agent's id."""
        if self.agent:
            return self.client()
        async with self.client() as client:
            names = [each.id for each in await client.agents() if task_id.startswith(f"{each.id}-")]
        return self.profile.client(max(names, key=len, default=""))


def ask(work: Callable[[Gateway], Coroutine[Any, Any, T]], profile: str, agent: str = "") -> T:
    """Run an operation on the gateway of a profile, and return its result.

    Raises:
        CommandError: the gateway is unreachable or rejects the request.
    """
    from everloop.cli.client.profiles import choose_profile
    from everloop.client import ClientError

    for stream in (sys.stdout, sys.stderr):
        if callable(reconfigure := getattr(stream, "reconfigure", None)):
            reconfigure(errors="replace")  # the terminal may not support all characters of agents
    origin, chosen = choose_profile(profile)
    gateway = Gateway(chosen, origin, agent)
    with reported():
        try:
            return asyncio.run(work(gateway))
        except ClientError as error:
            raise refused(error, gateway) from error


def run_with_client(
    work: "Callable[[Client], Awaitable[T]]", profile: str, agent: str = "", *, task_id: str = ""
) -> T:
    """Return the result of an operation of one client: of the agent, or of the agent of a task."""

    async def answer(gateway: Gateway) -> T:
        client = await gateway.client_of(task_id) if task_id else gateway.client()
        async with client:
            return await work(client)

    return ask(answer, profile, agent)


def follow_task(  # noqa: PLR0913 -- all have names
    begin: "Callable[[Client], AsyncGenerator[Event] | Awaitable[Result]]",
    profile: str,
    *,
    agent: str = "",
    task_id: str = "",
    folder: Path | None = None,
    as_json: bool = False,
) -> NoReturn:
    """Follow the events of an agent or of a task, and end the command with the exit code of the task.

    Events that `begin` returns are followed; a result is that of a detached task.
    """

    async def work(client: "Client") -> "tuple[Result, bool]":
        begun = begin(client)
        if isinstance(begun, Awaitable):
            return await begun, True
        from everloop.cli.client.turns import follow

        result = await follow(client, begun, profile=profile, as_json=as_json, folder=folder, task_id=task_id)
        return result, False

    result, is_detached = run_with_client(work, profile, agent, task_id=task_id)
    finish(result, profile, detach=is_detached, as_json=as_json)


def refused(error: "ClientError", gateway: Gateway) -> CommandError:
    """Return the error of a client as the error of a command."""
    from everloop.client import NotFoundError, UnauthenticatedError, UnreachableError
    from everloop.client import errors as advised

    where = f"{gateway.profile.url} ({gateway.origin})"
    if isinstance(error, UnauthenticatedError) and error.reason != advised.CERTIFICATE_REQUIRED:
        return CommandError(
            f"{where} does not know who calls ({error.problem}); it got "
            f"{gateway.profile.auth or 'no credentials'}. {gateway.renewal}"
        )
    if isinstance(error, UnreachableError) and error.advice == advised.IS_IT_RUNNING:
        return CommandError(
            f"no answer from {where}: {error.cause}. Is the gateway running (`everloop dev` or `up` runs "
            f"one here), and is this its address?{LOOK_CLOSER} --profile names another one"
        )
    if gateway.agent and isinstance(error, NotFoundError) and error.problem.startswith(NO_AGENT):
        return CommandError(f"there is no agent {gateway.agent!r} at {where}; `everloop agents` lists them")
    give_cert = "give --cert and --cert-key to `everloop profiles add`"
    options = {
        advised.GIVE_CERTIFICATE: give_cert,
        advised.MAY_DEMAND_CERTIFICATE: f"if it demands a client certificate, {give_cert}",
        advised.TRUST_CERTIFICATE: "if it is the right one, give --ca with the certificates to trust to "
        "`everloop profiles add`",
    }
    advice = options.get(error.advice, error.advice)
    if error.reason == "TASK_NOT_FOUND":
        advice = "`everloop tasks list` shows those that there are"
    return CommandError(f"{error.problem}; {advice}" if advice else error.problem)


def finish(result: "Result", profile: str, *, detach: bool = False, as_json: bool = False) -> NoReturn:
    """End a command that has followed a task, or detached from it (`detach`)."""
    if as_json:
        print_json(result)
    elif detach:
        print_line(result.id or result.text)
    if detach and result.id and not as_json:
        again = f"everloop tasks watch {result.id}{option_of(profile)}"
        print_notice(f"the task goes on; `{again}` follows it")
    raise typer.Exit(0 if detach else CODES.get(result.state, 0))


def print_found(
    found: Sequence[T], head: Sequence[str], row: Callable[[T], Sequence[str]], nothing: str, *, as_json: bool
) -> None:
    """Print the found items, one row each, or `nothing` if there are none."""
    if as_json:
        print_json(found)
    elif found:
        print_table(head, list(map(row, found)))
    else:
        print_notice(nothing)

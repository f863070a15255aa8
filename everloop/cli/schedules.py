"""`everloop schedules`: let agents start tasks by themselves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from everloop.cli import schedule_options as options
from everloop.cli.errors import misused, reported
from everloop.cli.servers import use_local_stack
from everloop.cli.tables import NOTHING, AsJson, print_json, print_line, print_table

if TYPE_CHECKING:
    from everloop.deploy.schedule.schedules import ListedSchedule, Schedules

T = TypeVar("T")

HEAD = ("ID", "AGENT", "WHEN", "NEXT RUN", "LAST TASK", "PAUSED")

Overlap = Literal["skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all"]

Id = Annotated[str, typer.Argument(metavar="ID", callback=options.utf8, help="What `list` calls it.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Let agents start tasks by the clock.",
    epilog="Agents are those of EVERLOOP_AGENTS, and EVERLOOP_TASK_QUEUE has to be that of workers and "
    "gateways. What a schedule does is told in docs/schedules.md.",
)


@app.command(
    epilog="""Examples:

    everloop schedules add --agent reporter --text "Write the daily report." --cron "0 9 * * 1-5"

    everloop schedules add --agent watcher --text "Look for news." --every 30m --id news"""
)
def add(  # noqa: PLR0913 -- each is an option
    agent: Annotated[
        str,
        typer.Option(metavar="ID", callback=options.utf8, help="Who gets it: an agent of EVERLOOP_AGENTS."),
    ],
    text: Annotated[str, typer.Option(metavar="TEXT", callback=options.text, help="The message.")],
    *,
    cron: Annotated[
        str,
        typer.Option(
            metavar="CRON",
            callback=options.cron,
            show_default=False,
            help="When: minute, hour, day of the month, month, day of the week, as in '0 9 * * 1-5'.",
        ),
    ] = "",
    every: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            callback=options.every,
            show_default=False,
            help="Or how often: 90s, 30m, 1h30m, 7d.",
        ),
    ] = "",
    time_zone: Annotated[
        str, typer.Option(metavar="ZONE", callback=options.utf8, help="Where --cron is read.")
    ] = "UTC",
    overlap: Annotated[
        Overlap,
        typer.Option(
            metavar="POLICY",
            help="What becomes of a task that is due while the one before still runs: **skip** it, start one "
            "(**buffer-one**) or all (**buffer-all**) of those that came due afterwards, stop the other one "
            "(**cancel-other**, **terminate-other**), or let both run (**allow-all**).",
        ),
    ] = "skip",
    owner: Annotated[
        str, typer.Option(metavar="NAME", callback=options.owner, help="Whose tasks these are.")
    ] = "anonymous",
    context: Annotated[
        str,
        typer.Option(
            metavar="ID",
            callback=options.context,
            show_default=False,
            help="The conversation that all its tasks belong to (default: one for each task).",
        ),
    ] = "",
    given_id: Annotated[
        str,
        typer.Option(
            "--id",
            metavar="ID",
            callback=options.schedule_id,
            show_default=False,
            help="What to call it (default: agent and a digest, so that adding it again is noticed).",
        ),
    ] = "",
    note: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            callback=options.utf8,
            show_default=False,
            help="A note for people; Temporal's UI shows it.",
        ),
    ] = "",
) -> None:
    """Send a message to an agent again and again; each time it becomes a new task."""
    if bool(cron) == bool(every):
        raise misused("a schedule has one of --cron and --every: give this one, or the other")
    from everloop.agents.errors import AgentError
    from everloop.agents.registry import AgentSettings, load_agents
    from everloop.deploy.schedule.definition import ScheduleDefinition
    from everloop.deploy.schedule.recurrence import Recurrence
    from everloop.deploy.schedule.settings import QueueSettings

    with reported(AgentError):
        found = load_agents(AgentSettings().agents).find(agent)
        definition = ScheduleDefinition(
            agent_id=found.id,
            agent_name=found.name,
            text=text,
            recurrence=Recurrence(cron, every, time_zone),
            overlap=overlap,
            owner=owner,
            context_id=context,
            given_id=given_id,
            note=note,
            priority=found.priority,
            splits_queues=QueueSettings().split_queues,
        )
    first = _asked(lambda schedules: schedules.add(definition))
    print_line(f"added {definition.id}: agent {definition.agent_id}, {definition.recurrence.description}")
    print_line(f"next run: {first}")


@app.command(name="list")
def list_(*, as_json: AsJson = False) -> None:
    """Show all schedules."""
    listed = _asked(lambda schedules: schedules.listed())
    if as_json:
        print_json(list(map(_data, listed)))
    elif listed:
        print_table(HEAD, list(map(_row, listed)))
    else:
        print_line("there are no schedules; `everloop schedules add` makes one")


@app.command()
def pause(schedule: Id) -> None:
    """Let a schedule start nothing until it is resumed."""
    _asked(lambda schedules: schedules.pause(schedule))
    print_line(f"paused {schedule}; it starts nothing until `everloop schedules resume {schedule}`")


@app.command()
def resume(schedule: Id) -> None:
    """Let it start tasks again."""
    next_run = _asked(lambda schedules: schedules.resume(schedule))
    print_line(f"resumed {schedule}\nnext run: {next_run}")


@app.command()
def trigger(schedule: Id) -> None:
    """Start a task of it now."""
    task_id = _asked(lambda schedules: schedules.trigger(schedule))
    if task_id:
        print_line(f"triggered {schedule}; it started task {task_id}")
        return
    from everloop.deploy.schedule.schedules import START_TIMEOUT

    print_line(
        f"triggered {schedule}; nothing new has started within {START_TIMEOUT:g} s: the overlap policy "
        "(see --overlap of `add`), or another trigger in the same second"
    )


@app.command()
def remove(schedule: Id) -> None:
    """Remove it; tasks that it has started go on."""
    _asked(lambda schedules: schedules.remove(schedule))
    print_line(f"removed {schedule}; tasks that it has started go on")


def _asked(ask: "Callable[[Schedules], Awaitable[T]]") -> T:
    """Connect to Temporal, and return what it answers.

    Raises:
        CommandError: it cannot, or not in time.
    """
    import uvloop

    from everloop.deploy.schedule.errors import ScheduleError
    from everloop.runtime.encryption.cipher import EncryptionError
    from everloop.runtime.temporal.connection import TemporalUnreachableError

    use_local_stack()
    kinds = (EncryptionError, ScheduleError, TemporalUnreachableError)
    with reported(*kinds, interrupted="interrupted; `everloop schedules list` shows what has been done"):
        return uvloop.run(_answer(ask))  # its signals wake it in whatever thread of the SDK they arrive


async def _answer(ask: "Callable[[Schedules], Awaitable[T]]") -> T:
    from everloop.deploy.schedule import schedules
    from everloop.deploy.schedule.errors import ScheduleError

    seconds = schedules.ANSWER_TIMEOUT.total_seconds()
    try:
        async with asyncio.timeout(seconds):
            return await ask(await schedules.connected_schedules())
    except TimeoutError as error:
        raise ScheduleError(
            f"Temporal does not answer within {seconds:g} s; see TEMPORAL_ADDRESS and whether it runs there, "
            "then whether `everloop schedules list` shows what you asked for, before you try again"
        ) from error


def _row(each: "ListedSchedule") -> tuple[str, ...]:
    next_run = str(each.next_run) if each.next_run else NOTHING
    paused = "yes" if each.is_paused else "no"
    return (each.id, each.agent_id, each.when, next_run, each.last_task or NOTHING, paused)


def _data(each: "ListedSchedule") -> dict[str, object]:
    at = each.next_run.at if each.next_run else None
    return {
        "id": each.id,
        "agent": each.agent_id,
        "when": each.when,
        "next_run": at.isoformat() if at else None,
        "last_task": each.last_task or None,
        "is_paused": each.is_paused,
    }

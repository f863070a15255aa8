"""`everloop schedules`: manage schedules by which agents start tasks."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from everloop.cli.output import (
    NOTHING,
    AsJson,
    misused,
    option,
    print_json,
    print_line,
    print_table,
    reported,
)
from everloop.cli.server_commands import run_on_servers, use_local_stack

if TYPE_CHECKING:
    from everloop.runtime.schedules.schedule_definition import ScheduleDefinition
    from everloop.runtime.schedules.schedules import ListedSchedule, ScheduleError, Schedules

# Validators of options: each returns a valid value unchanged, and rejects others.


def check_text(value: str) -> str:
    """Validate a message, which Temporal keeps with the schedule."""
    from everloop.runtime.schedules.schedule_definition import MAX_MESSAGE_BYTES

    if not value.strip():
        raise typer.BadParameter("the message is empty; write what the agent is to do")
    size = len(value.encode())
    if size > MAX_MESSAGE_BYTES:
        raise typer.BadParameter(f"the message has {size} bytes; give at most {MAX_MESSAGE_BYTES}")
    return value


def check_cron(value: str) -> str:
    """Validate a cron expression; Temporal checks the rest of it."""
    if value and not value.strip():
        raise typer.BadParameter("the expression is empty; write '0 9 * * 1-5', for example")
    return value


def check_every(value: str) -> str:
    """Validate an interval."""
    from everloop.runtime.schedules.recurrence import read_interval

    if value:
        try:
            read_interval(value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return value


def check_owner(value: str) -> str:
    """Validate an owner, or anonymous."""
    from everloop.gateway.context import ANONYMOUS, problem_of_owner

    if value != ANONYMOUS and (problem := problem_of_owner(value)):
        raise typer.BadParameter(f"no owner can be called {value!r}: {problem}")
    return value


def check_context(value: str) -> str:
    """Validate the id of a context."""
    from a2a.utils.errors import InvalidParamsError

    from everloop.gateway.requests.incoming_messages import check_id

    try:
        return check_id(value, "the id of the context") if value else value
    except InvalidParamsError as error:
        raise typer.BadParameter(error.message) from None


def check_schedule_id(value: str) -> str:
    """Validate the id of a schedule."""
    from everloop.runtime.schedules.schedule_definition import problem_of_id

    if value and (problem := problem_of_id(value)):
        raise typer.BadParameter(problem)
    return value


T = TypeVar("T")

HEAD = ("ID", "AGENT", "WHEN", "NEXT RUN", "LAST TASK", "PAUSED")

Overlap = Literal["skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all"]

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the schedule, as `list` shows it.")]

FIELDS = "minute, hour, day of the month, month, day of the week"
OVERLAP = (
    "Rule for a task that is due while the one before still runs: **skip** it, start one "
    "(**buffer-one**) or all (**buffer-all**) due tasks after it, stop the running one "
    "(**cancel-other**, **terminate-other**), or run both (**allow-all**)."
)
CONTEXT = "Conversation of all its tasks (default: one for each task)."
SCHEDULE_ID = "Id of the schedule (default: agent and a digest, which detects duplicates)."

app = typer.Typer(
    no_args_is_help=True,
    help="Manage schedules, which start tasks of agents.",
    epilog="Agents are those of EVERLOOP_AGENTS, or of `everloop dev` or `up` in this directory. "
    "EVERLOOP_TASK_QUEUE has to be that of workers and gateways. What a schedule does is told in "
    "docs/operation/schedules.md.",
)


@app.callback()
def find_servers() -> None:
    """Find the servers and the agents, for all commands of schedules."""
    use_local_stack()


@app.command(
    epilog="""Examples:

    everloop schedules add --agent reporter --text "Write the daily report." --cron "0 9 * * 1-5"

    everloop schedules add --agent watcher --text "Look for news." --every 30m --id news"""
)
def add(  # noqa: PLR0913 -- each is an option
    agent: Annotated[str, option("ID", "Agent of the tasks.")],
    text: Annotated[str, option("TEXT", "The message.", check_text)],
    *,
    cron: Annotated[str, option("CRON", f"Cron expression: {FIELDS}, as in '0 9 * * 1-5'.", check_cron)] = "",
    every: Annotated[str, option("TIME", "Or interval: 90s, 30m, 1h30m, 7d.", check_every)] = "",
    time_zone: Annotated[str, option("ZONE", "Time zone of --cron.")] = "UTC",
    overlap: Annotated[Overlap, option("POLICY", OVERLAP)] = "skip",
    owner: Annotated[str, option("NAME", "Owner of the tasks.", check_owner)] = "anonymous",
    context: Annotated[str, option("ID", CONTEXT, check_context)] = "",
    given_id: Annotated[str, option("ID", SCHEDULE_ID, check_schedule_id, name="--id")] = "",
    note: Annotated[str, option("TEXT", "A note for people; Temporal's UI shows it.")] = "",
) -> None:
    """Add a schedule, which sends a message to an agent repeatedly, each time as a new task."""
    if bool(cron) == bool(every):
        raise misused("a schedule has one of --cron and --every: give this one, or the other")
    from everloop.agents.errors import AgentError
    from everloop.agents.registry import AgentSettings, load_agents
    from everloop.runtime.schedules.recurrence import Recurrence
    from everloop.runtime.schedules.schedule_definition import QueueSettings, ScheduleDefinition
    from everloop.workflows.contract.messages import TextPart

    with reported(AgentError):
        found = load_agents(AgentSettings().agents).find(agent)
        definition = ScheduleDefinition(
            agent_id=found.id,
            agent_name=found.name,
            parts=(TextPart(text=text),),
            recurrence=Recurrence(cron, every, time_zone),
            overlap=overlap,
            owner=owner,
            context_id=context,
            name=given_id,
            note=note,
            priority=found.priority,
            splits_queues=QueueSettings().split_queues,
        )
    first = _run_with_schedules(lambda schedules: schedules.add(definition))
    print_line(f"added {definition.id}: agent {definition.agent_id}, {definition.recurrence.description}")
    print_line(f"next run: {first}")


@app.command(name="list")
def list_(*, as_json: AsJson = False) -> None:
    """Show all schedules."""
    listed = _run_with_schedules(lambda schedules: schedules.listed())
    if as_json:
        print_json(list(map(_data, listed)))
    elif listed:
        print_table(HEAD, list(map(_row, listed)))
    else:
        print_line("there are no schedules; `everloop schedules add` makes one")


@app.command()
def pause(schedule: Id) -> None:
    """Pause a schedule: it starts no tasks until it is resumed."""
    _run_with_schedules(lambda schedules: schedules.pause(schedule))
    print_line(
        f"paused {schedule}; it starts nothing until `everloop schedules resume {shlex.quote(schedule)}`"
    )


@app.command()
def resume(schedule: Id) -> None:
    """Resume a paused schedule."""
    next_run = _run_with_schedules(lambda schedules: schedules.resume(schedule))
    print_line(f"resumed {schedule}\nnext run: {next_run}")


@app.command()
def trigger(schedule: Id) -> None:
    """Start a task of the schedule now."""
    task_id = _run_with_schedules(lambda schedules: schedules.trigger(schedule))
    if task_id:
        print_line(f"triggered {schedule}; it started task {task_id}")
        return
    from everloop.runtime.schedules.schedules import START_TIMEOUT

    print_line(
        f"triggered {schedule}; nothing new has started within {START_TIMEOUT:g} s: the overlap policy "
        "(see --overlap of `add`), or another trigger in the same second"
    )


@app.command()
def remove(schedule: Id) -> None:
    """Remove a schedule. Tasks that it has started go on."""
    _run_with_schedules(lambda schedules: _remove(schedules, schedule))
    print_line(f"removed {schedule}; tasks that it has started go on")


async def _remove(schedules: "Schedules", schedule: str) -> None:
    from everloop.runtime.encryption.cipher import EncryptionError

    try:
        definition = (await schedules.get(schedule)).definition
    except EncryptionError:  # its key is lost, so its stored content is unreadable, too
        definition = None
    if definition and definition.keeps:
        # First: after the removal of the schedule it could not be found.
        await _forget(definition)
    await schedules.remove(schedule)


async def _forget(definition: "ScheduleDefinition") -> None:
    """Remove the stored data of the tasks of a schedule from Redis and the blob store."""
    from redis.exceptions import RedisError

    from everloop.runtime.blobs import BlobError
    from everloop.runtime.environment import StartError
    from everloop.runtime.redis import StoreSettings, connect_redis
    from everloop.runtime.schedules.schedules import ScheduleError
    from everloop.stores.artifacts.artifact_store import ArtifactSettings
    from everloop.stores.artifacts.schedule_files import make_schedule_files
    from everloop.stores.blobs.blob_settings import BlobSettings, opened_blobs
    from everloop.stores.lifetimes import DEFAULT_RETENTION
    from everloop.stores.push.configs import PushConfigs
    from everloop.stores.push.schedule_webhooks import ScheduleWebhooks

    try:
        async with (
            connect_redis(StoreSettings().redis_url) as redis,
            opened_blobs(BlobSettings(), redis) as blobs,
        ):
            files = make_schedule_files(ArtifactSettings(), redis, blobs, DEFAULT_RETENTION)
            await ScheduleWebhooks(redis, PushConfigs(redis)).remove(definition.id)
            await files.remove(definition.owner, definition.id)
    except (BlobError, RedisError, StartError, OSError) as error:
        raise ScheduleError(
            f"schedule {definition.id!r} stays: it keeps files or a webhook, which cannot be removed now "
            f"({type(error).__name__}: {error})"
        ) from error


def _run_with_schedules(ask: "Callable[[Schedules], Awaitable[T]]") -> T:
    """Connect to Temporal, and return its answer.

    Raises:
        CommandError: Temporal does not answer, or not in time.
    """
    from everloop.runtime.schedules import schedules
    from everloop.runtime.schedules.schedules import ScheduleError

    async def answer() -> T:
        seconds = schedules.ANSWER_TIMEOUT.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await ask(await schedules.connected_schedules())
        except ScheduleError as error:
            raise ScheduleError(_advised(error)) from error
        except TimeoutError as error:
            raise ScheduleError(
                f"Temporal does not answer within {seconds:g} s; see TEMPORAL_ADDRESS and whether it runs "
                "there, then whether `everloop schedules list` shows what you asked for, before you try again"
            ) from error

    interrupted = "interrupted; `everloop schedules list` shows what has been done"
    return run_on_servers(answer(), ScheduleError, interrupted=interrupted)


def _advised(error: "ScheduleError") -> str:
    """Return the problem, and its fix on the command line."""
    from everloop.runtime.schedules import schedules

    match error:
        case schedules.ScheduleExistsError():
            return f"{error}; remove it first, or give this one another --id"
        case schedules.ScheduleRefusedError(field=str(field)) if field:
            return f"--{field.replace(' ', '-')}: {error}"
        case schedules.ScheduleUnknownError() if error.__cause__:
            return f"{error}; `everloop schedules list` shows which there are"
        case _:
            return str(error)


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

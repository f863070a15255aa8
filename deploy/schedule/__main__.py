"""Let agents start tasks by themselves: `python -m deploy.schedule add|list|pause|resume|trigger|remove`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import timedelta

import uvloop
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from agents.errors import AgentError
from agents.registry import AgentSettings, load_agents
from deploy.schedule.arguments import parser
from deploy.schedule.definition import ScheduleDefinition
from deploy.schedule.errors import ScheduleError
from deploy.schedule.recurrence import Recurrence
from deploy.schedule.schedules import ANSWER_TIMEOUT, START_TIMEOUT, Schedules
from deploy.schedule.table import table
from stores.setting_names import report_unknown
from stores.settings_errors import explain
from stores.temporal_connection import TemporalUnreachableError, connect_temporal
from workflows.contract.names import DEFAULT_TASK_QUEUE

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells give it."""


class QueueSettings(BaseSettings):
    """Where scheduled tasks wait: EVERLOOP_TASK_QUEUE and EVERLOOP_SPLIT_QUEUES, as gateways have them."""

    model_config = SettingsConfigDict(
        env_prefix="EVERLOOP_", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    task_queue: str = Field(default=DEFAULT_TASK_QUEUE, min_length=1)
    split_queues: bool = False


def main(arguments: Sequence[str] | None = None, patience: timedelta = ANSWER_TIMEOUT) -> int:
    """Run one command and return the exit code; what is wrong is one line.

    `patience` is how long Temporal may take for all of it (default 10 s), connecting included.
    """
    asked = parser().parse_args(arguments)
    report_unknown("schedule")
    try:
        uvloop.run(_run(asked, patience))  # its signals wake it in whatever thread of the SDK they arrive
    except (AgentError, ScheduleError, TemporalUnreachableError) as error:
        return _fail(str(error))
    except ValidationError as error:
        return _fail(f"wrong setting: {explain(error)}")
    except KeyboardInterrupt:
        return _fail("interrupted; `list` shows what has been done", INTERRUPTED)
    return 0


async def _run(asked: argparse.Namespace, patience: timedelta) -> None:
    definition = _definition(asked) if asked.command == "add" else None
    try:
        async with asyncio.timeout(patience.total_seconds()):
            await _command(asked, definition)
    except TimeoutError as error:
        raise ScheduleError(
            f"Temporal does not answer within {patience.total_seconds():g} s; see TEMPORAL_ADDRESS and "
            "whether it runs there, then whether `list` shows what you asked for, before you try again"
        ) from error


async def _command(asked: argparse.Namespace, definition: ScheduleDefinition | None) -> None:
    # Not with the blob store: a blob may expire while its schedule lives.
    schedules = Schedules(await connect_temporal(), QueueSettings().task_queue)
    if definition:
        first = await schedules.add(definition)
        print(f"added {definition.id}: agent {definition.agent_id}, {definition.recurrence.description}")
        print(f"next run: {first}")
        return
    match asked.command:
        case "pause":
            await schedules.pause(asked.id)
            print(f"paused {asked.id}; it starts nothing until `resume {asked.id}`")
        case "resume":
            print(f"resumed {asked.id}\nnext run: {await schedules.resume(asked.id)}")
        case "trigger":
            print(_triggered(asked.id, await schedules.trigger(asked.id)))
        case "remove":
            await schedules.remove(asked.id)
            print(f"removed {asked.id}; tasks that it has started go on")
        case _:
            listed = await schedules.listed()
            print(table(listed) if listed else "there are no schedules; `add` makes one")


def _definition(asked: argparse.Namespace) -> ScheduleDefinition:
    agent = load_agents(AgentSettings().agents).find(asked.agent)
    return ScheduleDefinition(
        agent_id=agent.id,
        agent_name=agent.name,
        text=asked.text,
        recurrence=Recurrence(asked.cron or "", asked.every or "", asked.time_zone),
        overlap=asked.overlap,
        owner=asked.owner,
        context_id=asked.context or "",
        given_id=asked.id or "",
        note=asked.note,
        priority=agent.priority,
        splits_queues=QueueSettings().split_queues,
    )


def _triggered(schedule_id: str, task_id: str) -> str:
    if task_id:
        return f"triggered {schedule_id}; it started task {task_id}"
    return (
        f"triggered {schedule_id}; nothing new has started within {START_TIMEOUT:g} s: the overlap policy "
        "(see --overlap of `add`), or another trigger in the same second"
    )


def _fail(text: str, exit_code: int = 1) -> int:
    print(f"schedule: {text}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(exit_code)

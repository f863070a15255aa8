"""One run: a deployment, a load, a plan of faults, and a verdict."""

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import httpx

from everloop.local.servers import LOOPBACK
from tests.chaos import leaks
from tests.chaos.agents import AGENTS, SEED
from tests.chaos.caller import Caller
from tests.chaos.census import FOLDER, take_census
from tests.chaos.cluster import running_linked_cluster
from tests.chaos.faults import RENEWED, Faults, Site
from tests.chaos.fleet import Fleet, running_fleet
from tests.chaos.load import Load
from tests.chaos.model import Model, asked_for
from tests.chaos.orders import Order
from tests.chaos.plan import LINKS, make_plan
from tests.chaos.report import Report
from tests.chaos.verdict import Books, judge, strangers, unknown_outcomes
from tests.support.agents.chaos import Ledger
from tests.support.rigs.deployment import running_deployment
from tests.support.servers.processes import running_valkey
from tests.support.servers.relay import Link, running_relay
from tests.support.servers.scripted_openai import ScriptedOpenAI
from tests.support.servers.webhook import Notification, Webhook, running_webhook

Say = Callable[[str], None]

COMPLAINTS = (
    "was never retrieved",
    "was never awaited",
    "request failed",
    "non-determinism",
    "Nondeterminism",
)
"""Texts that no log of ours may hold, whatever is harmed."""


CALL_TIMEOUT = 30.0
"""Seconds after which a client counts a call as lost."""


TAKEN = 30.0
"""Seconds within which a message is accepted under any fault."""


GRACE = "5"
"""Seconds that running calls and requests get at SIGTERM."""


@dataclass(frozen=True)
class Settings:
    """The size of a run.

    `seconds`: duration of the faults. `rate`: tasks per second; `fewest`: tasks in all; `most`: tasks at
    once. `patience`: seconds after the last fault within which all tasks have to end.
    """

    seed: int
    seconds: float
    rate: float = 1.2
    fewest: int = 50
    most: int = 30
    workers: int = 3
    gateways: int = 2
    patience: float = 300
    cluster: bool = False

    @property
    def command(self) -> str:
        """The command that repeats the same faults."""
        fleet = f"--workers {self.workers} --gateways {self.gateways}{' --cluster' if self.cluster else ''}"
        return f"python -m tests.chaos --seconds {self.seconds:g} --seed {self.seed} {fleet}"


async def run_chaos(settings: Settings, directory: Path, say: Say) -> Report:
    """Run clients while everything is harmed, and return the report."""
    ledger = Ledger(directory / "ledger")
    ledger.open()
    async with AsyncExitStack() as stack:
        model = Model(settings.seed, directory / "ledger")
        scripted = await stack.enter_async_context(ScriptedOpenAI(model.answer))
        site = await stack.enter_async_context(_running_site(settings, directory, scripted.base_url, model))
        say(f"seed {settings.seed}: {settings.workers} workers and {settings.gateways} gateways are ready")
        load, faults = await _harm(settings, site, say)
        report = Report(
            settings.seed, settings.command, load.outcomes, faults.suffered, load.caller.setbacks.reasons
        )
        report.problems += faults.problems
        await _look_for_leaks(report, site, scripted, say)
        _judge(report, ledger, site.hook, scripted)
    return report


async def _harm(settings: Settings, site: Site, say: Say) -> tuple[Load, Faults]:
    """Begin tasks and carry out faults, then heal everything and wait for the ends of the tasks."""
    begin = time.monotonic()

    def clock() -> float:
        return time.monotonic() - begin

    chance = Random(f"{settings.seed} clients")  # noqa: S311 -- repeatable on purpose
    async with httpx.AsyncClient(timeout=CALL_TIMEOUT, limits=httpx.Limits(max_connections=None)) as http:
        caller = Caller(http, site.fleet.urls, chance)
        plan = make_plan(
            settings.seed, settings.seconds, settings.workers, settings.gateways, cluster=settings.cluster
        )
        loses = settings.cluster or any(harm.how == "set back" for harm in plan)
        hook = f"http://{LOOPBACK}:{site.hook.port}"
        load = Load(settings.seed, caller, hook, clock, may_be_shown_anew=loses)

        def tell(line: str) -> None:
            ended = len(load.outcomes) - load.open
            say(f"{clock():6.1f} s  {load.open:3} open  {ended:4} ended  {line}")

        faults = Faults(site, clock, tell, settings.seconds)
        # A run that ends early ends the supervisors first: they would restart the servers that are ended
        # then.
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(faults.watch())
            async with asyncio.TaskGroup() as harming:
                harming.create_task(
                    load.begin(settings.seconds, settings.rate, settings.fewest, settings.most)
                )
                harming.create_task(faults.carry_out(plan))
            tell("nothing is harmed any more")
            await load.end(settings.patience)
            watching.cancel()
        tell("the tasks are over")
        await _look_into_open_tasks(load, site)
    return load, faults


async def _look_into_open_tasks(load: Load, site: Site) -> None:
    """Record the pending calls of open tasks, and make workers write their stacks."""
    still_open = [outcome for outcome in load.outcomes if outcome.ended is None]
    for outcome in still_open:
        outcome.waits_for = await leaks.waits_for(site.everloop.temporal_address, outcome.story.task_id)
    for seat in site.fleet.seats.values() if still_open else ():
        await take_census(seat.process.pid, seat.log.parent)


async def _look_for_leaks(report: Report, site: Site, scripted: ScriptedOpenAI, say: Say) -> None:
    """Look for leaks while all processes are idle, and after they have ended."""
    fleet, url = site.fleet, site.everloop.redis_url
    say("looking for what is left")
    report.problems += await leaks.open_work(site.everloop.temporal_address)
    say("nothing is open")
    if scripted.playing:
        report.problems.append(f"{scripted.playing} model calls go on although no task does")
    held_too_long, held = await leaks.held_too_long(fleet)
    report.problems += held_too_long
    report.held = {name: (fleet.seats[name].before, now) for name, now in held.items()}
    for name, code in (await fleet.stop()).items():
        if code:
            report.problems.append(f"{name} ended with exit code {code} at SIGTERM")
    report.problems += await leaks.orphans(fleet)
    report.problems += await leaks.connections_left(url)
    keys, report.keys = await leaks.leaked_keys(url)
    blobs, report.blobs = await leaks.leaked_blobs(url, site.blobs)
    report.problems += [*keys, *blobs]
    for seat in fleet.seats.values():
        lines = seat.process.output.splitlines()
        report.problems += [
            f"{seat.name}: {line}" for line in lines if any(bad in line for bad in COMPLAINTS)
        ]


def _judge(report: Report, ledger: Ledger, hook: Webhook, scripted: ScriptedOpenAI) -> None:
    """Judge each task, and count repeated work."""
    told: defaultdict[str, list[Notification]] = defaultdict(list)
    for notification in hook.taken:
        told[notification.target].append(notification)
    books = Books.read(ledger)
    for place, outcome in enumerate(report.outcomes):
        # The webhook of a task is lost with its beginning, without an error for the client.
        is_mute = _is_set_back(report, outcome.begun, outcome.begun + TAKEN)
        heard = None if is_mute else told[f"/{outcome.order.number}"]
        was_set_back = _is_set_back(report, outcome.begun, outcome.ended or math.inf)
        if problems := judge(outcome, books, heard, was_set_back=was_set_back):
            report.wrong[place] = problems
    report.problems += strangers(report.outcomes, books)
    report.unknown = sum(map(unknown_outcomes, report.outcomes))
    report.asked_again = _asked_again(report, scripted)
    report.begun_again = len(ledger.attempts()) - sum(map(len, books.deposits.values()))
    again = len(hook.taken) - len({each.id for each in hook.taken})
    report.notifications = Counter(taken=len(hook.taken), repeated=again, refused=len(hook.refused))


def _is_set_back(report: Report, begun: float, ended: float) -> bool:
    """True if Redis lost writes of some of that time."""
    losses = [(each.begun, each.ended) for each in report.suffered if each.harm.how == "set back"]
    return any(since <= ended and begun <= (until or 0) + RENEWED for since, until in losses)


def _asked_again(report: Report, scripted: ScriptedOpenAI) -> int:
    """Return the number of repeated model calls, of tasks with a fixed number of calls."""
    asked = Counter(Order.parse(report.seed, asked_for(request)).number for request in scripted.requests)
    orders = [outcome.order for outcome in report.outcomes if outcome.order.kind != "cancels"]
    return sum(asked[order.number] - order.model_calls for order in orders)


@asynccontextmanager
async def _running_site(
    settings: Settings, directory: Path, model_url: str, model: Model
) -> AsyncGenerator[Site]:
    """Start everything: connections of workers and gateways to Temporal and Redis go through links."""
    disk, blobs, census = directory / "disk", directory / "blobs", directory / "processes"
    disk.mkdir()
    census.mkdir()
    blobs.symlink_to(disk)
    links: dict[str, Link] = {}
    running_redis = partial(running_linked_cluster, links=links) if settings.cluster else running_valkey
    async with AsyncExitStack() as stack:
        everloop = await stack.enter_async_context(
            running_deployment(
                directory,
                model_url,
                running_redis,
                agents=AGENTS,
                EVERLOOP_PUSH_ALLOW="127.0.0.0/8",
                EVERLOOP_SHUTDOWN_GRACE=GRACE,
            )
        )
        servers = {"temporal": int(everloop.temporal_address.rpartition(":")[2])}
        if not settings.cluster:
            servers["redis"] = urlsplit(everloop.redis_url).port or 0
        for name in LINKS:
            if (server := name.partition("-")[2]) in servers:
                links[name] = await stack.enter_async_context(running_relay(Link(servers[server])))
        fleet = Fleet()
        told = {SEED: str(settings.seed), FOLDER: str(census)}
        for _ in range(settings.workers):
            fleet.add_worker(census, {**everloop.environment, **_addresses(links, "workers"), **told})
        for _ in range(settings.gateways):
            fleet.add_gateway(census, {**everloop.environment, **_addresses(links, "gateways"), **told})
        hook = await stack.enter_async_context(running_webhook())
        await stack.enter_async_context(running_fleet(fleet))
        yield Site(everloop, fleet, links, model, hook, blobs)


def _addresses(links: Mapping[str, Link], who: str) -> dict[str, str]:
    """Return the settings that lead processes to their links; nodes of a cluster announce their own."""
    told = {"TEMPORAL_ADDRESS": links[f"{who}-temporal"].address}
    if to_redis := links.get(f"{who}-redis"):
        told["EVERLOOP_REDIS_URL"] = f"redis://{to_redis.address}/0"
    return told

"""Everloop on many machines whose network is slow, loses packets and falls apart: every task ends right."""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.machines.clerk import ANSWER, PLANS, REPORT_BYTES, UNKNOWN, report_of
from tests.machines.cluster import Cluster, running_cluster
from tests.machines.network import Fault, one_way, partition
from tests.machines.subscriber import SEND, SUBSCRIBE, Event, Json, Subscriber, call, new_message, read_events
from tests.support.agents.chaos import Ledger

SEED = int(os.environ.get("MACHINES_SEED") or 5)
"""The same for every change that is checked; set MACHINES_SEED to part other machines."""

PATIENCE = 60.0
"""Seconds after the last fault until a task counts as lost."""

_log = logging.getLogger(__name__)

Ailment = Callable[[Cluster, Random], list[Fault]]


@dataclass(frozen=True)
class Phase:
    """What the network suffers from for a while, all at once."""

    name: str
    seconds: float
    ailments: Sequence[Ailment]


def _slow(cluster: Cluster, _: Random) -> list[Fault]:
    return [Fault(delay=0.2)]


def _lossy(cluster: Cluster, chance: Random) -> list[Fault]:
    return [Fault(loss=chance.uniform(0.05, 0.1))]


def _between(ones: str, others: str) -> Ailment:
    """Part one machine of a kind from one of another kind: nothing passes, or nothing in one direction."""

    def ailment(cluster: Cluster, chance: Random) -> list[Fault]:
        ends = [chance.choice(cluster.machines(kind)) for kind in (ones, others)]
        chance.shuffle(ends)
        return chance.choice((partition, one_way))(*ends)

    return ailment


PHASES = (
    Phase("slow", 8, [_slow]),
    Phase(
        "parted",
        12,
        [_between("workers", "temporal"), _between("gateways", "valkey"), _between("workers", "s3")],
    ),
    Phase(
        "deaf",
        8,
        [
            _between("workers", "valkey"),
            _between("gateways", "temporal"),
            _between("workers", "model"),
            _between("gateways", "proxy"),
        ],
    ),
    Phase("away", 7, [_between("client", "proxy"), _between("gateways", "s3")]),
    Phase("lossy", 8, [_lossy]),
)
"""Each pair of machines that talk to each other is parted once."""

BATCH = ("report", "question", "errand", "report", "question", "errand")
"""The tasks that begin in each phase."""


@dataclass
class Outcome:
    """A task at its end: as GetTask shows it, and as its subscribers heard of it."""

    kind: str
    task_id: str
    subscribers: list[Subscriber] = field(default_factory=list[Subscriber])
    task: Json = field(default_factory=dict[str, object])
    again: list[Event] = field(default_factory=list[Event])
    report: bytes = b""


async def _batch(url: str, phase: Phase) -> list[Outcome]:
    """Begin tasks, evenly over the time of the phase, and follow all of them to their ends."""
    pause = phase.seconds / len(BATCH)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, headers={"A2A-Version": "1.0"}, limits=limits) as http:
        tasks = [_follow(http, kind, number, pause) for number, kind in enumerate(BATCH)]
        return await asyncio.gather(*tasks)


async def _follow(http: httpx.AsyncClient, kind: str, number: int, pause: float) -> Outcome:
    await asyncio.sleep(number * pause)
    message = new_message(f"{kind} {number}")
    if kind == "errand":
        result = await call(http, SEND, {"message": message})
        return Outcome(kind, result["task"]["id"])
    author = Subscriber(http, message)
    following = asyncio.create_task(author.follow())
    await author.known.wait()
    other = Subscriber(http, task_id=author.task_id)
    looking_on = asyncio.create_task(other.follow())
    if kind == "question":
        await author.asked.wait()
        await call(http, SEND, {"message": new_message(ANSWER, author.task_id)})
    await asyncio.gather(following, looking_on)
    connections = [author.connections, other.connections]
    _log.info("%s %d is over, heard over %s connections", kind, number, connections)
    return Outcome(kind, author.task_id, [author, other])


async def _look_again(url: str, outcomes: Sequence[Outcome]) -> None:
    """Get what GetTask, the stream and a download say now that the network is well."""
    async with httpx.AsyncClient(base_url=url, headers={"A2A-Version": "1.0"}) as http:
        for outcome in outcomes:
            outcome.task = await call(http, "GetTask", {"id": outcome.task_id})
            if outcome.subscribers and not outcome.subscribers[0].heard_all_at_once:
                params, first_id = {"id": outcome.task_id}, outcome.subscribers[0].events[0].id
                outcome.again = [event async for event in read_events(http, SUBSCRIBE, params, first_id)]
            if outcome.kind == "report":
                address = f"/artifacts/{outcome.task['contextId']}/report/parts/0"
                outcome.report = (await http.get(address)).raise_for_status().content


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [SEED])
async def test_several_machines(tmp_path: Path, seed: int) -> None:
    """Whatever the network does, each task is answered right, once, and nobody misses an event of it."""
    ledger, chance = Ledger(tmp_path / "ledger"), Random(seed)  # noqa: S311 -- repeatable on purpose
    ledger.open()
    async with running_cluster(tmp_path, seed) as cluster:
        batches: list[asyncio.Task[list[Outcome]]] = []
        for phase in PHASES:
            batches.append(asyncio.create_task(_in_client(cluster, phase)))
            faults = [fault for ailment in phase.ailments for fault in ailment(cluster, chance)]
            with cluster.network.suffers(faults) as harm:
                await asyncio.sleep(phase.seconds)
            assert harm.packets, f"no packet was harmed in phase {phase.name}"
            _log.info("%s: %d packets harmed by %s", phase.name, harm.packets, faults)
        _, lost = await asyncio.wait(batches, timeout=PATIENCE)
        assert not lost, f"the tasks of {len(lost)} phases did not end"
        outcomes = [outcome for batch in batches for outcome in batch.result()]
        await asyncio.to_thread(cluster.client.call, lambda: asyncio.run(_look_again(cluster.url, outcomes)))

    for outcome in outcomes:
        _check_task(outcome, ledger)
        for subscriber in outcome.subscribers:
            _check_subscriber(subscriber, outcome.again)
    _check_ledger(outcomes, ledger)


async def _in_client(cluster: Cluster, phase: Phase) -> list[Outcome]:
    return await asyncio.to_thread(cluster.client.call, lambda: asyncio.run(_batch(cluster.url, phase)))


def _check_task(outcome: Outcome, ledger: Ledger) -> None:
    """The answer names exactly what happened."""
    task = outcome.task
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    (response,) = [one for one in task["artifacts"] if one["artifactId"] == "response"]
    answer: dict[str, str] = json.loads("".join(part["text"] for part in response["parts"]))
    deposits, charges = dict(ledger.deposits()), dict(ledger.charges())
    calls = [call for calls in PLANS[outcome.kind] for call in calls]
    assert list(answer) == [call_id for call_id, _ in calls]
    for call_id, name in calls:
        owner = f"{outcome.task_id}/{call_id}"
        expected = {
            "deposit": {deposits.get(owner)},
            "charge": {charges.get(owner), UNKNOWN},
            "file_report": {f"{REPORT_BYTES} bytes"},
            "request_input": {ANSWER},
        }
        assert answer[call_id] in expected[name]
    if outcome.kind == "report":
        assert outcome.report == report_of(outcome.task_id)


def _check_subscriber(subscriber: Subscriber, again: Sequence[Event]) -> None:
    """Whoever looks afterwards finds exactly what the subscriber has heard after its first event."""
    heard = subscriber.events[1:]
    assert heard == again[len(again) - len(heard) :]
    ids = [event.id for event in subscriber.events]
    assert len(set(ids)) == len(ids)


def _check_ledger(outcomes: Sequence[Outcome], ledger: Ledger) -> None:
    """Every deposit happened once, every charge at most once, and nothing else."""
    planned = {
        name: {
            f"{outcome.task_id}/{call_id}"
            for outcome in outcomes
            for calls in PLANS[outcome.kind]
            for call_id, asked in calls
            if asked == name
        }
        for name in ("deposit", "charge")
    }
    charged = [owner for owner, _ in ledger.charges()]
    assert sorted(owner for owner, _ in ledger.deposits()) == sorted(planned["deposit"])
    assert len(charged) == len(set(charged))
    assert set(charged) <= planned["charge"]

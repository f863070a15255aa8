"""Everloop on many machines whose network is slow, loses packets and falls apart: every task ends right."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.chaos.caller import Caller
from tests.chaos.load import Load, Outcome
from tests.chaos.verdict import Books, judge, strangers
from tests.machines.cluster import Cluster, running_cluster
from tests.machines.network import Fault, one_way, partition
from tests.support.agents.chaos import Ledger

SEED = int(os.environ.get("MACHINES_SEED") or 5)
"""The same for every change that is checked; set MACHINES_SEED for other partitions."""

RATE, MOST = 0.8, 20
"""Tasks per second, and tasks at once."""

SILENCE = 6.0
"""Seconds without a byte after which a client connects again, although a stream may be silent for 15."""

END = 180.0
"""Seconds after the last fault until a task counts as lost."""

_log = logging.getLogger(__name__)

Ailment = Callable[[Cluster, Random], list[Fault]]


@dataclass(frozen=True)
class Phase:
    """Faults of the network for a while, all at once."""

    name: str
    seconds: float
    ailments: Sequence[Ailment]


def _slow(cluster: Cluster, _: Random) -> list[Fault]:
    return [Fault(delay=0.2)]


def _lossy(cluster: Cluster, chance: Random) -> list[Fault]:
    return [Fault(loss=chance.uniform(0.05, 0.1))]


def _between(ones: str, others: str) -> Ailment:
    """Partition two machines of different kinds: no packet passes, or none in one direction."""

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
"""Each pair of machines that communicate is partitioned once."""


async def _work(url: str, seed: int) -> list[Outcome]:
    """Begin tasks while the network has faults, and follow all of them to their ends."""
    begin = time.monotonic()
    async with httpx.AsyncClient(timeout=30, limits=httpx.Limits(max_connections=None)) as http:
        caller = Caller(http, [url], Random(seed), silence=SILENCE)  # noqa: S311 -- repeatable on purpose
        load = Load(seed, caller, "", lambda: time.monotonic() - begin)
        await load.begin(sum(phase.seconds for phase in PHASES), RATE, 0, MOST)
        await load.end(END)
    _log.info("clients tried again: %s", dict(caller.setbacks.reasons))
    return load.outcomes


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [SEED])
async def test_several_machines(tmp_path: Path, seed: int) -> None:
    """In any state of the network each task is answered right, once, and no client misses an event."""
    ledger, chance = Ledger(tmp_path / "ledger"), Random(seed)  # noqa: S311 -- repeatable on purpose
    ledger.open()
    async with running_cluster(tmp_path, seed) as cluster:
        work = asyncio.create_task(
            asyncio.to_thread(cluster.client.call, lambda: asyncio.run(_work(cluster.url, seed)))
        )
        for phase in PHASES:
            faults = [fault for ailment in phase.ailments for fault in ailment(cluster, chance)]
            with cluster.network.suffers(faults) as harm:
                await asyncio.sleep(phase.seconds)
            assert harm.packets, f"no packet was harmed in phase {phase.name}"
            _log.info("%s: %d packets harmed by %s", phase.name, harm.packets, faults)
        outcomes = await work

    books = Books.read(ledger)
    wrong = {outcome.order.name: judge(outcome, books, None) for outcome in outcomes}
    assert {name: problems for name, problems in wrong.items() if problems} == {}
    assert strangers(outcomes, books) == []
    assert len(outcomes) > MOST

"""The plan: targets, times and durations of faults, derived from the seed alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

How = Literal[
    "kill",  # SIGKILL; started again after the time
    "restart",  # SIGTERM, which lets running calls end; started again after the time
    "freeze",  # SIGSTOP, and SIGCONT after the time
    "fill",  # no room for writes
    "delay",  # each packet of a connection comes late
    "hold",  # nothing passes, and no connection breaks
    "cut",  # all connections break; new ones work
    "set back",  # what has come in the time is gone, but for artifacts and conversations
    "fail over",  # SIGKILL, until its replica has taken over; started again after the time
    "move",  # slots go to another primary, key by key
    "move at once",  # the same by CLUSTER MIGRATESLOTS
    "slow",  # a model that takes its time
    "overload",  # 429 with Retry-After
    "break",  # 500
    "tear",  # streams end in their middle
    "away",  # the port is closed, or the folder missing
    "silence",  # requests are taken and not answered
]

FIRST = 2.0
"""Seconds before the first fault, in which the first tasks begin."""

GAP = (1.2, 3.4)
"""Seconds from the beginning of one fault to the beginning of the next; they may overlap."""

LINKS = ("workers-temporal", "workers-redis", "gateways-temporal", "gateways-redis")
NODE_LINKS = tuple(f"clients-redis-{node}" for node in range(6))
"""Of a cluster, whose nodes announce the same addresses to all clients."""


@dataclass(frozen=True)
class Harm:
    """One fault. `at` and `length` are in seconds, `at` from the beginning of the load."""

    at: float
    how: How
    target: str
    length: float

    @property
    def kind(self) -> str:
        """The target and the fault, without the number of the worker or gateway."""
        return f"{self.how} {self.target.rstrip('-0123456789')}"

    def __str__(self) -> str:
        return f"{self.how} {self.target} ({self.length:.1f} s)"


@dataclass(frozen=True)
class _Card:
    how: How
    target: str
    shortest: float
    longest: float


_DECK = (
    _Card("kill", "worker", 0, 2),
    _Card("kill", "worker", 0, 1),
    _Card("kill", "gateway", 0, 2),
    _Card("kill", "valkey", 0, 4),
    _Card("kill", "temporal", 0, 4),
    _Card("restart", "worker", 0, 1),
    _Card("restart", "gateway", 0, 1),
    _Card("freeze", "worker", 1, 5),
    # Longer than the heartbeat timeout, than a lease lives, and than any client waits for an answer: when it
    # goes on, its work counts as lost and was done elsewhere.
    _Card("freeze", "worker", 11, 14),
    _Card("freeze", "worker", 16, 25),
    # Longer than the short calls without a heartbeat, and than a notification may take.
    _Card("freeze", "worker", 31, 45),
    _Card("freeze", "gateway", 1, 6),
    _Card("freeze", "gateway", 11, 25),
    _Card("freeze", "valkey", 1, 4),
    _Card("freeze", "valkey", 11, 14),
    _Card("freeze", "temporal", 1, 5),
    _Card("freeze", "temporal", 12, 25),
    _Card("kill", "temporal", 12, 25),
    _Card("fill", "valkey", 1, 4),
    _Card("set back", "valkey", 0.5, 3),
    _Card("away", "blobs", 2, 5),
    _Card("delay", "link", 3, 8),
    _Card("delay", "link", 3, 8),
    _Card("hold", "link", 1, 6),
    _Card("cut", "link", 0, 0),
    _Card("slow", "model", 3, 6),
    _Card("overload", "model", 2, 5),
    _Card("break", "model", 2, 5),
    _Card("tear", "model", 2, 5),
    _Card("away", "webhook", 2, 6),
    _Card("break", "webhook", 2, 6),
    _Card("silence", "webhook", 2, 6),
)


_CLUSTER_DECK = (
    *(card for card in _DECK if card.target != "valkey"),
    # Back before its absence is detected, or after its replica has taken over.
    _Card("kill", "valkey", 0, 1),
    _Card("fail over", "valkey", 0, 3),
    _Card("fail over", "valkey", 0, 3),
    _Card("freeze", "valkey", 1, 2),
    _Card("freeze", "valkey", 4, 9),
    _Card("freeze", "valkey", 11, 14),
    _Card("kill", "replica", 1, 4),
    _Card("fill", "valkey", 1, 4),
    _Card("move", "valkey", 0, 0),
    _Card("move at once", "valkey", 0, 0),
)
"""Of a cluster: one primary, or one replica, each in turn."""


def make_plan(seed: int, seconds: float, workers: int, gateways: int, *, cluster: bool) -> list[Harm]:
    """Return the faults of a run: each kind once before any comes again, in the seed's order."""
    chance = Random(f"{seed} plan")  # noqa: S311 -- repeatable on purpose
    names = {
        "worker": [f"worker-{number}" for number in range(workers)],
        "gateway": [f"gateway-{number}" for number in range(gateways)],
        "link": [*LINKS[::2], *NODE_LINKS] if cluster else list(LINKS),
    }
    harms: list[Harm] = []
    at = FIRST
    for card in _shuffled(_CLUSTER_DECK if cluster else _DECK, chance):
        length = chance.uniform(card.shortest, card.longest)
        target = chance.choice(names.get(card.target, [card.target]))
        if at >= seconds:
            break
        if at + length >= seconds:
            continue  # a shorter one may fit
        harms.append(Harm(at, card.how, target, length))
        at += chance.uniform(*GAP)
    return harms


def _shuffled(deck: Sequence[_Card], chance: Random) -> Iterator[_Card]:
    while True:
        yield from chance.sample(deck, k=len(deck))

"""What a measurement comes to: a row of the table, with the samples behind it."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

Samples = list[float]

BUDGET = 30.0
"""Seconds after which a measurement begins no further round, so that a slow machine ends in time as well."""


@dataclass(frozen=True)
class Row:
    """One number of ours, beside the floor below it; one of the two may be missing.

    `aim` is the greatest value that is good enough, or the least one where `more_is_better`. `samples` are
    what the numbers were taken from, by name.
    """

    measure: str
    unit: str
    everloop: float | None = None
    floor: float | None = None
    aim: float | None = None
    more_is_better: bool = False
    samples: dict[str, Samples] = field(default_factory=dict[str, Samples])

    @property
    def ratio(self) -> float | None:
        """How many times the floor it is."""
        return self.everloop / self.floor if self.everloop is not None and self.floor else None

    @property
    def is_met(self) -> bool | None:
        """Whether the aim is reached; None without an aim."""
        if self.aim is None or self.everloop is None:
            return None
        return self.everloop >= self.aim if self.more_is_better else self.everloop <= self.aim


def percentile(samples: Sequence[float], percent: int) -> float:
    """Return a percentile of two samples or more, interpolated."""
    return median(samples) if percent == 50 else quantiles(samples, n=100, method="inclusive")[percent - 1]


async def in_turn(rounds: int, *sides: Callable[[], Awaitable[Samples]]) -> list[Samples]:
    """Run the sides alternately, so that a noisy neighbour disturbs all of them; return each one's samples.

    There is at least one round, and none begins after `BUDGET` seconds.
    """
    samples: list[Samples] = [[] for _ in sides]
    begin = time.monotonic()
    for turn in range(rounds):
        if turn and time.monotonic() - begin > BUDGET:
            break
        for mine, side in zip(samples, sides, strict=True):
            mine.extend(await side())
    return samples

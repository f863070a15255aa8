"""Rows of the table: results of measurements, their samples and their aims."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

Samples = list[float]

BUDGET = 30.0
"""Seconds after which a measurement begins no further round, so that a slow machine ends in time as well."""


@dataclass(frozen=True)
class Row:
    """One of our results, beside the floor below it and the usual loop; some of the three may be missing.

    `samples` are the underlying samples, by name.
    """

    measure: str
    unit: str
    everloop: float | None = None
    floor: float | None = None
    naive: float | None = None
    samples: dict[str, Samples] = field(default_factory=dict[str, Samples])

    @property
    def ratio(self) -> float | None:
        """Ratio to the floor."""
        return self.everloop / self.floor if self.everloop is not None and self.floor else None


def compared(measure: str, unit: str, floor: Samples, naive: Samples, everloop: Samples) -> Row:
    """Return the row of three sides, by their medians."""
    samples = {"floor": floor, "naive": naive, "everloop": everloop}
    return Row(measure, unit, median(everloop), median(floor), median(naive), samples)


@dataclass(frozen=True)
class Aim:
    """The greatest acceptable value, or the least one with `is_least`.

    `times` counts floors, and `plus` is the allowance on top of them.
    """

    times: float = 0
    plus: float = 0
    is_least: bool = False

    def limit(self, row: Row) -> float:
        """Return the limit for this run."""
        return self.times * (row.floor or 0) + self.plus

    def is_met(self, row: Row) -> bool | None:
        """Return whether the aim is met; None without a comparison."""
        if row.everloop is None:
            return None
        return row.everloop >= self.limit(row) if self.is_least else row.everloop <= self.limit(row)


AIMS = {
    "an iteration of 2 KB": Aim(1.3),
    "an iteration of 2 KB, quick tool": Aim(1),
    "tasks of 5 iterations, 50 at once": Aim(0.85, is_least=True),
    "· worker, processor a task": Aim(1.3),
    "· Temporal, processor a task": Aim(1.1),
    "· Valkey, processor a task": Aim(plus=2.5),
    "history, 100 iterations of 2 KB": Aim(1.2),
    "history of an iteration of 20 KB, near 200 to near 10": Aim(plus=1.2),
    "last 10 of 100 iterations to first 10": Aim(plus=1.1),
    "Redis commands of a plain answer": Aim(plus=50),
    "Redis byte-days of 4 tools, answer": Aim(plus=80_000),
    "worker, 1,000 open tasks": Aim(plus=70),
    "answer after 50 iterations, share of the replay": Aim(1.2),
    "worker, idle": Aim(plus=130),
    "gateway, idle": Aim(plus=90),
    "worker, start": Aim(plus=2.5),
    "gateway, start": Aim(plus=1.5),
    "token to client, 1 stream, p50": Aim(1, plus=2),
    "token to client, 20 streams, p50": Aim(1, plus=2),
    "token to client, 20 streams, p99": Aim(plus=15),
    "SendStreamingMessage to first event, p50": Aim(plus=9),
    "artifact of 200 MiB, written by a tool": Aim(0.5, is_least=True),
    "artifact of 200 MiB, downloaded": Aim(0.5, is_least=True),
    "artifact of 200 MiB, memory of the worker": Aim(plus=64),
    "artifact of 200 MiB, memory of the gateway": Aim(plus=64),
    "page of ListTasks, 1,000 / 100,000 tasks": Aim(1.5),
}
"""Aims by measure."""


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

"""How often a tool that failed is tried again."""

from dataclasses import dataclass
from datetime import timedelta

from everloop.agents.durations import LONGEST, TOO_LONG
from everloop.agents.errors import ToolDefinitionError


@dataclass(frozen=True)
class Retries:
    """A tool that raises, or takes too long, is tried again, up to `attempts` times in all (default 3).

    The first retry waits `delay` (default 1 s), each later one `factor` times longer (default 2), none longer
    than `longest` (default 1 min); every wait is up to a fifth shorter or longer than that.

    Raises:
        ToolDefinitionError: no attempt at all, or waits that shrink or end before they begin.
    """

    attempts: int = 3
    delay: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ToolDefinitionError(f"Retries: attempts start at 1 (no retry), not at {self.attempts}")
        if not self.factor >= 1:
            raise ToolDefinitionError(f"Retries: factor is {self.factor}; give 1 or more")
        if not timedelta(0) <= self.delay <= self.longest:
            raise ToolDefinitionError(
                f"Retries: delay is {self.delay}; give one from 0 to longest ({self.longest})"
            )
        if self.longest > LONGEST:
            raise ToolDefinitionError(f"Retries: longest is {self.longest}; {TOO_LONG}")

    def delay_after(self, failures: int) -> timedelta:
        """Return how long to wait after so many failures (1 or more), before chance is added."""
        try:
            return min(self.longest, self.delay * self.factor ** (failures - 1))
        except OverflowError:
            return self.longest

"""The report of a run."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median

from tests.chaos.census import Census
from tests.chaos.faults import Suffered
from tests.chaos.load import Outcome

AROUND = 5.0
"""Seconds before a task's beginning, and after its end, whose faults are shown with it."""

JOURNAL = 60
"""The number of lines shown of a task's journal: the last ones."""


@dataclass
class Report:
    """All results of a run.

    `command` repeats the same faults. `wrong` are the problems of tasks, by the place of the outcome.
    """

    seed: int
    command: str
    outcomes: Sequence[Outcome]
    suffered: Sequence[Suffered]
    setbacks: Counter[str]
    asked_again: int = 0
    begun_again: int = 0
    unknown: int = 0
    notifications: Counter[str] = field(default_factory=Counter[str])
    keys: Counter[str] = field(default_factory=Counter[str])
    blobs: int = 0
    held: dict[str, tuple[Census | None, Census]] = field(
        default_factory=dict[str, tuple[Census | None, Census]]
    )
    wrong: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_right(self) -> bool:
        return not self.wrong and not self.problems

    def lines(self) -> Iterator[str]:
        """Yield the report, the problems last."""
        yield f"seed {self.seed}; the same harm again: {self.command}"
        yield from self._tasks()
        yield from self._faults()
        yield from self._effects()
        yield from self._left()
        for place, problems in self.wrong.items():
            yield from self._wrong_task(self.outcomes[place], problems)
        yield from (f"WRONG  {problem}" for problem in self.problems)
        count = len(self.wrong) + len(self.problems)
        yield f"{count} PROBLEMS" if count else "everything is right"

    def _tasks(self) -> Iterator[str]:
        states: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for outcome in self.outcomes:
            state = outcome.story.state.removeprefix("TASK_STATE_").lower()
            states[outcome.order.kind][state or ("lost" if outcome.at_once is None else "at once")] += 1
        yield f"tasks: {len(self.outcomes)}"
        for kind, ends in sorted(states.items()):
            yield f"  {kind:8} " + ", ".join(f"{count} {state}" for state, count in ends.items())
        times = sorted(each.ended - each.begun for each in self.outcomes if each.ended is not None)
        ends_at = sorted(each.ended for each in self.outcomes if each.ended is not None)
        pauses = [after - before for before, after in pairwise(ends_at)]
        if times and pauses:
            yield f"  from message to end: p50 {median(times):.1f} s, longest {times[-1]:.1f} s"
            yield f"  longest time in which no task ended: {max(pauses):.1f} s"

    def _faults(self) -> Iterator[str]:
        kinds: defaultdict[str, list[float | None]] = defaultdict(list)
        for each in self.suffered:
            kinds[each.harm.kind].append(each.recovery)
        yield f"faults: {len(self.suffered)}; seconds from their end until what was harmed served again:"
        for kind, recoveries in sorted(kinds.items()):
            known = [recovery for recovery in recoveries if recovery is not None]
            took = f"p50 {median(known):.1f}, longest {max(known):.1f}" if known else ""
            yield f"  {len(recoveries):3} {kind:28} {took}".rstrip()

    def _effects(self) -> Iterator[str]:
        yield (
            f"repeated: {self.asked_again} model calls, {self.begun_again} idempotent tool calls; "
            f"{self.unknown} outcomes unknown to their model"
        )
        yield "webhook: " + ", ".join(f"{count} {what}" for what, count in self.notifications.items())
        yield "clients tried again: " + (
            ", ".join(f"{count} times {why}" for why, count in self.setbacks.most_common() if count)
            or "never"
        )

    def _left(self) -> Iterator[str]:
        yield "keys of Redis: " + ", ".join(f"{count} {kind}" for kind, count in sorted(self.keys.items()))
        yield f"blobs of artifacts: {self.blobs}"
        for name, (before, now) in self.held.items():
            then = before or now
            yield (
                f"{name}: {then.descriptors} → {now.descriptors} descriptors, "
                f"{then.megabytes} → {now.megabytes} MiB, "
                f"{then.tasks.total()} → {now.tasks.total()} asyncio tasks"
            )

    def _wrong_task(self, outcome: Outcome, problems: Sequence[str]) -> Iterator[str]:
        """Yield the problems of a task, its client's journal, and the faults around it."""
        end = inf if outcome.ended is None else outcome.ended
        yield f"WRONG  {outcome.order.name}, task {outcome.story.task_id or '(none)'}"
        yield from (f"    {problem}" for problem in problems)
        lines = [(at, f"  {line}") for at, line in outcome.story.journal[-JOURNAL:]]
        for each in self.suffered:
            over = each.begun if each.ended is None else each.ended
            if over > outcome.begun - AROUND and each.begun < end + AROUND:
                lines.append((each.begun, f"! {each.harm}"))
        yield from (f"    {at:7.2f}  {line}" for at, line in sorted(lines))

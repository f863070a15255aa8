"""What docs/sizing.md calculates of Redis follows from its own figures, and from the defaults."""

import re
from dataclasses import dataclass
from itertools import starmap

import pytest

from everloop.stores.retention import RetentionSettings
from tests.support.deploy.prometheus import ROOT

TEXT = (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8")
SECONDS_OF_A_DAY = 86_400
NEW_TASKS = 10_000

_KIND = re.compile(
    r"^\| [\w, ]+ \| ([\d.]+) KB \| `EVERLOOP_(\w+)` \((\d+)\).*\| (\d+) KB \| (\d+)", re.MULTILINE
)
_SUM = re.compile(r"^\| together \| (\d+) KB \| \| (\d+) KB \| (\d+) KB", re.MULTILINE)


@dataclass(frozen=True)
class Kind:
    """A row: kilobytes, the setting that says for how many days, and the products."""

    size: str
    setting: str
    days: str
    by_default: str
    at_least: str


KINDS = list(starmap(Kind, _KIND.findall(TEXT)))


@pytest.fixture
def retention(monkeypatch: pytest.MonkeyPatch) -> RetentionSettings:
    for kind in KINDS:
        monkeypatch.delenv(f"EVERLOOP_{kind.setting}", raising=False)
    return RetentionSettings()


def test_every_time_to_live_is_in_the_table(retention: RetentionSettings) -> None:
    """With its default."""
    times = retention.model_dump(exclude={"max_task_bytes"})
    assert {kind.setting.lower(): int(kind.days) for kind in KINDS} == times


def test_bytes_times_days_are_right() -> None:
    """Of each kind, by default and for a day (conversations can be left out), and their sums."""
    (sums,) = _SUM.findall(TEXT)
    sizes = [float(kind.size) for kind in KINDS]
    by_default = [size * int(kind.days) for size, kind in zip(sizes, KINDS, strict=True)]
    *kept, left_out = KINDS

    assert [f"{product:.0f}" for product in by_default] == [kind.by_default for kind in KINDS]
    assert [f"{float(kind.size):.0f}" for kind in kept] == [kind.at_least for kind in kept]
    assert left_out.at_least == "0"
    assert sums == tuple(f"{sum(values):.0f}" for values in (sizes, by_default, sizes[:-1]))


def test_the_rest_of_the_page_uses_these_sums() -> None:
    """Of Redis: gigabytes of a task a second, terabytes of 10,000, and cells of 256 GB."""
    sizes = [float(kind.size) for kind in KINDS]
    most = sum(size * int(kind.days) for size, kind in zip(sizes, KINDS, strict=True))
    gigabytes = most * SECONDS_OF_A_DAY / 1e6, sum(sizes[:-1]) * SECONDS_OF_A_DAY / 1e6
    terabytes = [each * NEW_TASKS / 1000 for each in gigabytes]
    cells = round(terabytes[0] * 1000 / 256, -1)

    assert f"{gigabytes[0]:.0f} GB in Redis by default, and to {gigabytes[1]:.1f} GB at the" in TEXT
    assert f"{terabytes[1]:.0f} TB at the shortest times, {terabytes[0]:.0f} TB by default" in TEXT
    assert f"| **cells** | 330 | {cells:,.0f} |" in TEXT

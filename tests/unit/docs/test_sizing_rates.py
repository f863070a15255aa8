"""What docs/sizing.md calculates of rates and of machines follows from what it says that one task costs."""

import math
import re
from collections.abc import Sequence

import pytest

from tests.support.deploy.prometheus import ROOT

TEXT = (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8")
FOUR_TOOLS, QUESTION, ANSWERED = 1, 4, 5
"""Columns of what was measured."""


def numbers(text: str) -> tuple[str, ...]:
    """Return what stands for each {} of a text that is on the page once."""
    pattern = re.escape(text).replace(r"\{\}", r"(\d[\d,]*(?:\.\d+)?)")
    (match,) = re.finditer(pattern, TEXT)
    return match.groups()


def values(text: str) -> list[float]:
    return [float(shown.replace(",", "")) for shown in numbers(text)]


def measured(row: str, column: int = FOUR_TOOLS) -> float:
    """Return what one task cost, by the first table that has this row."""
    cells = re.findall(rf"^\| {re.escape(row)} \|(.+)\|$", TEXT, re.MULTILINE)[0]
    return float(cells.split("|")[column].replace(",", ""))


def is_rounded(shown: str, value: float) -> bool:
    """Whether a number is this value to the digits that it has; zeros after the second may stand for any."""
    whole, _, decimals = shown.replace(",", "").partition(".")
    unknown = min(len(whole) - len(whole.rstrip("0")), max(len(whole) - 2, 0))
    return round(value, len(decimals) or -unknown) == float(shown.replace(",", ""))


DAY = 86_400
NEW = 10_000
STEPS, ACTIVITIES, MODEL_CALLS, TOOL_CALLS = 11, 10, 5, 4
CALL, LIFE = 2, 100
"""Seconds."""
FILES, FILE_DAYS, FILE_RECORD_KB = 0.1, 30, 1.5
BUSY, SPARE = 0.7, 5 / 3

TRANSITIONS = measured("state transitions")
HISTORY = measured("history: bytes")
COMMANDS, SCRIPTS = measured("Redis: commands, with those of scripts"), measured("· scripts")
ACTIONS = measured("**actions**, heartbeats included") + MODEL_CALLS * CALL
REDIS, WORKER, GATEWAY = (ms / 1000 for ms in values("shared the two cores, it was {}, {} and {} ms"))
WAITING = values("takes {} KiB of the worker")[0] * 1024
SUBSCRIBER = values("own {} KiB of its")[0] * 1024
GB_BY_DEFAULT = values("| together | 43 KB | | {} KB")[0] * DAY / 1e6
GB_AT_LEAST = values("by default, and to {} GB at the")[0]
"""In Redis, of a task a second."""

ANSWERS = 1e6 / (7 * DAY)
ENDED_KB = measured("Redis: bytes that stay", ANSWERED) / 1000
NEW_FILES = ANSWERS * FILES
OPEN_TASKS = [
    ("| {} KB | {} GB, with database", [measured("history: bytes", QUESTION) / 1000] * 2),
    ("| Redis | {} KB | {} GB, and up", [measured("Redis: bytes that stay", QUESTION) / 1000] * 2),
    ("up to {} GB of those that ended", [ANSWERS * ENDED_KB * 30 * DAY / 1e6]),
    ("ended ({} a second, {} KB each", [ANSWERS, ENDED_KB]),
    ("| {} MB | {} GB, {} obj", [FILES, NEW_FILES * FILE_DAYS * DAY / 1e3, NEW_FILES * FILE_DAYS * DAY]),
    ("objects: {} tasks a second", [ANSWERS]),
    ("a HEAD every {} s", [1 / NEW_FILES]),
    ("steps | {} KiB | {} GB: do not", [WAITING / 1024, WAITING / 1000]),
    ("within a week, are {} answers a second", [ANSWERS]),
    ("at {} a second, as on one machine here, that\ntakes {} hours", [24, 1e6 / 24 / 3600]),
]

OPEN = NEW * LIFE
GATEWAYS = NEW * GATEWAY / BUSY
CALLS_AT_ONCE = NEW * MODEL_CALLS * CALL
BLOBS = NEW * FILES
NEW_TASKS = [
    ("| state transitions | {} | {} | {} t", [TRANSITIONS, TRANSITIONS * NEW, TRANSITIONS * NEW / 3000]),
    ("| {} KB | {} MB | {} TB a day of", [HISTORY / 1e3, HISTORY * NEW / 1e6, HISTORY * NEW * DAY / 1e12]),
    ("| {} + about {} | {} |", [ACTIONS - MODEL_CALLS * CALL, MODEL_CALLS * CALL, ACTIONS * NEW]),
    ("| activities | {} | {} |", [ACTIVITIES, ACTIVITIES * NEW]),
    ("| writes of visibility | {} | {} |", [4, 4 * NEW]),
    ("| commands of Redis | {} in {} scripts | {} M |", [COMMANDS, SCRIPTS, COMMANDS * NEW / 1e6]),
    ("| processor of Redis | {} ms | {} cores |", [REDIS * 1000, REDIS * NEW]),
    ("of workers | {} ms | {} cores | {} proc", [WORKER * 1000, WORKER * NEW, WORKER * NEW / BUSY]),
    ("of gateways | {} ms | {} cores | {} proc", [GATEWAY * 1000, GATEWAY * NEW, GATEWAYS]),
    ("| {} KiB | {} M at once | {} GB, ", [SUBSCRIBER / 1024, OPEN / 1e6, OPEN * SUBSCRIBER / 1e9]),
    ("GB, {} in each gateway", [OPEN / GATEWAYS]),
    ("| {} | {} PUT, {} HEAD | ", [FILES, BLOBS, BLOBS]),
    ("{} TB a day, {} PB in the {} days", [BLOBS * DAY / 1e6, BLOBS * DAY * FILE_DAYS / 1e9, FILE_DAYS]),
    ("with {} calls of {} s are {} open calls", [MODEL_CALLS, CALL, CALLS_AT_ONCE]),
    ("At {} a process", [200]),
    ("that is {} processes, at {} it is {}", [CALLS_AT_ONCE / 200, 1000, CALLS_AT_ONCE / 1000]),
]

OF_A_REDIS = BUSY / REDIS
BEYOND_ONE_REDIS = [
    ("256 GB hold {} such tasks a second", [256 / GB_BY_DEFAULT]),
    ("a second, so {} are {}\ncells", [NEW, NEW * GB_BY_DEFAULT / 256]),
    ("memory would make {}, and its one", [NEW * GB_AT_LEAST / 256]),
    ("**{} such tasks a second** (130 plain answers)", [OF_A_REDIS]),
    ("in {} GB, so {} are {} cells", [OF_A_REDIS * GB_AT_LEAST, NEW, NEW / OF_A_REDIS]),
]

CLUSTERS = TRANSITIONS * NEW / 3000
CELLS = 330, 2600
"""Three for each PostgreSQL, or what Redis' memory asks for."""
RATES = NEW / CELLS[0], NEW / CELLS[1]
WORKERS = math.ceil(RATES[0] * WORKER / BUSY), 2
DATA = RATES[0] * GB_AT_LEAST, RATES[1] * GB_BY_DEFAULT


def of_cells(of_a_task: float) -> list[float]:
    """Return what each cell has of it: at the shortest times, and by default."""
    return [rate * of_a_task for rate in RATES]


def of_workers(of_a_task: float) -> list[float]:
    return [each / workers for each, workers in zip(of_cells(of_a_task), WORKERS, strict=True)]


RECORDS = of_cells(FILES * FILE_RECORD_KB * FILE_DAYS * DAY / 1e6)
STORED_MB = FILES * FILE_DAYS * DAY
TOPOLOGY = [
    ("| **cells** | {} | {} | {} by Redis' processor", [*CELLS, NEW / OF_A_REDIS]),
    ("| new tasks a second in each | {} | {} | |", RATES),
    ("| **Redis** of a cell: data | {} GB | {} GB |", DATA),
    ("| · records of files | {} GB | {} GB | {} KB each", [*RECORDS, FILE_RECORD_KB]),
    (
        "| · memory of its machine | {} GB | {} GB |",
        [SPARE * sum(of) for of in zip(DATA, RECORDS, strict=True)],
    ),
    ("| · its processor | {} % | {} % | {} ms", [*of_cells(REDIS * 100), REDIS * 1000]),
    ("on a PostgreSQL | {} | {} | {} transitions", [CLUSTERS, CLUSTERS, TRANSITIONS * NEW]),
    ("each cell | {} | {} or", [CELLS[0] / CLUSTERS, math.floor(CELLS[1] / CLUSTERS)]),
    ("or {} |", [math.ceil(CELLS[1] / CLUSTERS)]),
    ("| 512 | 512 | {} transitions a second in each", [TRANSITIONS * NEW / CLUSTERS / 512]),
    ("| {} GB | {} GB | {} TB / {}, four times", [*[4 * 22_000 / CLUSTERS] * 2, 22, CLUSTERS]),
    ("| {} writes/s, {} M tasks | the same |", [4 * NEW / CLUSTERS, NEW * DAY / CLUSTERS / 1e6]),
    ("| actions a second in a namespace | {} | {} | {} a task", [*of_cells(ACTIONS), ACTIONS]),
    ("at most {} and {} a second to hand over", of_cells(STEPS + ACTIVITIES)),
    ("hand over: {} steps and {} calls a task", [STEPS, ACTIVITIES]),
    ("| **buckets**, or prefixes of them | {} | {} |", CELLS),
    ("| · PUT and HEAD a second in each | {} | {} | {} in all", [*of_cells(FILES), BLOBS]),
    ("| {} TB | {} TB | {} MB a task", [*of_cells(STORED_MB / 1e6), FILES]),
    ("For 1 day: {} TB and {} GB", [RATES[0] * FILES * DAY / 1e6, RATES[1] * FILES * DAY / 1e3]),
    ("all kinds in each | {} | {} | {} ms", [*WORKERS, WORKER * 1000]),
    ("173 ms a task: {} and {} cores", of_cells(WORKER)),
    ("| · tasks in memory of each | {} | {} |", of_workers(LIFE)),
    ("| {} and {} open in a cell", of_cells(LIFE)),
    ("| · model calls at once of each | {} | {} |", of_workers(MODEL_CALLS * CALL)),
    ("| **gateways** of a cell | 2 | 2 | {} ms a task: {} and {} c", [GATEWAY * 1000, *of_cells(GATEWAY)]),
    ("| · subscribers at once in each | {} | {} |", of_cells(LIFE / 2)),
    ("| all workers, all gateways | {}, {} |", [CELLS[0] * WORKERS[0], CELLS[0] * 2]),
    ("| 2,640, 660 | {}, {} |", [CELLS[1] * WORKERS[1], CELLS[1] * 2]),
    ("{} transitions instead of {} ", [TRANSITIONS + MODEL_CALLS + TOOL_CALLS, TRANSITIONS]),
    ("make {} clusters", [(TRANSITIONS + MODEL_CALLS + TOOL_CALLS) * NEW / 3000]),
]


SMALLER = [
    (
        "| 0.1 | 1 | 2, one to spare | {} / {} GB | {} |",
        [GB_BY_DEFAULT / 10, GB_AT_LEAST / 10, TRANSITIONS / 10],
    ),
    ("| 1 | 1 | 2 | {} / {} GB | {} |", [GB_BY_DEFAULT, GB_AT_LEAST, TRANSITIONS]),
    ("| 10 | {} | 2 | {} GB, ", [math.ceil(10 * WORKER / BUSY), 10 * GB_BY_DEFAULT]),
    (
        " GB, {} cells / {} GB | {} |",
        [math.ceil(10 * GB_BY_DEFAULT / 256), 10 * GB_AT_LEAST, 10 * TRANSITIONS],
    ),
    ("| 100 | {} | {} |", [100 * WORKER / BUSY, math.ceil(100 * GATEWAY / BUSY)]),
    ("| {} cells of 256 GB / {} of", [100 * GB_BY_DEFAULT / 256, 100 / OF_A_REDIS]),
    ("of {} GB, by their processors | {} |", [OF_A_REDIS * GB_AT_LEAST, 100 * TRANSITIONS]),
]


ROWS = [*OPEN_TASKS, *NEW_TASKS, *BEYOND_ONE_REDIS, *TOPOLOGY, *SMALLER]


@pytest.mark.parametrize(("text", "calculated"), ROWS, ids=[text for text, _ in ROWS])
def test_what_is_calculated_is_right(text: str, calculated: Sequence[float]) -> None:
    """Each number, from those that were measured and those that the page assumes."""
    shown = numbers(text)
    wrong = [(one, value) for one, value in zip(shown, calculated, strict=True) if not is_rounded(one, value)]

    assert wrong == []

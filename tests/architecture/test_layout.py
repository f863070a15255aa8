"""Rules of the layout that no linter checks."""

import inspect
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest
from temporalio import activity
from temporalio.client import Client

from everloop.worker import WorkerSettings, build_workers
from everloop.workflows.contract import ports
from everloop.workflows.contract.calls import NarrateInput
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.support.fakes.ports import FakePorts, ScriptedModel

SANDBOXED = sorted(Path("everloop/workflows").rglob("__init__.py"))

PRODUCT = [
    (Path(folder), names) for folder, *names in os.walk("everloop") if not folder.endswith("__pycache__")
]
"""Each folder of the product, the names of the folders in it, and those of its files."""

MOST_ENTRIES = 17
"""Of a folder: what has more holds a concept that wants a room of its own (ADR 25)."""

AIM = 15
"""Entries of a folder, unless the table of this page says why it is not parted."""

ROOMS = Path("docs/adr/0025-one-package.md")

MOST_LINES = 450
"""Of a module: what is longer is not seen at once."""


NEGATED = re.compile(r"redis\.call\([^)]*, *-[a-zA-Z_]\w*[,)]")
"""Redis before 7.2 gets -0 of a script that negates 0, and takes it for no number."""


class MuteNarrator(ports.NarratorPort):
    """Has nothing to say."""

    @activity.defn
    async def narrate(self, call: NarrateInput) -> None:
        return None


async def test_the_worker_implements_every_port_method(temporal_address: str) -> None:
    """A method added to a port without wiring fails here, not in production."""
    client = await Client.connect(temporal_address, data_converter=WIRE_DATA_CONVERTER)
    abstract = [c for _, c in inspect.getmembers(ports, inspect.isclass) if inspect.isabstract(c)]
    promised = [name for c in abstract for name, _ in inspect.getmembers(c, inspect.isfunction)]

    ports_ = FakePorts(ScriptedModel())
    ports_.narrator = MuteNarrator()
    workers = build_workers(client, ports_.wired(), WorkerSettings())
    configs = [worker.config(active_config=True) for worker in workers]
    registered = [
        each for one in configs for each in cast("Sequence[Callable[..., object]]", one.get("activities", ()))
    ]

    assert {activity.__name__ for activity in registered} == set(promised)


@pytest.mark.parametrize("path", SANDBOXED, ids=str)
def test_sandboxed_packages_stay_empty(path: Path) -> None:
    """The sandbox, in which histories are replayed, executes a package's `__init__` again for each."""
    assert path.read_text(encoding="utf-8") == ""


NUMBERED = {"docs/adr", "tests/replay/histories"}
"""Folders that are lists: what is in them has numbers or names of one kind, and is never looked through."""


UNCOUNTED = {"__init__.py", "__pycache__", ".ruff_cache"}

BUILT = {"__pycache__", "dist", "node_modules"}


def test_a_folder_can_be_taken_in_at_a_look() -> None:
    """A fuller one names its parts, and no longer what it is about. ADR 25 says why some are near to that."""
    roots = ("bench", "docs", "everloop", "examples", "tests")
    folders = (each for root in roots for each in os.walk(root))
    entries = {
        folder: [name for name in (*inner, *files) if name not in UNCOUNTED]
        for folder, inner, files in folders
        if not BUILT & {*Path(folder).parts} and folder not in NUMBERED
    }

    assert {folder: len(names) for folder, names in entries.items() if len(names) > MOST_ENTRIES} == {}
    full = {folder for folder, names in entries.items() if len(names) > AIM}
    assert full == {*re.findall(r"^\| `(.+?)` \|", ROOMS.read_text(encoding="utf-8"), re.MULTILINE)}


def test_a_module_can_be_read_at_once() -> None:
    """A longer one has parts that want names."""
    product = [folder / name for folder, (_, files) in PRODUCT for name in files if name.endswith(".py")]
    modules = [*product, *Path("examples").rglob("*.py"), *Path("tests").rglob("*.py")]
    lines = {str(module): len(module.read_text(encoding="utf-8").splitlines()) for module in modules}

    assert {module: count for module, count in lines.items() if count > MOST_LINES} == {}


def test_scripts_give_redis_no_negated_variable() -> None:
    """The oldest Redis that is served is not the one that tests run on."""
    scripts = [path for path in sorted(Path("everloop").rglob("*")) if path.suffix in {".lua", ".py"}]
    negated = {str(path): found for path in scripts if (found := NEGATED.findall(path.read_text()))}
    assert scripts
    assert not negated

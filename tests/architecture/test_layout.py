"""Rules of the layout that no linter checks."""

import inspect
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


def test_scripts_give_redis_no_negated_variable() -> None:
    """The oldest Redis that is served is not the one that tests run on."""
    scripts = [path for path in sorted(Path("everloop").rglob("*")) if path.suffix in {".lua", ".py"}]
    negated = {str(path): found for path in scripts if (found := NEGATED.findall(path.read_text()))}
    assert scripts
    assert not negated

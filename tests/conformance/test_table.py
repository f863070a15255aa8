"""The table in docs/protocol/conformance.md names every conformance test, and no other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path("tests/conformance")
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def _tests_of(path: Path) -> set[str]:
    """Return the names of the tests in a file; none if there is no such file."""
    file = ROOT / path
    body = ast.parse(file.read_text()).body if file.exists() else []
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def _named() -> set[tuple[Path, str]]:
    """Return the tests in the table; a file without a folder is in one of our rooms."""
    ours = {file.name: file for file in HERE.rglob("test_*.py")}
    text = (ROOT / "docs" / "protocol/conformance.md").read_text()
    return {(Path(file) if "/" in file else ours[file], name) for file, name in NAMED.findall(text)}


def test_the_table_names_no_test_that_does_not_exist() -> None:
    """Readers of the table find each test."""
    assert not {(str(file), name) for file, name in _named() if name not in _tests_of(file)}


def test_every_conformance_test_stands_in_the_table() -> None:
    """Each test names the requirement that it proves."""
    files = [file for file in HERE.rglob("test_*.py") if file.name != Path(__file__).name]
    existing = {(file, name) for file in files for name in _tests_of(file)}
    assert existing
    assert not {(str(file), name) for file, name in existing - _named()}

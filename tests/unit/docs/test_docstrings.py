"""Public names have docstrings, whose examples run."""

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import cast

import pytest

import everloop
import everloop.agents
import everloop.client
import everloop.testing

PACKAGES = (everloop.agents, everloop.client, everloop.testing)
MODULES = sorted(
    each.name
    for package in PACKAGES
    for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)
PUBLIC = [
    (package.__name__, name)
    for package in (everloop, everloop.client, everloop.testing)
    for name in cast("list[str]", package.__all__)
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str) -> None:
    """Each comes to what stands below it."""
    problems: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module)):
        runner.run(test, out=problems.append)

    assert not problems, "".join(problems)


def test_there_are_examples() -> None:
    """The finder finds them in what decorators made, too."""
    found = [
        test.name
        for module in MODULES
        for test in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
        if test.examples
    ]

    assert {"everloop.agents.agent.Agent", "everloop.agents.tool.tool"} <= set(found)


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_each_public_name_says_what_it_is(package: str, name: str) -> None:
    """A class or function has a docstring of its own, and so has each method and property of it."""
    value: object = getattr(importlib.import_module(package), name)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return  # a type, whose text stands below it
    wordless = [each for each, part in _parts(name, value) if not inspect.getdoc(part)]

    assert not wordless
    assert not (inspect.getdoc(value) or "").startswith(f"{name}("), "what dataclasses say of themselves"


def _parts(name: str, value: type[object] | Callable[..., object]) -> Iterator[tuple[str, object]]:
    yield name, value
    for part, member in vars(value).items() if inspect.isclass(value) else ():
        is_method = inspect.isfunction(member) and member.__qualname__.startswith(value.__name__)
        if not part.startswith("_") and (is_method or isinstance(member, property)):
            yield f"{name}.{part}", getattr(value, part)

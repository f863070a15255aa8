"""Agents that users wrote: in a module that is named, or in all files of a directory."""

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import cast

from everloop.agents.agent import Agent
from everloop.agents.broken_files import shown, told_in_one_line
from everloop.agents.errors import AgentDefinitionError


@dataclass(frozen=True)
class FoundAgent:
    """An agent, and the file that it was found in."""

    agent: Agent
    file: str


def agents_of(location: str) -> list[FoundAgent]:
    """Return the agents of `module:attribute`, which is an agent or a list of them (default `agent`).

    Raises:
        AgentDefinitionError: there is no such module or attribute, it is something else, or it is broken.
    """
    module_name, _, attribute = location.partition(":")
    module = _imported(module_name, location)
    file = shown(Path(module.__file__)) if module.__file__ else module_name
    with told_in_one_line(Path(module.__file__ or module_name)):
        value: object = getattr(module, attribute or "agent", None)
    if value is None:
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: cannot load {location!r}: {file} has no {attribute or 'agent'!r}; "
            "expected module:attribute"
        )
    agents = _agents_of_value(value)
    if agents is None:
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: {location!r} in {file} is a {type(value).__name__}; "
            "expected an Agent or a list of them"
        )
    return [FoundAgent(agent, file) for agent in agents]


def agents_in(directory: Path) -> list[FoundAgent]:
    """Return the agents of all files `*.py` of a directory, by name of the file and order of definition.

    An agent, or a list of agents, counts if its name is public. Files whose names begin with `_` are there
    for the others to import: the directory becomes the last one of `sys.path`.

    Raises:
        AgentDefinitionError: there is no such directory, it has no agents, or one of its files is broken.
    """
    if not directory.is_dir():
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: {str(directory)!r} is {'a file' if directory.exists() else 'not there'}; "
            "expected a directory, or module:attribute"
        )
    directory = directory.resolve()
    files = [file for file in _modules_in(directory) if not file.stem.startswith("_")]
    if not files:
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: the directory {shown(directory)!r} has no agents; "
            "expected files NAME.py that define some"
        )
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
    importlib.invalidate_caches()
    _check_helpers(directory)
    return [found for file in files for found in _agents_in_file(file)]


def check_names(directories: Iterable[Path]) -> None:
    """Refuse two files of one name: whoever imports that name would get either.

    Raises:
        AgentDefinitionError: there are two; it names both.
    """
    seen: dict[str, Path] = {}
    for directory in dict.fromkeys(directory.resolve() for directory in directories):
        for file in _modules_in(directory):
            if file.stem in seen:
                raise AgentDefinitionError(
                    f"{shown(file)}:1: {shown(seen[file.stem])} has the same name, and one of them would "
                    "be imported in place of the other; rename one"
                )
            seen[file.stem] = file


def _modules_in(directory: Path) -> list[Path]:
    """Return the files that can be imported by name, in order."""
    files = (file for file in directory.glob("*.py") if not file.stem.startswith("__"))
    return sorted(files, key=lambda file: file.stem)


def _check_helpers(directory: Path) -> None:
    for file in _modules_in(directory):
        if file.stem.startswith("_") and not _is_imported_by_name(file):
            raise AgentDefinitionError(
                f"{shown(file)}:1: Python has another module {file.stem!r}, which would be imported in its "
                "place; rename the file"
            )


def _is_imported_by_name(file: Path) -> bool:
    """Whether the name of a file leads to it, and not to something that is installed."""
    spec = find_spec(file.stem) if file.stem.isidentifier() else None
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file.resolve()


def _agents_in_file(file: Path) -> list[FoundAgent]:
    with told_in_one_line(file):
        module = importlib.import_module(file.stem) if _is_imported_by_name(file) else _run(file)
    public = [value for name, value in vars(module).items() if not name.startswith("_")]
    agents = [agent for value in public for agent in _agents_of_value(value) or ()]
    if not agents:
        raise AgentDefinitionError(
            f"{shown(file)}:1: it defines no agent; give one a public name, or call the file "
            f"_{file.name} if others import it"
        )
    return [FoundAgent(agent, shown(file)) for agent in agents]


def _run(file: Path) -> ModuleType:
    """Import a file under a name that nothing else has; what is installed keeps the one that it would get."""
    name = f"everloop_agents:{file}"
    if name not in sys.modules:
        loader = SourceFileLoader(name, str(file))
        sys.modules[name] = module_from_spec(cast("ModuleSpec", spec_from_loader(name, loader)))
        try:
            loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _imported(module_name: str, location: str) -> ModuleType:
    """Import a module, each package above it first, so that we know which file is broken if one is."""
    names = list(accumulate(module_name.split("."), lambda package, name: f"{package}.{name}"))
    for name in names:
        spec = _spec_of(name, location)
        with told_in_one_line(Path(spec.origin or name)):
            importlib.import_module(name)
    return sys.modules[module_name]


def _spec_of(name: str, location: str) -> ModuleSpec:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: cannot load {location!r}: No module named {name!r}; "
            "expected module:attribute, or a directory"
        )
    return spec


def _agents_of_value(value: object) -> list[Agent] | None:
    """Return the agents of what can be named in a module; None if it is anything else."""
    values = cast("list[object]", list(value)) if isinstance(value, list | tuple) else [value]  # pyright: ignore[reportUnknownArgumentType] -- an attribute can be anything
    agents = [each for each in values if isinstance(each, Agent)]
    return agents if len(agents) == len(values) else None

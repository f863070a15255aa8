"""Registry of the agents that a process serves."""

import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import cast

from everloop.agents.agent import Agent
from everloop.agents.delegation import Delegation
from everloop.agents.errors import (
    AgentDefinitionError,
    UnknownAgentError,
    display_path,
    translate_import_errors,
)
from everloop.agents.plugins import Plugin
from everloop.runtime.environment import Settings

# Agents of users: in a named module, or in all files of a directory.


def _agents_of(location: str) -> list[Agent]:
    """Return the agents of `module:attribute`, which is an agent or a list of them (default `agent`).

    Raises:
        AgentDefinitionError: the module or attribute does not exist, has another type, or is broken.
    """
    module_name, _, attribute = location.partition(":")
    module = _imported(module_name, location)
    file = display_path(Path(module.__file__)) if module.__file__ else module_name
    with translate_import_errors(Path(module.__file__ or module_name)):
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
    return agents


def _agents_in(directory: Path) -> list[Agent]:
    """Return the agents of all files `*.py` of a directory, by name of the file and order of definition.

    An agent, or a list of agents, counts if its name is public. Files whose names begin with `_` are
    for import by the others: the directory becomes the last one of `sys.path`.

    Raises:
        AgentDefinitionError: the directory does not exist, it has no agents, or one of its files is broken.
    """
    if not directory.is_dir():
        wrong = "no Python file" if directory.exists() else "not there"
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: {str(directory)!r} is {wrong}; "
            "expected a file NAME.py, a directory, or module:attribute"
        )
    directory = directory.resolve()
    files = [file for file in _modules_in(directory) if not file.stem.startswith("_")]
    if not files:
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: the directory {display_path(directory)!r} has no agents; "
            "expected files NAME.py that define some"
        )
    _search(directory)
    _check_helpers(directory)
    return [found for file in files for found in _agents_in_file(file)]


def _search(directory: Path) -> None:
    """Make modules of a directory importable, except those with names of others."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
    importlib.invalidate_caches()


def _check_names(directories: Iterable[Path]) -> None:
    """Reject two files of one name: an import of that name would find either.

    Raises:
        AgentDefinitionError: there are two; it names both.
    """
    files: dict[str, Path] = {}
    for directory in dict.fromkeys(directory.resolve() for directory in directories):
        for file in _modules_in(directory):
            if file.stem in files:
                raise AgentDefinitionError(
                    f"{display_path(file)}:1: {display_path(files[file.stem])} has the same name, and one of "
                    "them would be imported in place of the other; rename one"
                )
            files[file.stem] = file


def _modules_in(directory: Path) -> list[Path]:
    """Return the files that can be imported by name, in order."""
    files = (file for file in directory.glob("*.py") if not file.stem.startswith("__"))
    return sorted(files, key=lambda file: file.stem)


def _check_helpers(directory: Path) -> None:
    for file in _modules_in(directory):
        if file.stem.startswith("_") and not _is_imported_by_name(file):
            raise AgentDefinitionError(
                f"{display_path(file)}:1: Python has another module {file.stem!r}, which would be imported "
                "in its place; rename the file"
            )


def _is_imported_by_name(file: Path) -> bool:
    """Return True if an import by the file's name finds it, and not an installed module."""
    spec = find_spec(file.stem) if file.stem.isidentifier() else None
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file.resolve()


def _agents_in_file(file: Path) -> list[Agent]:
    with translate_import_errors(file):
        module = importlib.import_module(file.stem) if _is_imported_by_name(file) else _run(file)
    names = [name for name in vars(module) if not name.startswith("_")]
    names.sort(key=lambda name: name != "agents")  # a list of this name sets the order
    agents = [agent for name in names for agent in _agents_of_value(getattr(module, name)) or ()]
    if not agents:
        raise AgentDefinitionError(
            f"{display_path(file)}:1: it defines no agent; give one a public name, or call the file "
            f"_{file.name} if others import it"
        )
    return agents


def _run(file: Path) -> ModuleType:
    """Import a file under a unique name; installed modules keep theirs."""
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
    """Import a module, each package above it first, so that an error names the broken file."""
    names = list(accumulate(module_name.split("."), lambda package, name: f"{package}.{name}"))
    for name in names:
        spec = _spec_of(name, location)
        with translate_import_errors(Path(spec.origin or name)):
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
            "expected module:attribute, a file NAME.py, or a directory"
        )
    return spec


def _agents_of_value(value: object) -> list[Agent] | None:
    """Return the agents in the value of an attribute; None if it is anything else."""
    values = cast("list[object]", list(value)) if isinstance(value, list | tuple) else [value]  # pyright: ignore[reportUnknownArgumentType] -- an attribute can be anything
    agents: list[Agent] = [each for each in values if isinstance(each, Agent)]
    return agents if len(agents) == len(values) else None


class AgentSettings(Settings):
    """Settings of the agents to serve."""

    agents: str = "everloop.examples.demo:agent"
    """The agents to serve: `module:attribute`, a file `NAME.py` or a folder, several separated by commas. The
    first agent is the default one. See docs/agents/agents.md#where-agents-are-found."""

    @property
    def is_default(self) -> bool:
        return not self.model_fields_set


class AgentRegistry:
    """Agents by id and version. The first agent is the default; of one id the first version is current.

    Agents that are sub-agents or handoffs of others are served too, after all others. Only current
    versions are counted, and found unless another one is requested.
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._versions: dict[str, dict[str, Agent]] = {}
        listed = list(agents)
        _refuse_twins(listed)
        for agent in _with_delegates(listed):
            self._versions.setdefault(agent.id, {})[agent.spec.version] = agent
        if not self._versions:
            raise AgentDefinitionError(
                "no agent is defined; set EVERLOOP_AGENTS to a file NAME.py, a directory, or module:attribute"
            )

    @property
    def default(self) -> Agent:
        return next(iter(self))

    def __iter__(self) -> Iterator[Agent]:
        """Iterate over the current version of each agent."""
        return (_current(versions) for versions in self._versions.values())

    def find(self, agent_id: str, version: str = "") -> Agent:
        """Return that version of the agent if it is loaded, else the current one; compare `spec.version`.

        Raises:
            UnknownAgentError: this process does not serve the agent in any version.
        """
        versions = self._versions.get(agent_id)
        if versions is None:
            names = ", ".join(self._versions)
            raise UnknownAgentError(f"no agent {agent_id!r} here; this process serves: {names}")
        return versions.get(version) or _current(versions)

    @property
    def plugins(self) -> list[Plugin]:
        """Every plugin of every version, once."""
        agents = (agent for versions in self._versions.values() for agent in versions.values())
        return list(dict.fromkeys(plugin for agent in agents for plugin in agent.plugins))

    @property
    def missed(self) -> list[str]:
        """A message for each sub-agent and handoff missing here; workers of the same queue may have it."""
        names = ", ".join(self._versions)
        return [
            f"{agent.place}: agent {agent.id!r} names agent {named!r} in its tool {tool.name!r}, which this "
            f"process does not serve (it serves: {names}); unless another worker does, such a call waits"
            for versions in self._versions.values()
            for agent in versions.values()
            for tool in agent.tools.values()
            if (named := tool.agent or tool.handoff) and named not in self._versions
        ]


def _refuse_twins(agents: Sequence[Agent]) -> None:
    """Reject two agents with the same id and version; one that is listed twice is one."""
    by_version: dict[tuple[str, str], Agent] = {}
    for agent in agents:
        twin = by_version.setdefault((agent.id, agent.spec.version), agent)
        if twin is not agent:
            raise AgentDefinitionError(
                f"{agent.place}: agent {agent.id!r}: {twin.place} has one of the same id and version "
                f"{agent.spec.version!r}; give each an id of its own, or each version its own `version`"
            )


def _with_delegates(listed: Sequence[Agent]) -> list[Agent]:
    """Return the agents, and after them their sub-agents and handoffs."""
    given = [agent for each in listed for agent in _delegates(each)]
    first = [agent for agent in listed if not any(agent is each for each in given)]
    registered = {(agent.id, agent.spec.version) for agent in first}
    behind: list[Agent] = []
    for agent in (agent for each in first for agent in _delegates(each)):
        if (agent.id, agent.spec.version) not in registered:
            registered.add((agent.id, agent.spec.version))
            behind.append(agent)
    return [*first, *behind]


def _delegates(agent: Agent) -> Iterator[Agent]:
    for plugin in agent.plugins:
        for each in plugin.agents if isinstance(plugin, Delegation) else ():
            yield each
            yield from _delegates(each)


def load_agents(locations: str) -> AgentRegistry:
    """Import the agents named in EVERLOOP_AGENTS. An agent found in two places is one.

    Modules of the working directory are importable, whatever command began this process.

    Raises:
        AgentDefinitionError: a location cannot be imported, or holds something else than agents.
    """
    # The working directory comes first in `sys.path`, as with `python -m`, but not as with scripts.
    if not sys.flags.safe_path and not {"", str(Path.cwd())} & {*sys.path}:
        sys.path.insert(0, str(Path.cwd()))
    named = [part for part in map(str.strip, locations.split(",")) if part]
    _check_names(Path(part).expanduser() for part in named if _is_directory(part))
    return AgentRegistry(agent for location in named for agent in _load(location))


def _load(location: str) -> list[Agent]:
    path = Path(location).expanduser()
    if _is_directory(location):
        return _agents_in(path)
    if not _is_file(location):
        return _agents_of(location)
    if not path.is_file():
        raise AgentDefinitionError(f"EVERLOOP_AGENTS: {location!r} is not there; expected a file NAME.py")
    _search(path.resolve().parent)
    return _agents_in_file(path.resolve())


def _is_file(location: str) -> bool:
    return location.endswith(".py") and not Path(location).is_dir()


def _is_directory(location: str) -> bool:
    return not _is_file(location) and (os.sep in location or Path(location).is_dir())


def _current(versions: dict[str, Agent]) -> Agent:
    return next(iter(versions.values()))

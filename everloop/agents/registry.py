"""Finds the agents that a process serves."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

from everloop.agents.agent import Agent
from everloop.agents.agent_files import FoundAgent, agents_in, agents_of, check_names
from everloop.agents.errors import AgentDefinitionError, UnknownAgentError
from everloop.agents.plugins import Plugin


class AgentSettings(BaseSettings):
    """Which agents to serve (environment, prefix EVERLOOP_).

    `agents`: `module:attribute`, an attribute being an `Agent` or a sequence of them, or a directory, all of
    whose files define agents; several of both separated by commas. The first agent is the default one.
    Default: the demo agent.
    """

    model_config = SettingsConfigDict(env_prefix="EVERLOOP_", frozen=True, env_ignore_empty=True)

    agents: str = "everloop.agents.demo:agent"


class AgentRegistry:
    """Agents by id and version. The first agent is the default; of one id the first version is current.

    Only current ones are counted, and found unless another version is asked for.
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._versions: dict[str, dict[str, Agent]] = {}
        for agent in agents:
            versions = self._versions.setdefault(agent.id, {})
            if agent.spec.version in versions:
                raise AgentDefinitionError(
                    f"two agents have the id {agent.id!r} and the version {agent.spec.version!r}; "
                    "give each an id of its own, or each version of one agent its own `version`"
                )
            versions[agent.spec.version] = agent
        if not self._versions:
            raise AgentDefinitionError(
                "no agent is defined; set EVERLOOP_AGENTS to module:attribute, or to a directory"
            )

    @property
    def default(self) -> Agent:
        return next(iter(self))

    def __iter__(self) -> Iterator[Agent]:
        """Go over the current version of each agent."""
        return (_current(versions) for versions in self._versions.values())

    def find(self, agent_id: str, version: str = "") -> Agent:
        """Return that version of the agent if it is loaded, else the current one; compare `spec.version`.

        Raises:
            UnknownAgentError: this process does not serve the agent in any version.
        """
        versions = self._versions.get(agent_id)
        if versions is None:
            known = ", ".join(self._versions)
            raise UnknownAgentError(f"no agent {agent_id!r} here; this process serves: {known}")
        return versions.get(version) or _current(versions)

    @property
    def plugins(self) -> list[Plugin]:
        """Every plugin of every version, once."""
        agents = (agent for versions in self._versions.values() for agent in versions.values())
        return list(dict.fromkeys(plugin for agent in agents for plugin in agent.plugins))

    @property
    def missed(self) -> list[str]:
        """Tell of each sub-agent and handoff that this process has not; workers of the same queue may."""
        known = ", ".join(self._versions)
        return [
            f"agent {agent.id!r} names agent {named!r} in its tool {tool.name!r}, which this process does "
            f"not serve (it serves: {known}); unless another worker does, such a call waits"
            for versions in self._versions.values()
            for agent in versions.values()
            for tool in agent.tools.values()
            if (named := tool.agent or tool.handoff) and named not in self._versions
        ]


def load_agents(locations: str) -> AgentRegistry:
    """Import the agents named in EVERLOOP_AGENTS. An agent that is found in two places is one.

    Raises:
        AgentDefinitionError: a location cannot be imported, or holds something else than agents.
    """
    named = [part for part in map(str.strip, locations.split(",")) if part]
    check_names(Path(part).expanduser() for part in named if _is_directory(part))
    found: list[FoundAgent] = []
    for location in named:
        for each in _load(location):
            if not any(each.agent is known.agent for known in found):
                _refuse_twin(each, found)
                found.append(each)
    return AgentRegistry(each.agent for each in found)


def _load(location: str) -> list[FoundAgent]:
    return agents_in(Path(location).expanduser()) if _is_directory(location) else agents_of(location)


def _is_directory(location: str) -> bool:
    return os.sep in location or Path(location).is_dir()


def _current(versions: dict[str, Agent]) -> Agent:
    return next(iter(versions.values()))


def _refuse_twin(new: FoundAgent, known: Sequence[FoundAgent]) -> None:
    """Name the files of two agents that cannot be told apart."""
    agent = new.agent
    for each in known:
        if (each.agent.id, each.agent.spec.version) == (agent.id, agent.spec.version):
            raise AgentDefinitionError(
                f"{new.file}:1: agent {agent.id!r}: {each.file} has one of the same id and version "
                f"{agent.spec.version!r}; give each an id of its own, or each version its own `version`"
            )

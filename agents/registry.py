"""Finds the agents that a process serves."""

import importlib
from collections.abc import Iterable, Iterator

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from agents.agent import Agent
from agents.errors import AgentDefinitionError, AgentError, UnknownAgentError


class AgentSettings(BaseSettings):
    """Which agents to serve (environment, prefix EVERLOOP_).

    `agents`: `module:attribute`, several separated by commas; an attribute is an `Agent` or a sequence of
    them. The first agent is the default one. Default: the demo agent.
    """

    model_config = SettingsConfigDict(env_prefix="EVERLOOP_", frozen=True)

    agents: str = "agents.demo:agent"


class AgentRegistry:
    """Agents by id; the first one is the default."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            if agent.id in self._agents:
                raise AgentDefinitionError(f"two agents have the id {agent.id!r}; give each its own")
            self._agents[agent.id] = agent
        if not self._agents:
            raise AgentDefinitionError("no agent is defined; set EVERLOOP_AGENTS to module:attribute")

    @property
    def default(self) -> Agent:
        return next(iter(self._agents.values()))

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    def find(self, agent_id: str) -> Agent:
        """Return the agent.

        Raises:
            UnknownAgentError: this process does not serve it.
        """
        try:
            return self._agents[agent_id]
        except KeyError:
            known = ", ".join(self._agents)
            raise UnknownAgentError(f"no agent {agent_id!r} here; this process serves: {known}") from None


def load_agents(locations: str) -> AgentRegistry:
    """Import the agents named in EVERLOOP_AGENTS.

    Raises:
        AgentDefinitionError: a location cannot be imported, or holds something else than agents.
    """
    found: list[Agent] = []
    for location in filter(None, (part.strip() for part in locations.split(","))):
        found.extend(_load(location))
    return AgentRegistry(found)


def _load(location: str) -> list[Agent]:
    module_name, _, attribute = location.partition(":")
    try:
        value: object = getattr(importlib.import_module(module_name), attribute or "agent")
    except (AgentError, ValidationError):
        raise
    except (ImportError, AttributeError) as error:
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: cannot load {location!r}: {error}; expected module:attribute"
        ) from error
    except Exception as error:
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: {location!r} fails when it is imported: {type(error).__name__}: {error}"
        ) from error
    agents = [value] if isinstance(value, Agent) else value
    if not isinstance(agents, list | tuple) or not all(isinstance(a, Agent) for a in agents):  # pyright: ignore[reportUnknownVariableType] -- an imported attribute can be anything
        raise AgentDefinitionError(
            f"EVERLOOP_AGENTS: {location!r} is a {type(value).__name__}; expected an Agent or a list of them"
        )
    return list(agents)  # pyright: ignore[reportUnknownArgumentType] -- checked in the line above

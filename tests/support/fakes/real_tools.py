"""Agents with real plugins and tools, for workflow tests with scripted models."""

from dataclasses import replace

from everloop import Agent, Plugin
from everloop.activities.tools.agent_catalogue import AgentCatalogue
from everloop.activities.tools.tool_call import AgentTools
from everloop.agents.registry import AgentRegistry
from everloop.stores.log.log_store import TaskViews
from everloop.stores.secrets import Secrets
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.worker import WorkerPorts
from tests.support.fakes.ports import FakePorts, ScriptedModel
from tests.support.stores import database, new_artifacts


class RealTools(FakePorts):
    """Agents whose plugins and tools run as in a worker. Replies of models are scripted."""

    def __init__(self, model: ScriptedModel, *agents: Agent) -> None:
        super().__init__(model)
        views, transcripts = TaskViews(database()), Transcripts(database())
        records = ToolRecords(database())
        stores = (views, transcripts, records, Secrets(database()), new_artifacts(views))
        registry = AgentRegistry(agents)
        self._real = {
            "tools": AgentTools(registry, *stores),
            "agents": AgentCatalogue(registry, views, transcripts, records),
        }

    def wired(self) -> WorkerPorts:
        return replace(super().wired(), **self._real)


def an_agent(name: str, *plugins: Plugin) -> Agent:
    return Agent(id=name, name=name, description="", plugins=plugins, memory=None)

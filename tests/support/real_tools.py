"""Agents whose plugins and tools are really asked, in workflow tests whose models are scripted."""

from dataclasses import replace

from activities.agents import AgentCatalogue
from activities.tools import AgentTools, ToolStores
from agents import Agent, Plugin
from agents.registry import AgentRegistry
from stores.memory_artifacts import MemoryArtifacts
from stores.memory_secrets import MemorySecrets
from stores.memory_task_views import MemoryTaskViews
from stores.memory_tool_records import MemoryToolRecords
from stores.memory_transcripts import MemoryTranscripts
from tests.support.fake_ports import FakePorts, ScriptedModel
from worker import Ports


class RealTools(FakePorts):
    """Agents whose plugins and tools are asked as in a worker. What models say is scripted."""

    def __init__(self, model: ScriptedModel, *agents: Agent) -> None:
        super().__init__(model)
        views, transcripts = MemoryTaskViews(), MemoryTranscripts()
        records = MemoryToolRecords()
        stores = ToolStores(views, transcripts, records, MemorySecrets(), MemoryArtifacts(views))
        registry = AgentRegistry(agents)
        self._real = {
            "tools": AgentTools(registry, stores),
            "agents": AgentCatalogue(registry, views, transcripts, records),
        }

    def wired(self) -> Ports:
        return replace(super().wired(), **self._real)


def an_agent(name: str, *plugins: Plugin) -> Agent:
    return Agent(id=name, name=name, description="", plugins=plugins, memory=None)

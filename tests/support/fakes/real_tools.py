"""Agents whose plugins and tools are really asked, in workflow tests whose models are scripted."""

from dataclasses import replace

from everloop import Agent, Plugin
from everloop.activities.tools.call import AgentTools
from everloop.activities.tools.catalogue import AgentCatalogue
from everloop.agents.registry import AgentRegistry
from everloop.worker import Ports
from tests.support.fakes.ports import FakePorts, ScriptedModel
from tests.support.memory.artifacts import MemoryArtifacts
from tests.support.memory.secrets import MemorySecrets
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.memory.transcripts import MemoryTranscripts


class RealTools(FakePorts):
    """Agents whose plugins and tools are asked as in a worker. What models say is scripted."""

    def __init__(self, model: ScriptedModel, *agents: Agent) -> None:
        super().__init__(model)
        views, transcripts = MemoryTaskViews(), MemoryTranscripts()
        records = MemoryToolRecords()
        stores = (views, transcripts, records, MemorySecrets(), MemoryArtifacts(views))
        registry = AgentRegistry(agents)
        self._real = {
            "tools": AgentTools(registry, *stores),
            "agents": AgentCatalogue(registry, views, transcripts, records),
        }

    def wired(self) -> Ports:
        return replace(super().wired(), **self._real)


def an_agent(name: str, *plugins: Plugin) -> Agent:
    return Agent(id=name, name=name, description="", plugins=plugins, memory=None)

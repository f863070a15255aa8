"""Looks up the agents that tools ask."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.task_log import logging_task
from activities.tool_events import started
from agents.agent import Agent
from agents.errors import UnknownAgentError
from agents.registry import AgentRegistry
from stores.task_views import TaskViews
from workflows.contract import failures
from workflows.contract.calls import LoadAgentInput
from workflows.contract.events import Warned
from workflows.contract.ports import AgentPort
from workflows.contract.tasks import AgentSpec


def find_agent(agents: AgentRegistry, agent_id: str) -> Agent:
    """Return an agent of this process.

    Raises:
        ApplicationError: `AgentUnknown` (retryable): another worker may have it.
    """
    try:
        return agents.find(agent_id)
    except UnknownAgentError as error:
        raise ApplicationError(str(error), type=failures.AGENT_UNKNOWN) from error


class AgentCatalogue(AgentPort):
    """Knows the agents of this process."""

    def __init__(self, agents: AgentRegistry, views: TaskViews) -> None:
        self._agents = agents
        self._views = views

    @activity.defn
    async def load_agent(self, call: LoadAgentInput) -> AgentSpec:
        with logging_task(call.task):
            agent = find_agent(self._agents, call.agent_id)
            warnings = (Warned(text=call.warning),) if call.warning else ()
            events = (*((call.status,) if call.status else ()), *warnings, started(call.call))
            await self._views.publish(call.task.task_id, call.task.run_id, events)
            return agent.spec

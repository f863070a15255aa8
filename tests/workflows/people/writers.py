"""An agent that calls another one, the writer."""

from everloop.workflows.contract.tasks import AgentSpec, ToolSpec
from tests.support.fakes.ports import asks_writer, task_of

PARENT = AgentSpec(id="agent", tools={"writer": ToolSpec(agent="writer")})


def writers_task(task_id: str) -> str:
    """Return the task of the sub-agent."""
    return task_of(task_id, *asks_writer("w").tool_calls)

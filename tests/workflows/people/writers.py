"""An agent that asks another one, the writer."""

from everloop.workflows.contract.messages import AssistantMessage, ToolCall
from everloop.workflows.contract.tasks import AgentSpec, ToolSpec
from tests.support.fakes.ports import task_of

PARENT = AgentSpec(id="agent", tools={"writer": ToolSpec(agent="writer")})


def asks_writer(*ids: str) -> AssistantMessage:
    calls = (ToolCall(id=id_, name="writer", arguments='{"request": "Write."}') for id_ in ids)
    return AssistantMessage(tool_calls=tuple(calls))


def writers_task(task_id: str) -> str:
    """Return the task of the sub-agent."""
    return task_of(task_id, *asks_writer("w").tool_calls)

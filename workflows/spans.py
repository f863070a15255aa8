"""Spans of workflow code (OpenTelemetry semantic conventions for generative AI); a replay adds none.

The tracer of a worker (`everloop.runtime.telemetry.setup`) takes ids from the workflow's own random numbers
and time from its history, and sends a span when it ends for the first time. Without one these functions do
nothing.
"""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace

from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.tasks import AgentSpec, TaskRef

_tracer = trace.get_tracer("everloop.workflows")


def name_run(task: TaskRef, agent: AgentSpec) -> None:
    """Let the span of this run say which agent it is."""
    span = trace.get_current_span()
    span.update_name(f"invoke_agent {agent.id}")
    span.set_attributes({"gen_ai.operation.name": "invoke_agent", **_attributes(task)})
    if agent.version:
        span.set_attribute("gen_ai.agent.version", agent.version)


@contextmanager
def tool_call_span(task: TaskRef, call: ToolCall) -> Generator[None]:
    """Trace a call that another agent takes: what that agent does is below it."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.id,
        **_attributes(task),
    }
    with _tracer.start_as_current_span(f"execute_tool {call.name}", attributes=attributes):
        yield


def _attributes(task: TaskRef) -> dict[str, str]:
    return {
        "gen_ai.agent.id": task.agent_id,
        "gen_ai.conversation.id": task.context_id,
        "everloop.task.id": task.task_id,
    }

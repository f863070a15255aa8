"""Spans that tell of a failure by its kind only: its message may hold content, or a secret."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from everloop.workflows.contract.tasks import TaskRef

_tracer = trace.get_tracer("everloop.activities")


def of_task(task: TaskRef, agent_name: str = "") -> dict[str, str]:
    """Return the attributes that say which task, and which agent, a span is about."""
    attributes = {
        "gen_ai.agent.id": task.agent_id,
        "gen_ai.conversation.id": task.context_id,
        "everloop.task.id": task.task_id,
    }
    if agent_name:
        attributes["gen_ai.agent.name"] = agent_name
    if task.agent_version:
        attributes["gen_ai.agent.version"] = task.agent_version
    return attributes


@contextmanager
def span_without_content(
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue],
    error_type: Callable[[BaseException], str],
) -> Generator[Span]:
    """Open a span; `error_type` names what ends it badly."""
    with _tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", error_type(error))
            span.set_status(StatusCode.ERROR)
            raise

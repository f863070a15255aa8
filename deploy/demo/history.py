"""What Temporal's history says of a task: the record that no event stream can embellish."""

import httpx
from pydantic import BaseModel, Field

from deploy.demo.errors import DemoError
from workflows.contract.ports import ToolPort

MOST_EVENTS = 1_000
"""As many as one page has; a demo task has about a hundred."""


class _ActivityType(BaseModel):
    name: str


class _Scheduled(BaseModel):
    activity_type: _ActivityType = Field(alias="activityType")


class _Completed(BaseModel):
    scheduled_event_id: str = Field(alias="scheduledEventId")


class _Event(BaseModel):
    event_id: str = Field(alias="eventId")
    scheduled: _Scheduled | None = Field(None, alias="activityTaskScheduledEventAttributes")
    completed: _Completed | None = Field(None, alias="activityTaskCompletedEventAttributes")


class _Events(BaseModel):
    events: list[_Event]


class _Answer(BaseModel):
    history: _Events


async def recorded_tool_calls(temporal_http: str, task_id: str) -> int:
    """Return how many tool calls the history of a task holds, each with its one outcome.

    Raises:
        DemoError: Temporal did not answer, or a call in the history has no outcome.
    """
    url = f"http://{temporal_http}/api/v1/namespaces/default/workflows/{task_id}/history"
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            response = await client.get(url, params={"maximumPageSize": MOST_EVENTS})
            response.raise_for_status()
    except httpx.HTTPError as error:
        raise DemoError(f"Temporal did not answer with the history of {task_id}: {error}") from error
    return _count(_Answer.model_validate_json(response.content).history.events)


def _count(events: list[_Event]) -> int:
    tool_calls = {
        event.event_id
        for event in events
        if event.scheduled and event.scheduled.activity_type.name == ToolPort.run_tool.__name__
    }
    outcomes = {event.completed.scheduled_event_id for event in events if event.completed}
    if tool_calls - outcomes:
        raise DemoError(f"the history holds {len(tool_calls - outcomes)} tool calls without an outcome")
    return len(tool_calls)

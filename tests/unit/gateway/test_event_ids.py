"""The ids and the data of streamed events."""

import json
from collections.abc import AsyncGenerator

import pytest

from everloop.gateway.tasks.streams import EVENT_ID, EventId, ServerSentEvent, with_ids

STATE = {EVENT_ID: EventId("17-3")}


async def events(*made: ServerSentEvent) -> AsyncGenerator[ServerSentEvent]:
    for each in made:
        yield each


async def test_an_error_has_no_id() -> None:
    """The client goes on behind the last event that it was told, and hears of what failed once more."""
    made = events({"data": "{}"}, {"event": "error", "data": "{}"})

    assert [event.get("id") async for event in with_ids(made, dict(STATE))] == ["17-3", None]


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029"])
async def test_data_are_one_line_for_every_client(end: str) -> None:
    """Some end lines where Unicode does, not only where HTML says so; JSON has escapes for it."""
    text = f"one{end}two"
    made = events({"data": json.dumps({"text": text}, ensure_ascii=False)})

    (event,) = [event async for event in with_ids(made, dict(STATE))]

    assert len(event["data"].splitlines()) == 1
    assert json.loads(event["data"]) == {"text": text}

"""What a call takes of Redis: one trip when it opens, and one when it closes."""

from typing import Any

import pytest

from everloop.agents.tool import tool
from everloop.stores.steps import Step, Steps
from tests.support.rigs.model_rig import model_rig
from tests.support.rigs.tool_rig import ToolRig
from tests.support.servers.scripted_openai import Reply

Trips = list[list[str]]


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    """The names of the steps of each trip, but for what is published by itself: deltas of a reply."""
    taken: Trips = []
    run = Steps.run

    async def counted(steps: Steps, *asked: Step[Any]) -> tuple[Any, ...]:
        names = [step.name for step in asked]
        if names != ["view.publish"]:
            taken.append(names)
        return await run(steps, *asked)

    monkeypatch.setattr(Steps, "run", counted)
    return taken


async def test_a_tool_call_takes_two_trips(trips: Trips) -> None:
    """Whatever it does itself."""

    @tool
    async def double(number: int) -> int:
        """Double it."""
        return 2 * number

    rig = ToolRig(double)
    call = rig.call("double", '{"number": 2}')
    assert (await rig.run(call)).content == "4"

    assert trips == [
        ["record.claim", "record.kept", "view.publish"],
        ["record.finish", "transcript.add", "view.publish"],
    ]


async def test_a_model_call_takes_two_trips(trips: Trips) -> None:
    """Besides what it streams."""
    async with model_rig([Reply(["Hel", "lo"])]) as rig:
        trips.clear()
        assert (await rig.run()).text == "Hello"

    assert trips == [
        ["record.claim", "transcript.open", "view.publish"],
        ["transcript.add", "view.publish", "record.release"],
    ]

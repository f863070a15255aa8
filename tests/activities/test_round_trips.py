"""The scripts that a call runs in Redis, and the number of round trips."""

from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from everloop.agents.tool import tool
from everloop.stores import scripts
from everloop.stores.scripts import Step
from tests.support.rigs.model_rig import model_rig
from tests.support.rigs.tool_rig import ToolRig
from tests.support.servers.scripted_openai import Reply

Trips = list[list[str]]


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    """The names of the scripts of each trip."""
    taken: Trips = []
    execute = scripts.execute

    async def counted(redis: Redis, steps: Sequence[Step[Any]]) -> list[Any]:
        answers = await execute(redis, steps)  # or else Redis has yet to load the scripts
        taken.append([step.file.partition("/")[2].removesuffix(".lua") for step in steps])
        return answers

    monkeypatch.setattr(scripts, "execute", counted)
    return taken


async def test_a_tool_call_takes_two_trips(trips: Trips) -> None:
    """A tool call takes two trips besides those of its function."""

    @tool
    async def double(number: int) -> int:
        """Double it."""
        return 2 * number

    rig = ToolRig(double)
    call = rig.call("double", '{"number": 2}')
    assert (await rig.run(call)).content == "4"

    assert trips == [["claim", "append"], ["finish", "add", "append"]]


async def test_a_model_call_takes_four_trips_and_its_stream(trips: Trips) -> None:
    """A model call takes four trips and its stream.

    It publishes its start with the read of the transcript, and its end with the storage of the reply.
    """
    async with model_rig([Reply(["Hel", "lo"])]) as rig:
        trips.clear()
        assert (await rig.run()).text == "Hello"

    opened, *streamed, stored, ended = trips
    assert opened == ["claim", "open"]
    assert {each for trip in streamed for each in trip} == {"append"}
    assert (stored, ended) == (["add"], ["append", "release"])

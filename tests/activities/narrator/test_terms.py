"""How often the narrator asks, and for how long."""

import asyncio
from datetime import timedelta

import pytest

from everloop.activities.narrator.narrator import NarrationTerms
from everloop.stores.views.interface import START, TaskViews
from tests.support.rigs.narrator_rig import QUICK, Looked, narrator_rig
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI


async def test_it_asks_only_so_often_for_one_task(views: TaskViews) -> None:
    """Attempts before count as well: their number is in the heartbeats."""
    terms = NarrationTerms(least_interval=0.01, max_calls=3)
    script = [Reply(["Searching"]), Reply(["Painting"])]
    async with ScriptedOpenAI(script) as provider, narrator_rig(provider, views, terms=terms) as rig:
        rig.after(START, 1)
        running = rig.start()
        await rig.call_tool("search")
        await rig.until_told(1)
        await rig.call_tool("paint")
        await running
        assert await rig.told() == ["Searching", "Painting"]


async def test_it_ends_after_its_time(views: TaskViews) -> None:
    """Counted from when it was scheduled first, over all attempts."""
    terms = NarrationTerms(least_interval=0.01, longest=timedelta(0))
    async with ScriptedOpenAI() as provider, narrator_rig(provider, views, terms=terms) as rig:
        await rig.call_tool("search")
        await rig.narrate()
        assert provider.requests == []


async def test_an_interval_has_its_least() -> None:
    """An agent cannot make it ask without a pause."""
    views, least = Looked(), 3600.0
    terms = NarrationTerms(least_interval=least)
    async with ScriptedOpenAI() as provider, narrator_rig(provider, views, terms=terms) as rig:
        await rig.call_tool("search")
        running = rig.start()
        await views.looks(1)
        rig.environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert provider.requests == []


def test_the_least_interval_is_a_second() -> None:
    """Unless a test says otherwise."""
    assert NarrationTerms().least_interval == 1
    assert QUICK.max_calls == NarrationTerms().max_calls == 200

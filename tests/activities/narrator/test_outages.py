"""The narrator while a view is missing or its store is away."""

from datetime import timedelta

from everloop.activities.narrator.narrator import NarrationTerms
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.tasks import TaskState
from tests.support.rigs.narrator_rig import Looked, narrator_rig
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI


async def test_a_lost_view_is_not_waited_for_for_ever(views: TaskViews) -> None:
    """Nobody sees what would be told."""
    terms = NarrationTerms(least_interval=0.01, patience=timedelta(0))
    async with (
        ScriptedOpenAI() as provider,
        narrator_rig(provider, views, terms=terms, begins=False) as rig,
    ):
        await rig.call_tool("search")
        await rig.narrate()
        assert provider.requests == []


async def test_a_task_that_is_shown_later_is_told_of_then() -> None:
    """It was hidden, or its view was lost and put back."""
    views = Looked()
    async with (
        ScriptedOpenAI([Reply(["Searching"])]) as provider,
        narrator_rig(provider, views, begins=False) as rig,
    ):
        await rig.call_tool("search")
        running = rig.start()
        await views.looks(5)
        assert provider.requests == []
        await rig.begin()
        await rig.until_told(1)
        await rig.change(TaskState.COMPLETED)
        await running


async def test_an_outage_of_the_store_is_waited_out() -> None:
    """From its beginning, too; and what happened meanwhile is told."""
    views = Looked()
    async with ScriptedOpenAI([Reply(["Searching"])]) as provider, narrator_rig(provider, views) as rig:
        views.away = True
        running = rig.start()
        await views.looks(3)
        await rig.call_tool("search")
        views.away = False
        await rig.until_told(1)
        views.away = True
        await views.looks(3)
        views.away = False
        await rig.change(TaskState.COMPLETED)
        await running


async def test_an_outage_that_is_too_long_ends_it() -> None:
    """Without an error: nobody misses it."""
    views = Looked()
    terms = NarrationTerms(least_interval=0.01, patience=timedelta(0))
    async with ScriptedOpenAI() as provider, narrator_rig(provider, views, terms=terms) as rig:
        views.away = True
        await rig.narrate()

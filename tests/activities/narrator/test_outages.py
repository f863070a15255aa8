"""The narrator while a view is missing or its store is away."""

from datetime import timedelta

from everloop.activities.narrator.narrator import NarrationTerms
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.tasks import TaskState
from tests.support.rigs.narrator_rig import Looked, narrator_bench
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI


async def test_a_lost_view_is_not_waited_for_for_ever(views: TaskViews) -> None:
    """Nobody sees what would be told."""
    terms = NarrationTerms(least_interval=0.01, patience=timedelta(0))
    async with (
        ScriptedOpenAI() as provider,
        narrator_bench(provider, views, terms=terms, begins=False) as bench,
    ):
        await bench.call_tool("search")

        await bench.narrate()

        assert provider.requests == []


async def test_a_task_that_is_shown_later_is_told_of_then() -> None:
    """It was hidden, or its view was lost and put back."""
    views = Looked()
    async with (
        ScriptedOpenAI([Reply(["Searching"])]) as provider,
        narrator_bench(provider, views, begins=False) as bench,
    ):
        await bench.call_tool("search")
        running = bench.start()
        await views.looks(5)
        assert provider.requests == []
        await bench.begin()
        await bench.until_told(1)
        await bench.change(TaskState.COMPLETED)
        await running


async def test_an_outage_of_the_store_is_waited_out() -> None:
    """From its beginning, too; and what happened meanwhile is told."""
    views = Looked()
    async with ScriptedOpenAI([Reply(["Searching"])]) as provider, narrator_bench(provider, views) as bench:
        views.away = True
        running = bench.start()
        await views.looks(3)
        await bench.call_tool("search")
        views.away = False
        await bench.until_told(1)
        views.away = True
        await views.looks(3)
        views.away = False
        await bench.change(TaskState.COMPLETED)
        await running


async def test_an_outage_that_is_too_long_ends_it() -> None:
    """Without an error: nobody misses it."""
    views = Looked()
    terms = NarrationTerms(least_interval=0.01, patience=timedelta(0))
    async with ScriptedOpenAI() as provider, narrator_bench(provider, views, terms=terms) as bench:
        views.away = True

        await bench.narrate()

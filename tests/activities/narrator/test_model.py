"""Which model the narrator asks, and when it hangs up or goes without an answer."""

import asyncio

import pytest

from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.tasks import NarratorSpec, TaskState
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.rigs.narrator_rig import narrator_rig
from tests.support.servers.scripted_openai import Refusal, Reply, ScriptedOpenAI


@pytest.mark.parametrize(
    "failure",
    [
        Refusal(500),
        Refusal(401),
        Reply(["Half"], ending="cut"),
        Reply(["Half"], ending="quiet"),
        Reply([], finish_reason="length"),
    ],
    ids=["an error", "a refusal", "a lost connection", "no end", "nothing"],
)
async def test_a_model_that_fails_costs_a_narration(views: TaskViews, failure: Refusal | Reply) -> None:
    """The next one comes; the task hears nothing of it."""
    async with (
        ScriptedOpenAI([failure, Reply(["Searching"])]) as provider,
        narrator_rig(provider, views) as rig,
    ):
        running = rig.start()
        await rig.call_tool("search")
        await provider.request(1)
        await rig.call_tool("search")
        assert await rig.until_told(1) == ["Searching"]
        await rig.change(TaskState.COMPLETED)
        await running


async def test_a_model_that_goes_on_writing_is_hung_up_on(views: TaskViews) -> None:
    """The first line is enough; the rest would be paid for."""
    endless = asyncio.Event()
    async with (
        ScriptedOpenAI([Reply(["Searching\nMore", endless])]) as provider,
        narrator_rig(provider, views) as rig,
    ):
        running = rig.start()
        await rig.call_tool("search")
        assert await rig.until_told(1) == ["Searching"]
        await provider.requests[0].disconnected.wait()
        await rig.change(TaskState.COMPLETED)
        await running


@pytest.mark.parametrize(
    ("narrator", "agent", "default", "asked"),
    [("small", "large", "other", "small"), (None, "large", "other", "large"), (None, None, "other", "other")],
)
async def test_the_model_is_the_narrator_s_or_the_agent_s(
    narrator: str | None, agent: str | None, default: str, asked: str
) -> None:
    """Or else the worker's own."""
    views = MemoryTaskViews()
    async with (
        ScriptedOpenAI([Reply(["Searching"])]) as provider,
        narrator_rig(provider, views, model=default) as rig,
    ):
        spec = NarratorSpec(interval=0.01, model=narrator)
        rig.call = rig.call.model_copy(update={"narrator": spec, "model": agent})
        running = rig.start()
        await rig.call_tool("search")
        await rig.until_told(1)
        await rig.change(TaskState.COMPLETED)
        await running
        assert provider.requests[0].body["model"] == asked


async def test_without_any_model_nothing_is_told() -> None:
    """The task fails of that by itself."""
    async with ScriptedOpenAI() as provider, narrator_rig(provider, MemoryTaskViews(), model=None) as rig:
        await rig.narrate()


async def test_a_cancelled_narrator_hangs_up(views: TaskViews) -> None:
    """Its task is over, or its worker stops: another attempt follows there."""
    gate = asyncio.Event()
    async with ScriptedOpenAI([Reply([gate])]) as provider, narrator_rig(provider, views) as rig:
        running = rig.start()
        await rig.call_tool("search")
        request = await provider.request(1)
        rig.environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await request.disconnected.wait()

"""An attempt of the narrator that follows one that died."""

from everloop.stores.views.interface import START, TaskViews
from everloop.workflows.contract.events import Narrated
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import chunk
from tests.support.rigs.narrator_rig import Looked, narrator_rig
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI


async def test_a_second_attempt_goes_on_where_the_first_one_died(views: TaskViews) -> None:
    """What stands in the stream is neither told again nor said again."""
    async with (
        ScriptedOpenAI([Reply(["searching"]), Reply(["Painting"])]) as provider,
        narrator_rig(provider, views) as rig,
    ):
        await rig.call_tool("search")
        await rig.publish(Narrated(text="Searching"))
        rig.after(START, 1)
        running = rig.start()
        for number, tool in enumerate(("search", "paint"), start=1):
            await rig.call_tool(tool)
            await provider.request(number)
        await rig.until_told(2)
        await rig.change(TaskState.COMPLETED)
        await running

        assert await rig.told() == ["Searching", "Painting"]
        assert "<already_said>\nSearching\n" in str(provider.requests[0].conversation[-1]["content"])
        assert rig.beats[-1][1] == 3


async def test_what_was_told_before_an_attempt_is_no_news() -> None:
    """Nothing has happened since the last narration: nothing is to be told."""
    views = Looked()
    async with ScriptedOpenAI() as provider, narrator_rig(provider, views) as rig:
        await rig.call_tool("search")
        await rig.publish(Narrated(text="Searching"))
        rig.after(START, 1)
        running = rig.start()
        await views.looks(10)
        await rig.change(TaskState.COMPLETED)
        await running
        assert provider.requests == []


async def test_an_artifact_that_began_between_two_attempts_ends_the_second(views: TaskViews) -> None:
    """The first one would have ended there."""
    async with ScriptedOpenAI() as provider, narrator_rig(provider, views) as rig:
        await rig.publish(chunk("a"))
        await rig.call_tool("search")
        rig.after(START, 0)
        await rig.narrate()
        assert provider.requests == []

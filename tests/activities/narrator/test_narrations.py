"""The narrator tells what is new, while there is nothing better to look at."""

import asyncio
from collections.abc import Mapping

import pytest

from everloop.stores.views.interface import Snapshot, TaskViews
from everloop.workflows.contract.events import TaskEvent
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import chunk, status
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.rigs.narrator_rig import Looked, narrator_rig
from tests.support.servers.scripted_openai import Reasoning, Reply, ScriptedOpenAI


async def test_it_tells_what_happens_until_the_task_ends(views: TaskViews) -> None:
    """The model reads what is new, the request and what was told; it never fails the task."""
    script = [Reply([Reasoning("Hm"), '"Searching the library."']), Reply(["Painting the picture"])]
    async with ScriptedOpenAI(script) as provider, narrator_rig(provider, views) as rig:
        running = rig.start()
        await rig.call_tool("search")
        await rig.until_told(1)
        await rig.call_tool("paint")
        told = await rig.until_told(2)
        await rig.change(TaskState.COMPLETED)
        await running

        assert told == ["Searching the library", "Painting the picture"]
        first, second = (str(request.conversation[-1]["content"]) for request in provider.requests)
        assert "Sum it up" in first
        assert "calls search" in first
        assert "<already_said>\nSearching the library\n</already_said>" in second
        assert "calls paint" in second
        assert provider.requests[0].body["model"] == "test-model"
        assert not [event for event in await rig.events() if event.kind in {"usage", "warning", "retry"}]


ENDS: Mapping[str, TaskEvent] = {
    "an answer": chunk("Hello"),
    "an artifact": chunk("", artifact_id="log"),
    **{str(state): status(9, state) for state in TaskState if state.is_terminal or state.is_interrupted},
}


@pytest.mark.parametrize("end", ENDS)
async def test_it_ends_when_there_is_something_better_to_look_at(views: TaskViews, end: str) -> None:
    """An artifact, a question to the user, or the end."""
    async with ScriptedOpenAI([Reply(["Searching"])]) as provider, narrator_rig(provider, views) as rig:
        running = rig.start()
        await rig.call_tool("search")
        await rig.until_told(1)
        await rig.publish(ENDS[end])
        await running
        assert await rig.told() == ["Searching"]


@pytest.mark.parametrize("end", ENDS)
async def test_what_comes_while_the_model_answers_counts(views: TaskViews, end: str) -> None:
    """The narration would be late: it is not told."""
    gate = asyncio.Event()
    async with ScriptedOpenAI([Reply([gate, "Late"])]) as provider, narrator_rig(provider, views) as rig:
        running = rig.start()
        await rig.call_tool("search")
        await provider.request(1)
        await rig.publish(ENDS[end])
        gate.set()
        await running
        assert await rig.told() == []


async def test_a_withdrawn_answer_is_no_artifact(views: TaskViews) -> None:
    """Each reply without a text may say that there is none."""
    script = [Reply(["Searching"]), Reply(["Painting"])]
    async with ScriptedOpenAI(script) as provider, narrator_rig(provider, views) as rig:
        running = rig.start()
        await rig.call_tool("search")
        await rig.until_told(1)
        await rig.publish(chunk(""))
        await rig.call_tool("paint")
        await rig.until_told(2)
        await rig.change(TaskState.FAILED)
        await running


@pytest.mark.parametrize("state", [state for state in TaskState if state.is_terminal])
async def test_a_task_that_has_ended_is_not_told_of(views: TaskViews, state: TaskState) -> None:
    """It may be over before its narrator begins."""
    async with ScriptedOpenAI() as provider, narrator_rig(provider, views) as rig:
        await rig.call_tool("search")
        await rig.change(state)
        await rig.narrate()
        assert provider.requests == []


class Resumed(MemoryTaskViews):
    """A task that still says it waits when the narrator looks first, and works from then on."""

    async def load(
        self, task_id: str, *, most: int | None = None, history_length: int | None = None
    ) -> Snapshot | None:
        snapshot = await super().load(task_id, most=most, history_length=history_length)
        await self.publish(task_id, "run", [status(7, TaskState.WORKING)])
        return snapshot


async def test_a_task_that_was_just_answered_is_told_of() -> None:
    """The call that carries its new status may come after the narrator."""
    async with (
        ScriptedOpenAI([Reply(["Searching"])]) as provider,
        narrator_rig(provider, Resumed()) as rig,
    ):
        await rig.change(TaskState.INPUT_REQUIRED)
        running = rig.start()
        await rig.call_tool("search")
        await rig.until_told(1)
        await rig.publish(status(9, TaskState.COMPLETED))
        await running


async def test_nothing_new_costs_nothing() -> None:
    """The model is asked once for what has happened, however long nothing follows."""
    views = Looked()
    async with ScriptedOpenAI([Reply(["Searching"])]) as provider, narrator_rig(provider, views) as rig:
        running = rig.start()
        await rig.call_tool("search")
        await rig.until_told(1)
        await views.looks(10)
        await rig.change(TaskState.COMPLETED)
        await running
        assert len(provider.requests) == 1


async def test_it_does_not_repeat_itself(views: TaskViews) -> None:
    """Nor say nothing."""
    script = [Reply([text]) for text in ("Searching", "SEARCHING.", "", "Painting")]
    async with ScriptedOpenAI(script) as provider, narrator_rig(provider, views) as rig:
        running = rig.start()
        for number in range(1, 5):
            await rig.call_tool("search")
            await provider.request(number)
        await rig.until_told(2)
        await rig.change(TaskState.COMPLETED)
        await running
        assert await rig.told() == ["Searching", "Painting"]


async def test_an_artifact_from_before_does_not_keep_it_from_telling(views: TaskViews) -> None:
    """An earlier turn of the task may have left some."""
    async with ScriptedOpenAI([Reply(["Searching"])]) as provider, narrator_rig(provider, views) as rig:
        await rig.publish(chunk("a", last=True))
        running = rig.start()
        await rig.call_tool("search")
        await rig.until_told(1)
        await rig.change(TaskState.COMPLETED)
        await running

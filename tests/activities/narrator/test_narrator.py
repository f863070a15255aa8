"""The narrator describes new events while there is nothing better to show."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest

from everloop.activities.narrator.narrator import NarrationTerms
from everloop.stores.log.log_types import START
from everloop.workflows.contract.events import Narrated, TaskEvent
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import chunk, status
from tests.support.rigs.narrator_rig import Looked, narrator_rig
from tests.support.servers.scripted_openai import Reasoning, Refusal, Reply

SEARCHING, PAINTING = Reply(["Searching"]), Reply(["Painting"])


async def test_it_tells_what_happens_until_the_task_ends() -> None:
    """It narrates new events until the task ends.

    The model reads the request, new events and earlier narrations; the task never fails by it.
    """
    script = [Reply([Reasoning("Hm"), '"Searching the library."']), Reply(["Painting the picture"])]
    async with narrator_rig(script) as rig:
        async with rig.narrating():
            await rig.call_tool("search")
            await rig.until_delivered(1)
            await rig.call_tool("paint")
            told = await rig.until_delivered(2)
        assert told == ["Searching the library", "Painting the picture"]
        first, second = (str(request.conversation[-1]["content"]) for request in rig.provider.requests)
        assert "Sum it up" in first
        assert "calls search" in first
        assert "<already_said>\nSearching the library\n</already_said>" in second
        assert "calls paint" in second
        assert rig.provider.requests[0].body["model"] == "test-model"
        assert not [event for event in await rig.events() if event.kind in {"usage", "warning", "retry"}]


ENDS: Mapping[str, TaskEvent] = {
    "an answer": chunk("Hello"),
    "an artifact": chunk("", artifact_id="log"),
    **{str(state): status(9, state) for state in TaskState if state.is_terminal or state.is_interrupted},
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_late", [False, True], ids=["then", "while the model answers"])
async def test_it_ends_when_there_is_something_better_to_look_at(end: str, *, is_late: bool) -> None:
    """An artifact, a question or the end of the task ends it; a late narration is dropped."""
    gate = asyncio.Event()
    async with narrator_rig([Reply([*[gate] * is_late, "Searching"])]) as rig:
        running = rig.start()
        await rig.call_tool("search")
        await (rig.provider.request(1) if is_late else rig.until_delivered(1))
        await rig.publish(ENDS[end])
        gate.set()
        await running
        assert await rig.told() == ["Searching"] * (not is_late)


async def test_nothing_new_costs_nothing() -> None:
    """The model is asked once for the same events, however long the task is silent."""
    views = Looked()
    async with narrator_rig([SEARCHING], views) as rig:
        async with rig.narrating():
            await rig.call_tool("search")
            await rig.until_delivered(1)
            await views.looks(10)
        assert len(rig.provider.requests) == 1


async def test_it_does_not_repeat_itself() -> None:
    """An empty or repeated narration is dropped."""
    script = [Reply([text]) for text in ("Searching", "SEARCHING.", "", "Painting")]
    async with narrator_rig(script) as rig:
        async with rig.narrating():
            for number in range(1, 5):
                await rig.call_tool("search")
                await rig.provider.request(number)
            await rig.until_delivered(2)
        assert await rig.told() == ["Searching", "Painting"]


async def test_a_second_attempt_goes_on_where_the_first_one_died() -> None:
    """A retry continues after the last narration in the stream without repeating it or the model call."""
    async with narrator_rig([Reply(["searching"]), PAINTING]) as rig:
        await rig.call_tool("search")
        await rig.publish(Narrated(text="Searching"))
        rig.after(START, 1)
        async with rig.narrating():
            for number, tool in enumerate(("search", "paint"), start=1):
                await rig.call_tool(tool)
                await rig.provider.request(number)
            await rig.until_delivered(2)
        assert await rig.told() == ["Searching", "Painting"]
        assert "<already_said>\nSearching\n" in str(rig.provider.requests[0].conversation[-1]["content"])


@pytest.mark.parametrize(
    "failure",
    [
        Refusal(500),
        Refusal(401),
        Reply(["Half"], ending="cut"),
        Reply(["Half"], ending="quiet"),
        Reply([], finish_reason="length"),
        Reply(["I cannot help with that."], finish_reason="refusal"),
        Reply(["Half"], finish_reason="content_filter"),
    ],
    ids=["an error", "a refusal", "a lost connection", "no end", "nothing", "declined", "filtered"],
)
async def test_a_model_that_fails_costs_a_narration(failure: Refusal | Reply) -> None:
    """A failure of the model costs one narration; the task does not notice."""
    async with narrator_rig([failure, SEARCHING]) as rig, rig.narrating():
        await rig.call_tool("search")
        await rig.provider.request(1)
        await rig.call_tool("search")
        assert await rig.until_delivered(1) == ["Searching"]


async def test_a_cancelled_narrator_hangs_up() -> None:
    """A cancelled narrator closes its connection; after a stop of the worker another attempt follows."""
    async with narrator_rig([Reply([asyncio.Event()])]) as rig:
        running = rig.start()
        await rig.call_tool("search")
        request = await rig.provider.request(1)
        rig.environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await request.disconnected.wait()


NO_OUTAGE = NarrationTerms(least_interval=0.01, max_outage=timedelta(0))
NO_TIME = NarrationTerms(least_interval=0.01, longest=timedelta(0))


@pytest.mark.parametrize(
    ("terms", "begins", "is_away"),
    [(NO_OUTAGE, False, False), (NO_OUTAGE, True, True), (NO_TIME, True, False)],
    ids=["a lost view", "an outage", "its time is over"],
)
async def test_it_is_not_there_for_ever(terms: NarrationTerms, *, begins: bool, is_away: bool) -> None:
    """It ends without an error for a lost view, an outage, or the end of its time."""
    views = Looked()
    async with narrator_rig([], views, terms=terms, begins=begins) as rig:
        await rig.call_tool("search")
        views.away = is_away
        await rig.narrate()
        assert rig.provider.requests == []


async def test_an_outage_of_the_store_is_waited_out() -> None:
    """An outage of the store is waited for, also at the start, and events of the time are narrated."""
    views = Looked()
    async with narrator_rig([SEARCHING], views) as rig:
        views.away = True
        async with rig.narrating():
            await views.looks(3)
            await rig.call_tool("search")
            views.away = False
            await rig.until_delivered(1)
            views.away = True
            await views.looks(3)
            views.away = False


async def test_it_asks_only_so_often_for_one_task() -> None:
    """The number of narrations of a task is bounded across attempts by a count in the heartbeats."""
    terms = NarrationTerms(least_interval=0.01, max_calls=3)
    async with narrator_rig([SEARCHING, PAINTING], terms=terms) as rig:
        rig.after(START, 1)
        running = rig.start()
        await rig.call_tool("search")
        await rig.until_delivered(1)
        await rig.call_tool("paint")
        await running
        assert await rig.told() == ["Searching", "Painting"]

"""The narrator tells what is new, while there is nothing better to look at."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta

import pytest
import pytest_asyncio
from redis.exceptions import ConnectionError as RedisConnectionError

from activities.narration import NarrationTerms
from stores.memory_task_views import MemoryTaskViews
from stores.redis_connection import connect_redis
from stores.redis_task_views import RedisTaskViews
from stores.task_views import START, Snapshot, StreamedEvent, TaskViews
from tests.stores.examples import chunk, status
from tests.support.narrator_bench import QUICK, narrator_bench
from tests.support.scripted_openai import Reasoning, Refusal, Reply, ScriptedOpenAI
from workflows.contract.events import Narrated, TaskEvent
from workflows.contract.tasks import NarratorSpec, TaskState


@pytest_asyncio.fixture(loop_scope="session")
async def redis_views(redis_url: str) -> AsyncGenerator[TaskViews]:
    async with connect_redis(redis_url) as redis:
        yield RedisTaskViews(redis)


@pytest.fixture(params=["memory", "redis"])
def views(request: pytest.FixtureRequest) -> TaskViews:
    return MemoryTaskViews() if request.param == "memory" else request.getfixturevalue("redis_views")


async def test_it_tells_what_happens_until_the_task_ends(views: TaskViews) -> None:
    """The model reads what is new, the request and what was told; it never fails the task."""
    script = [Reply([Reasoning("Hm"), '"Searching the library."']), Reply(["Painting the picture"])]
    async with ScriptedOpenAI(script) as provider, narrator_bench(provider, views) as bench:
        running = bench.start()
        await bench.call_tool("search")
        await bench.until_told(1)
        await bench.call_tool("paint")
        told = await bench.until_told(2)
        await bench.change(TaskState.COMPLETED)
        await running

        assert told == ["Searching the library", "Painting the picture"]
        first, second = (str(request.conversation[-1]["content"]) for request in provider.requests)
        assert "Sum it up" in first
        assert "calls search" in first
        assert "<already_said>\nSearching the library\n</already_said>" in second
        assert "calls paint" in second
        assert provider.requests[0].body["model"] == "test-model"
        assert not [event for event in await bench.events() if event.kind in {"usage", "warning", "retry"}]


ENDS: Mapping[str, TaskEvent] = {
    "an answer": chunk("Hello"),
    "an artifact": chunk("", artifact_id="log"),
    **{str(state): status(9, state) for state in TaskState if state.is_terminal or state.is_interrupted},
}


@pytest.mark.parametrize("end", ENDS)
async def test_it_ends_when_there_is_something_better_to_look_at(views: TaskViews, end: str) -> None:
    """An artifact, a question to the user, or the end."""
    async with ScriptedOpenAI([Reply(["Searching"])]) as provider, narrator_bench(provider, views) as bench:
        running = bench.start()
        await bench.call_tool("search")
        await bench.until_told(1)
        await bench.publish(ENDS[end])
        await running

        assert await bench.told() == ["Searching"]


@pytest.mark.parametrize("end", ENDS)
async def test_what_comes_while_the_model_answers_counts(views: TaskViews, end: str) -> None:
    """The narration would be late: it is not told."""
    gate = asyncio.Event()
    async with ScriptedOpenAI([Reply([gate, "Late"])]) as provider, narrator_bench(provider, views) as bench:
        running = bench.start()
        await bench.call_tool("search")
        await provider.request(1)
        await bench.publish(ENDS[end])
        gate.set()
        await running

        assert await bench.told() == []


async def test_a_withdrawn_answer_is_no_artifact(views: TaskViews) -> None:
    """Each reply without a text may say that there is none."""
    script = [Reply(["Searching"]), Reply(["Painting"])]
    async with ScriptedOpenAI(script) as provider, narrator_bench(provider, views) as bench:
        running = bench.start()
        await bench.call_tool("search")
        await bench.until_told(1)
        await bench.publish(chunk(""))
        await bench.call_tool("paint")
        await bench.until_told(2)
        await bench.change(TaskState.FAILED)
        await running


@pytest.mark.parametrize("state", [state for state in TaskState if state.is_terminal])
async def test_a_task_that_has_ended_is_not_told_of(views: TaskViews, state: TaskState) -> None:
    """It may be over before its narrator begins."""
    async with ScriptedOpenAI() as provider, narrator_bench(provider, views) as bench:
        await bench.call_tool("search")
        await bench.change(state)

        await bench.narrate()

        assert provider.requests == []


class Resumed(MemoryTaskViews):
    """A task that still says it waits when the narrator looks first, and works from then on."""

    async def load(self, task_id: str) -> Snapshot | None:
        snapshot = await super().load(task_id)
        await self.publish(task_id, "run", [status(7, TaskState.WORKING)])
        return snapshot


async def test_a_task_that_was_just_answered_is_told_of() -> None:
    """The call that carries its new status may come after the narrator."""
    async with (
        ScriptedOpenAI([Reply(["Searching"])]) as provider,
        narrator_bench(provider, Resumed()) as bench,
    ):
        await bench.change(TaskState.INPUT_REQUIRED)
        running = bench.start()
        await bench.call_tool("search")
        await bench.until_told(1)
        await bench.publish(status(9, TaskState.COMPLETED))
        await running


class Looked(MemoryTaskViews):
    """Counts how often the narrator has looked, or fails it."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0
        self._looked = asyncio.Condition()
        self.away = False

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        if wait == 0:
            async with self._looked:
                self._looks += 1
                self._looked.notify_all()
            if self.away:
                raise RedisConnectionError
        return await super().read(positions, wait=wait, limit=limit)

    async def looks(self, count: int) -> None:
        """Wait for so many further looks."""
        wanted = self._looks + count
        async with self._looked:
            await self._looked.wait_for(lambda: self._looks >= wanted)


async def test_nothing_new_costs_nothing() -> None:
    """The model is asked once for what has happened, however long nothing follows."""
    views = Looked()
    async with ScriptedOpenAI([Reply(["Searching"])]) as provider, narrator_bench(provider, views) as bench:
        running = bench.start()
        await bench.call_tool("search")
        await bench.until_told(1)
        await views.looks(10)
        await bench.change(TaskState.COMPLETED)
        await running

        assert len(provider.requests) == 1


async def test_it_does_not_repeat_itself(views: TaskViews) -> None:
    """Nor say nothing."""
    script = [Reply([text]) for text in ("Searching", "SEARCHING.", "", "Painting")]
    async with ScriptedOpenAI(script) as provider, narrator_bench(provider, views) as bench:
        running = bench.start()
        for number in range(1, 5):
            await bench.call_tool("search")
            await provider.request(number)
        await bench.until_told(2)
        await bench.change(TaskState.COMPLETED)
        await running

        assert await bench.told() == ["Searching", "Painting"]


async def test_a_second_attempt_goes_on_where_the_first_one_died(views: TaskViews) -> None:
    """What stands in the stream is neither told again nor said again."""
    async with (
        ScriptedOpenAI([Reply(["searching"]), Reply(["Painting"])]) as provider,
        narrator_bench(provider, views) as bench,
    ):
        await bench.call_tool("search")
        await bench.publish(Narrated(text="Searching"))
        bench.after(START, 1)
        running = bench.start()
        for number, tool in enumerate(("search", "paint"), start=1):
            await bench.call_tool(tool)
            await provider.request(number)
        await bench.until_told(2)
        await bench.change(TaskState.COMPLETED)
        await running

        assert await bench.told() == ["Searching", "Painting"]
        assert "<already_said>\nSearching\n" in str(provider.requests[0].conversation[-1]["content"])
        assert bench.beats[-1][1] == 3


async def test_what_was_told_before_an_attempt_is_no_news() -> None:
    """Nothing has happened since the last narration: nothing is to be told."""
    views = Looked()
    async with ScriptedOpenAI() as provider, narrator_bench(provider, views) as bench:
        await bench.call_tool("search")
        await bench.publish(Narrated(text="Searching"))
        bench.after(START, 1)
        running = bench.start()
        await views.looks(10)
        await bench.change(TaskState.COMPLETED)
        await running

        assert provider.requests == []


async def test_an_artifact_that_began_between_two_attempts_ends_the_second(views: TaskViews) -> None:
    """The first one would have ended there."""
    async with ScriptedOpenAI() as provider, narrator_bench(provider, views) as bench:
        await bench.publish(chunk("a"))
        await bench.call_tool("search")
        bench.after(START, 0)

        await bench.narrate()

        assert provider.requests == []


async def test_an_artifact_from_before_does_not_keep_it_from_telling(views: TaskViews) -> None:
    """An earlier turn of the task may have left some."""
    async with ScriptedOpenAI([Reply(["Searching"])]) as provider, narrator_bench(provider, views) as bench:
        await bench.publish(chunk("a", last=True))
        running = bench.start()
        await bench.call_tool("search")
        await bench.until_told(1)
        await bench.change(TaskState.COMPLETED)
        await running


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
        narrator_bench(provider, views) as bench,
    ):
        running = bench.start()
        await bench.call_tool("search")
        await provider.request(1)
        await bench.call_tool("search")
        assert await bench.until_told(1) == ["Searching"]
        await bench.change(TaskState.COMPLETED)
        await running


async def test_a_model_that_goes_on_writing_is_hung_up_on(views: TaskViews) -> None:
    """The first line is enough; the rest would be paid for."""
    endless = asyncio.Event()
    async with (
        ScriptedOpenAI([Reply(["Searching\nMore", endless])]) as provider,
        narrator_bench(provider, views) as bench,
    ):
        running = bench.start()
        await bench.call_tool("search")
        assert await bench.until_told(1) == ["Searching"]
        await provider.requests[0].disconnected.wait()
        await bench.change(TaskState.COMPLETED)
        await running


async def test_it_asks_only_so_often_for_one_task(views: TaskViews) -> None:
    """Attempts before count as well: their number is in the heartbeats."""
    terms = NarrationTerms(least_interval=0.01, max_calls=3)
    script = [Reply(["Searching"]), Reply(["Painting"])]
    async with ScriptedOpenAI(script) as provider, narrator_bench(provider, views, terms=terms) as bench:
        bench.after(START, 1)
        running = bench.start()
        await bench.call_tool("search")
        await bench.until_told(1)
        await bench.call_tool("paint")

        await running

        assert await bench.told() == ["Searching", "Painting"]


async def test_it_ends_after_its_time(views: TaskViews) -> None:
    """Counted from when it was scheduled first, over all attempts."""
    terms = NarrationTerms(least_interval=0.01, longest=timedelta(0))
    async with ScriptedOpenAI() as provider, narrator_bench(provider, views, terms=terms) as bench:
        await bench.call_tool("search")

        await bench.narrate()

        assert provider.requests == []


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
        narrator_bench(provider, views, model=default) as bench,
    ):
        spec = NarratorSpec(interval=0.01, model=narrator)
        bench.call = bench.call.model_copy(update={"narrator": spec, "model": agent})
        running = bench.start()
        await bench.call_tool("search")
        await bench.until_told(1)
        await bench.change(TaskState.COMPLETED)
        await running

        assert provider.requests[0].body["model"] == asked


async def test_without_any_model_nothing_is_told() -> None:
    """The task fails of that by itself."""
    async with ScriptedOpenAI() as provider, narrator_bench(provider, MemoryTaskViews(), model=None) as bench:
        await bench.narrate()


async def test_an_interval_has_its_least() -> None:
    """An agent cannot make it ask without a pause."""
    views, least = Looked(), 3600.0
    terms = NarrationTerms(least_interval=least)
    async with ScriptedOpenAI() as provider, narrator_bench(provider, views, terms=terms) as bench:
        await bench.call_tool("search")
        running = bench.start()
        await views.looks(1)
        bench.environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert provider.requests == []


async def test_a_cancelled_narrator_hangs_up(views: TaskViews) -> None:
    """Its task is over, or its worker stops: another attempt follows there."""
    gate = asyncio.Event()
    async with ScriptedOpenAI([Reply([gate])]) as provider, narrator_bench(provider, views) as bench:
        running = bench.start()
        await bench.call_tool("search")
        request = await provider.request(1)
        bench.environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await request.disconnected.wait()


def test_the_least_interval_is_a_second() -> None:
    """Unless a test says otherwise."""
    assert NarrationTerms().least_interval == 1
    assert QUICK.max_calls == NarrationTerms().max_calls == 200

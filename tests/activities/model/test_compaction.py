"""How room is made in the context window: a summary, or nothing, in the place of older messages."""

import asyncio

import pytest
from openai import AsyncOpenAI
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.compaction import MAX_SUMMARY_CHARACTERS
from everloop.activities.model.failures import MODEL_FAILURES
from everloop.activities.model.provider import ModelProvider
from everloop.stores.leases import Lease
from everloop.stores.transcripts import RedisTranscripts
from everloop.stores.transcripts import Reply as TranscriptReply
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.calls import CompactContextInput
from everloop.workflows.contract.events import RetryScheduled, UsageReported, Warned
from everloop.workflows.contract.failures import MODEL_UNAVAILABLE, TRANSCRIPT_MISSING
from everloop.workflows.contract.messages import AssistantMessage, SummaryMessage, TranscriptMessage, Usage
from everloop.workflows.contract.tasks import CompactionSpec
from tests.support.memory.transcripts import MemoryTranscripts
from tests.support.rigs.model_rig import ModelBench, model_bench
from tests.support.servers.scripted_openai import Answer, Reasoning, Refusal, Reply, ScriptedOpenAI

WINDOW, SUMMARY = CompactionSpec(strategy="window"), CompactionSpec(strategy="summary")
LEFT_OUT = "messages 1 to 2 of the conversation were left out: the prompt got too long"
SUMMED_UP = "messages 1 to 2 of the conversation were summed up: the prompt got too long"


async def prepare(
    bench: ModelBench,
    compaction: CompactionSpec = SUMMARY,
    *,
    model: str = "priced-model",
    more: tuple[TranscriptMessage, ...] = (),
) -> CompactContextInput:
    """Fill the cache with five messages, and more; return the call that sums up messages 1 and 2."""
    said = [AssistantMessage(text=f"said {n}") for n in range(1, 5)]
    messages = [*bench.call.new, *said, *more]
    await bench.transcripts.put(bench.task.task_id, bench.task.run_id, 0, messages)
    return CompactContextInput(
        task=bench.task, iteration=3, model=model, length=len(messages), end=3, compaction=compaction
    )


async def warnings(bench: ModelBench) -> list[str]:
    """Return the warnings that subscribers got."""
    return [event.text for event in await bench.events() if isinstance(event, Warned)]


async def test_old_messages_are_left_out() -> None:
    """A window asks nobody."""
    async with ScriptedOpenAI() as provider, model_bench(provider) as bench:
        summary = await bench.compact(await prepare(bench, WINDOW))

        assert summary == SummaryMessage(end=3)
        assert provider.requests == []
        assert await warnings(bench) == [LEFT_OUT]


async def test_old_messages_are_summed_up() -> None:
    """The model writes the summary from the messages before the end; it is told, counted and paid for."""
    script = [Reply([Reasoning("Hm"), "They said ", "1 and 2.\n"], usage=(10, 5))]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        summary = await bench.compact(await prepare(bench))

        usage = Usage(input_tokens=10, output_tokens=5, cost=0.51)
        assert summary == SummaryMessage(end=3, text="They said 1 and 2.", usage=usage)
        [request] = provider.requests
        assert request.body["model"] == "priced-model"
        assert "tools" not in request.body
        assert "said 2" in str(request.messages[-1])
        assert "said 3" not in str(request.messages)
        assert "Hi" not in str(request.messages[-1])
        assert await warnings(bench) == [SUMMED_UP]
        assert UsageReported(iteration=3, usage=summary.usage) in await bench.events()
        assert await bench.response() is None


async def test_a_summary_that_nobody_counted_has_an_estimated_usage() -> None:
    """The tokens of the task stay limited."""
    async with ScriptedOpenAI([Reply(["12345"], usage=None)]) as provider, model_bench(provider) as bench:
        summary = await bench.compact(await prepare(bench))

    assert summary.usage.input_tokens > 100
    assert summary.usage.output_tokens == 2
    assert summary.usage.cost > 0


async def test_an_earlier_summary_is_summed_up_too() -> None:
    """Its text counts, what it covers is not sent again."""
    earlier = SummaryMessage(end=2, text="They said 1.")
    async with ScriptedOpenAI([Reply(["All."])]) as provider, model_bench(provider) as bench:
        await bench.compact(await prepare(bench, more=(earlier,)))

        prompt = str(provider.requests[0].messages[-1])
        assert "They said 1." in prompt
        assert "said 2" in prompt
        assert "said 1'" not in prompt.replace("They said 1.", "")


@pytest.mark.parametrize(
    "answer",
    [
        Refusal(400, "context_length_exceeded"),
        Refusal(401),
        Refusal(429, "insufficient_quota"),
        Reply([]),
        Reply([Reasoning("only thoughts")]),
    ],
    ids=repr,
)
async def test_without_a_summary_messages_are_left_out(answer: Answer) -> None:
    """A refusal that will not pass, or an empty summary, does not stop the task."""
    async with ScriptedOpenAI([answer]) as provider, model_bench(provider) as bench:
        summary = await bench.compact(await prepare(bench))

        assert (summary.end, summary.text) == (3, "")
        assert len(provider.requests) == 1
        [warning] = await warnings(bench)
        assert warning.startswith(f"{LEFT_OUT}; no summary: ")


async def test_an_earlier_summary_outlives_a_later_one_that_failed() -> None:
    """What is known already is not lost with it; the text says what is missing."""
    earlier = SummaryMessage(end=2, text="They said 1.")
    async with ScriptedOpenAI([Refusal(400)]) as provider, model_bench(provider) as bench:
        summary = await bench.compact(await prepare(bench, more=(earlier,)))

        assert summary.text == "They said 1.\n\n[1 messages after that were left out]"


async def test_a_model_that_nobody_names_writes_no_summary() -> None:
    """The warning says where to name one."""
    async with ScriptedOpenAI() as provider, model_bench(provider) as bench:
        async with AsyncOpenAI(api_key="k", base_url=provider.base_url) as client:
            nameless = ModelProvider(client, None)
            bench.port = bench.port_to(nameless)
            call = await prepare(bench)
            summary = await bench.compact(call.model_copy(update={"model": None}))

        assert summary == SummaryMessage(end=3)
        assert "EVERLOOP_MODEL" in (await warnings(bench))[0]
        assert provider.requests == []


async def test_the_agent_of_a_summary_need_not_be_known() -> None:
    """Only its model is asked: a worker that lost the agent can make room."""
    async with ScriptedOpenAI([Reply(["Sum"])]) as provider, model_bench(provider) as bench:
        call = await prepare(bench)
        stranger = call.task.model_copy(update={"agent_id": "stranger"})

        assert (await bench.compact(call.model_copy(update={"task": stranger}))).text == "Sum"


async def test_a_failure_that_may_pass_is_tried_again() -> None:
    """Temporal runs it again after the delay that subscribers are told."""
    async with ScriptedOpenAI([Refusal(503)]) as provider, model_bench(provider) as bench:
        with pytest.raises(ApplicationError) as caught:
            await bench.compact(await prepare(bench), attempt=2, failures=3)

        failure = caught.value
        assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)
        assert failure.next_retry_delay
        delay = failure.next_retry_delay.total_seconds()
        assert 4 <= delay <= 8
        assert RetryScheduled(attempt=2, reason=failure.message, delay=delay) in await bench.events()
        assert await warnings(bench) == []


async def test_the_last_failure_leaves_the_messages_out() -> None:
    """A provider that stays away does not stop the task here: the model call after it will say so."""
    async with ScriptedOpenAI([Refusal(503)]) as provider, model_bench(provider) as bench:
        summary = await bench.compact(await prepare(bench), failures=MODEL_FAILURES - 1)

        assert summary == SummaryMessage(end=3)


async def test_a_stored_summary_is_not_written_again() -> None:
    """The worker died after it was stored: the next attempt returns it, and tells it."""
    async with ScriptedOpenAI([Reply(["Sum"])]) as provider, model_bench(provider) as bench:
        call = await prepare(bench)
        first = await bench.compact(call)
        second = await bench.compact(call, attempt=2)

        assert first == second
        assert first.text == "Sum"
        assert len(provider.requests) == 1
        assert await warnings(bench) == [SUMMED_UP, SUMMED_UP]


async def test_the_first_summary_stored_counts() -> None:
    """When two attempts overlap, both return the same."""
    gate = asyncio.Event()
    async with ScriptedOpenAI([Reply(["Ours", gate])]) as provider, model_bench(provider) as bench:
        call = await prepare(bench)
        running = asyncio.create_task(bench.compact(call))
        await provider.request(1)
        theirs = SummaryMessage(end=3, text="Theirs")
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, call.length, theirs)
        gate.set()

        assert await running == theirs


async def test_a_transcript_that_differs_is_not_summed_up() -> None:
    """The workflow has to send it again."""
    async with ScriptedOpenAI() as provider, model_bench(provider) as bench:
        call = await prepare(bench, WINDOW)
        with pytest.raises(ApplicationError) as caught:
            await bench.compact(call.model_copy(update={"digest": "another"}))
        assert caught.value.type == TRANSCRIPT_MISSING


@pytest.mark.parametrize("compaction", [WINDOW, SUMMARY])
async def test_a_transcript_with_a_gap_is_not_summed_up(compaction: CompactionSpec) -> None:
    """The workflow has to send it again."""
    async with ScriptedOpenAI() as provider, model_bench(provider) as bench:
        call = await prepare(bench, compaction)
        with pytest.raises(ApplicationError) as caught:
            await bench.compact(call.model_copy(update={"length": 9}))

        assert (caught.value.type, caught.value.non_retryable) == (TRANSCRIPT_MISSING, True)
        assert provider.requests == []


async def test_a_cancelled_summary_hangs_up() -> None:
    """The provider sees the connection closed while it still writes."""
    environment = ActivityEnvironment()
    script = [Reply(["Su", asyncio.Event()])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        running = asyncio.create_task(bench.compact(await prepare(bench), environment=environment))
        request = await provider.request(1)
        environment.cancel()

        with pytest.raises(asyncio.CancelledError):
            await running
        await request.disconnected.wait()
        assert await warnings(bench) == []


async def test_a_summary_in_the_making_sends_heartbeats() -> None:
    """Temporal learns that the worker lives, and the worker that the call was cancelled."""
    gate = asyncio.Event()
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: gate.set()
    async with ScriptedOpenAI([Reply([gate, "Sum"])]) as provider, model_bench(provider) as bench:
        assert (await bench.compact(await prepare(bench), environment=environment)).text == "Sum"


async def test_a_summary_without_end_is_cut() -> None:
    """A model that does not count its words cannot fill the prompt with them."""
    async with ScriptedOpenAI([Reply(["x" * 100_000])]) as provider, model_bench(provider) as bench:
        assert len((await bench.compact(await prepare(bench))).text) == MAX_SUMMARY_CHARACTERS


async def test_a_summary_that_cannot_be_cached_is_returned() -> None:
    """History will hold it, and the next call fills the cache again."""
    async with (
        ScriptedOpenAI([Reply(["Sum"])]) as provider,
        model_bench(provider, transcripts=ForgetfulTranscripts()) as bench,
    ):
        assert (await bench.compact(await prepare(bench))).text == "Sum"


async def test_a_new_run_sums_up_the_cache_of_the_run_before(redis_url: str) -> None:
    """On the stores of production, in the first call of a run that continued as new."""
    async with (
        Redis.from_url(redis_url, decode_responses=True) as redis,
        ScriptedOpenAI([Reply(["Sum"])]) as provider,
        model_bench(provider, RedisTaskViews(redis), RedisTranscripts(redis)) as bench,
    ):
        call = await prepare(bench)
        task = bench.task.model_copy(update={"run_id": "next"})
        call = call.model_copy(update={"task": task, "previous_run": bench.task.run_id})

        summary = await bench.compact(call)
        opened = await bench.transcripts.open(task.task_id, task.run_id, call.length + 1)

        assert summary.text == "Sum"
        assert opened.messages
        assert opened.messages[-1] == summary
        assert await warnings(bench) == [SUMMED_UP]


class ForgetfulTranscripts(MemoryTranscripts):
    """Loses its connection when a summary is to be stored."""

    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: TranscriptReply, lease: Lease | None = None
    ) -> TranscriptReply:
        raise RedisConnectionError

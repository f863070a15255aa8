"""Compaction of the context window: a summary in the place of older messages, or their omission."""

import asyncio

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.compaction import MAX_SUMMARY_CHARACTERS
from everloop.activities.model.model_retries import FALL_BACK_AFTER, RETRIES
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.agent_settings import Compaction
from everloop.workflows.contract.calls import CompactContextInput
from everloop.workflows.contract.events import RetryScheduled, UsageReported, Warned
from everloop.workflows.contract.failures import MODEL_UNAVAILABLE, TRANSCRIPT_MISSING
from everloop.workflows.contract.messages import AssistantMessage, SummaryMessage, TranscriptMessage, Usage
from tests.support.fakes.failing import failing
from tests.support.rigs.model_rig import ModelRig, model_rig
from tests.support.servers.scripted_openai import Answer, Reasoning, Refusal, Reply
from tests.support.stores import database

WINDOW, SUMMARY = Compaction(strategy="window"), Compaction(strategy="summary")
LEFT_OUT = "messages 1 to 2 of the conversation were left out: the prompt got too long"
SUMMED_UP = "messages 1 to 2 of the conversation were summed up: the prompt got too long"
EARLIER = SummaryMessage(end=2, text="They said 1.")


async def prepare(
    rig: ModelRig, *more: TranscriptMessage, compaction: Compaction = SUMMARY, **fields: object
) -> CompactContextInput:
    """Fill the cache with five messages, and more; return the call that sums up messages 1 and 2."""
    said = [AssistantMessage(text=f"said {n}") for n in range(1, 5)]
    await rig.store(*rig.call.new, *said, *more)
    call = CompactContextInput(
        task=rig.task, iteration=3, model="priced-model", length=5 + len(more), end=3, compaction=compaction
    )
    return call.model_copy(update=fields)


async def warnings(rig: ModelRig) -> list[str]:
    return [event.text for event in await rig.events_of(Warned)]


async def test_old_messages_are_left_out() -> None:
    """A window leaves old messages out without asking a model."""
    async with model_rig() as rig:
        assert await rig.compact(await prepare(rig, compaction=WINDOW)) == SummaryMessage(end=3)
        assert rig.provider.requests == []
        assert await warnings(rig) == [LEFT_OUT]


async def test_old_messages_are_summed_up_once() -> None:
    """Old messages are summarized once; the summary is published, counted, paid for and stored."""
    async with model_rig([Reply([Reasoning("Hm"), "They said ", "1 and 2.\n"])]) as rig:
        call = await prepare(rig)
        summary = await rig.compact(call)
        usage = Usage(input_tokens=10, output_tokens=5, cost=0.51)
        assert summary == SummaryMessage(end=3, text="They said 1 and 2.", usage=usage)
        [request] = rig.provider.requests
        assert request.body["model"] == "priced-model"
        assert "tools" not in request.body
        assert "said 2" in str(request.messages[-1])
        assert "said 3" not in str(request.messages)
        assert "Hi" not in str(request.messages[-1])
        assert UsageReported(iteration=3, usage=summary.usage) in await rig.events()
        assert await rig.answer() is None
        assert await rig.compact(call, attempt=2) == summary  # the worker died after it was stored
        assert len(rig.provider.requests) == 1
        assert await warnings(rig) == [SUMMED_UP, SUMMED_UP]


async def test_an_earlier_summary_is_summed_up_too() -> None:
    """An earlier summary is summarized with the messages after it, and stands if the later one fails."""
    async with model_rig([Refusal(400), Reply(["All."])]) as rig:
        call = await prepare(rig, EARLIER)
        failed = await rig.compact(
            call.model_copy(
                update={"task": rig.task.model_copy(update={"run_id": "x"}), "previous_run": rig.task.run_id}
            )
        )
        await rig.compact(call)
        assert failed.text == "They said 1.\n\n[1 messages after that were left out]"
        prompt = str(rig.provider.requests[1].messages[-1])
        assert "They said 1." in prompt
        assert "said 2" in prompt
        assert "said 1'" not in prompt.replace("They said 1.", "")


@pytest.mark.parametrize(
    ("answer", "failures"),
    [
        (Refusal(400, "context_length_exceeded"), 0),
        (Refusal(401), 0),
        (Refusal(429, "insufficient_quota"), 0),
        (Refusal(503), RETRIES),
        (Reply([]), 0),
        (Reply([Reasoning("only thoughts")]), 0),
        (Reply(["They sa"], finish_reason="content_filter"), 0),
        (Reply(["I cannot help with that."], finish_reason="refusal"), 0),
    ],
    ids=repr,
)
async def test_without_a_summary_messages_are_left_out(answer: Answer, failures: int) -> None:
    """After a final failure, a long outage or an unusable summary, old messages are left out."""
    async with model_rig([answer]) as rig:
        summary = await rig.compact(await prepare(rig), failures=failures)
        assert (summary.end, summary.text) == (3, "")
        assert len(rig.provider.requests) == 1
        [warning] = await warnings(rig)
        assert warning.startswith(f"{LEFT_OUT}; no summary: ")


@pytest.mark.parametrize(
    ("helps", "failed"),
    [("has_fallback", FALL_BACK_AFTER - 1), ("waits", RETRIES)],
    ids=["soon", "in the end"],
)
async def test_another_model_may_write_a_summary_or_an_operator_help(helps: str, failed: int) -> None:
    """With another model or an operator's help, an outage fails the call, and no message is left out."""
    async with model_rig([Refusal(503)]) as rig:
        call = (await prepare(rig)).model_copy(update={helps: True})
        with pytest.raises(ApplicationError) as caught:
            await rig.compact(call, failures=failed)
        assert (caught.value.type, caught.value.non_retryable) == (MODEL_UNAVAILABLE, True)
        assert await warnings(rig) == []


async def test_the_agent_of_a_summary_need_not_be_known() -> None:
    """A worker without the agent can summarize, because only the model is asked; the text is bounded."""
    async with model_rig([Reply(["x" * 100_000])]) as rig:
        stranger = rig.task.model_copy(update={"agent_id": "stranger"})
        assert len((await rig.compact(await prepare(rig, task=stranger))).text) == MAX_SUMMARY_CHARACTERS


async def test_a_failure_that_may_pass_is_tried_again() -> None:
    """A temporary failure is retried by Temporal after the published delay."""
    async with model_rig([Refusal(503)]) as rig:
        with pytest.raises(ApplicationError) as caught:
            await rig.compact(await prepare(rig), attempt=2, failures=3)
        failure = caught.value
        assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)
        assert failure.next_retry_delay
        delay = failure.next_retry_delay.total_seconds()
        assert 4 <= delay <= 8
        assert RetryScheduled(attempt=2, reason=failure.message, delay=delay) in await rig.events()
        assert await warnings(rig) == []


async def test_the_first_summary_stored_counts() -> None:
    """Of overlapping attempts, both return the summary that was stored first."""
    gate, theirs = asyncio.Event(), SummaryMessage(end=3, text="Theirs")
    async with model_rig([Reply(["Ours", gate])]) as rig:
        call = await prepare(rig)
        running = asyncio.create_task(rig.compact(call))
        await rig.provider.request(1)
        await rig.store_reply(theirs, call.length)
        gate.set()
        assert await running == theirs


@pytest.mark.parametrize("compaction", [WINDOW, SUMMARY])
@pytest.mark.parametrize("lacks", [{"digest": "another"}, {"length": 9}], ids=["differs", "gap"])
async def test_a_transcript_that_is_not_the_history_is_not_summed_up(
    compaction: Compaction, lacks: dict[str, object]
) -> None:
    """A transcript that differs from the history is requested from the workflow before it is summarized."""
    async with model_rig() as rig:
        with pytest.raises(ApplicationError) as caught:
            await rig.compact(await prepare(rig, compaction=compaction, **lacks))
        assert (caught.value.type, caught.value.non_retryable) == (TRANSCRIPT_MISSING, True)
        assert rig.provider.requests == []


async def test_a_summary_in_the_making_is_an_activity_as_any_other() -> None:
    """An activity that summarizes sends heartbeats, and closes its connection when cancelled."""
    gate, environment = asyncio.Event(), ActivityEnvironment()
    environment.on_heartbeat = lambda *details: gate.set()
    async with model_rig([Reply([gate, "Su", asyncio.Event()])]) as rig:
        running = asyncio.create_task(rig.compact(await prepare(rig), environment=environment))
        request = await rig.provider.request(1)
        await gate.wait()
        environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await request.disconnected.wait()
        assert await warnings(rig) == []


async def test_a_summary_that_cannot_be_cached_is_returned() -> None:
    """A summary that cannot be cached is returned; the next call fills the cache."""
    async with model_rig([Reply(["Sum"])], transcripts=failing(Transcripts(database()), "adding")) as rig:
        assert (await rig.compact(await prepare(rig))).text == "Sum"

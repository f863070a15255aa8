"""What a model call makes of the calls before it: other tries, other runs, summaries, limits of cost."""

import asyncio
import json

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.failures import MODEL_FAILURES
from everloop.stores.leases import Lease, OvertakenError
from everloop.workflows.contract.events import Warned
from everloop.workflows.contract.failures import PRICE_UNKNOWN
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    TextPart,
    Usage,
    UserMessage,
)
from tests.support.rigs.model_rig import PRICE, model_rig
from tests.support.servers.scripted_openai import Reasoning, Refusal, Reply, tool_call

LOST = Reply(["Lost"], ending="cut")


@pytest.mark.parametrize("attempts", [1, 20, 5_000])
@pytest.mark.parametrize(
    ("then", "shown"), [(Reply(["Found"]), ("Found", True)), (Reply([tool_call("search")]), ("", False))]
)
async def test_a_later_call_replaces_the_draft_of_an_earlier_one(
    attempts: int, then: Reply, shown: tuple[str, bool]
) -> None:
    """The fallback's first attempt is newer than the last one of the model before, even without a text."""
    async with model_rig([LOST, then]) as rig:
        await rig.fail(attempt=attempts)
        reply = await rig.run(rig.changed(tries=1))
        assert await rig.answer() == shown
        assert reply.is_published


@pytest.mark.parametrize("why", ["not_found", "timed_out"])
async def test_an_attempt_that_temporal_has_forgotten_is_waited_for(why: str) -> None:
    """It streams on to its end, and the next attempt takes its reply: nobody pays twice."""
    rest, forgotten = asyncio.Event(), ActivityEnvironment()
    async with model_rig([Reply(["All ", rest, "of it"])]) as rig:
        first = await rig.begin(forgotten)
        forgotten.cancel(cancellation_details=ActivityCancellationDetails(**{why: True}))
        second = asyncio.create_task(rig.run(attempt=2))
        await asyncio.wait({first, second}, timeout=0.5)  # until Temporal has had its say
        rest.set()
        assert await first == await second
        assert (await rig.answer(), len(rig.provider.requests)) == (("All of it", True), 1)


async def test_an_attempt_that_was_overtaken_tells_nothing_more() -> None:
    """Another has taken the call over while it was frozen: not a chunk of its text follows, nor its reply."""
    rest = asyncio.Event()
    async with model_rig([Reply(["Old ", rest, "text"]), Reply(["New text"])]) as rig:
        first = await rig.begin()
        await rig.leases.revoke(Lease(rig.task.task_id, f"reply {rig.task.run_id} 1.0", "thief"))
        reply = await rig.run(attempt=2)
        told = await rig.events()
        with pytest.raises(OvertakenError):
            await first
        rest.set()
        assert (reply.text, await rig.answer()) == ("New text", ("New text", True))
        assert await rig.events() == told


@pytest.mark.parametrize("lost", [1, 2])
async def test_an_attempt_after_a_reset_of_the_activity_replaces_the_draft(lost: int) -> None:
    """Temporal then counts attempts from 1 again; neither draft nor note of an earlier one may stay."""
    async with model_rig([*[LOST] * lost, Reply(["Found ", "at ", "last"])]) as rig:
        for _ in range(lost):
            await rig.fail(attempt=1)
        await rig.run(attempt=1)
        assert await rig.answer() == ("Found at last", True)
        assert await rig.note() == ""


async def test_a_later_call_takes_the_note_of_an_earlier_one_back() -> None:
    """The workflow said nothing in between: the status must not go on waiting for the first model."""
    async with model_rig([Refusal(503), Refusal(503), Reply(["Hi"])]) as rig:
        await rig.fail(attempt=7)
        assert "503" in await rig.note()
        await rig.fail(rig.changed(tries=1), attempt=1)
        note = (await rig.view()).status.message
        assert note
        assert note.message_id.endswith("-1001")
        await rig.run(rig.changed(tries=2))
        assert await rig.note() == ""


async def test_an_answer_after_very_many_calls_is_left_to_the_workflow() -> None:
    """Draft numbers end: nobody knows whether the view takes this one, so the workflow completes it."""
    async with model_rig([LOST, Reply(["Found"])]) as rig:
        await rig.fail(rig.changed(tries=10_000), failures=MODEL_FAILURES - 1)
        reply = await rig.run(rig.changed(tries=10_001))
        assert (reply.text, reply.is_published) == ("Found", False)


async def test_a_warning_is_told() -> None:
    """Subscribers learn that another model answers, and why."""
    async with model_rig([Reply(["Hi"])]) as rig:
        await rig.run(rig.changed(warning="gpt failed; asking llama"))
        assert Warned(text="gpt failed; asking llama") in await rig.events()


async def test_a_run_goes_on_from_the_cache_of_the_run_before() -> None:
    """A task that continued as new does not send its transcript again."""
    async with model_rig([Reply(["One"]), Reply(["Two"])]) as rig:
        await rig.run()
        task = rig.task.model_copy(update={"run_id": "next"})
        new = (UserMessage(message_id="more", parts=(TextPart(text="And?"),)),)
        call = rig.changed(task=task, previous_run=rig.task.run_id, length=3, new=new)
        assert (await rig.run(call)).text == "Two"
        contents = [m["content"] for m in rig.provider.requests[1].conversation]
        assert contents == ["Be brief.", "Hi", "One", "And?"]


async def test_the_model_reads_the_summary() -> None:
    """What it covers is not sent; the summary itself is no reply that an earlier attempt left."""
    said = [AssistantMessage(text=str(n)) for n in range(1, 4)]
    async with model_rig([Reply(["Four"])]) as rig:
        await rig.store(*rig.call.new, *said, SummaryMessage(end=3, text="1, 2"))
        assert (await rig.run(rig.changed(length=5, new=()))).text == "Four"
        contents = [m["content"] for m in rig.provider.requests[0].conversation]
        assert contents == ["Be brief.", "Hi", "[Summary of the conversation so far]\n1, 2", "3"]


async def test_a_summary_at_the_position_is_no_reply() -> None:
    """A call to make room that came too late does not stand for the model's reply."""
    async with model_rig([Reply(["Hi"])]) as rig:
        await rig.store_reply(SummaryMessage(end=1))
        assert (await rig.run()).text == "Hi"


@pytest.mark.parametrize(
    ("model", "cost"), [("priced-model", 0.51), ("priced-model-2026-01-01", 0.51), ("other", 0)]
)
async def test_a_reply_has_its_cost(model: str, cost: float) -> None:
    """It comes from the price of the model asked for; without one it is 0."""
    async with model_rig([Reply(["Hi"], usage=(10, 5))]) as rig:
        reply = await rig.run(rig.changed(model=model))
        assert reply.usage == Usage(input_tokens=10, output_tokens=5, cost=cost)


@pytest.mark.parametrize("usage", [None, (0, 0)])
async def test_tokens_that_nobody_counted_are_estimated(usage: tuple[int, int] | None) -> None:
    """At four characters each: text, arguments and reasoning; what they cost is known then."""
    written = (Reasoning("hm, hm"), "1234", tool_call("search", '{"query": "é"}'))
    async with model_rig([Reply(written, usage=usage)]) as rig:
        reply = await rig.run(rig.changed(model="priced-model"))
        prompt = len(json.dumps(rig.provider.requests[0].messages, ensure_ascii=False))
        estimate = Usage(input_tokens=-(-prompt // 4), output_tokens=8)
        assert reply.usage == estimate.model_copy(update={"cost": PRICE.cost(estimate)})


async def test_a_limit_of_cost_needs_a_price() -> None:
    """Nothing is asked of a model whose cost nobody knows; the message says what to set."""
    async with model_rig([Reply(["Hi"])]) as rig:
        failure = await rig.fail(rig.changed(needs_price=True))
        assert (failure.type, failure.non_retryable) == (PRICE_UNKNOWN, True)
        assert "'test-model' is not known: set EVERLOOP_PRICES" in failure.message
        assert rig.provider.requests == []
        assert (await rig.run(rig.changed(needs_price=True, model="priced-model"))).text == "Hi"

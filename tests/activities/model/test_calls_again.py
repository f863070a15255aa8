"""What a model call makes of the calls before it: other tries, other runs, summaries, limits of cost."""

import asyncio
import gc
import json

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.lease import MODEL_LEASE, CallLease, OvertakenError
from everloop.activities.model.failures import MODEL_FAILURES
from everloop.stores.leases import Lease
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.events import ArtifactChunk, StatusChanged, Warned
from everloop.workflows.contract.failures import PRICE_UNKNOWN
from everloop.workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    SummaryMessage,
    TextPart,
    Usage,
    UserMessage,
)
from tests.support.rigs.model_rig import PRICE, ModelBench, model_bench, text, working
from tests.support.servers.scripted_openai import Answer, Reasoning, Refusal, Reply, ScriptedOpenAI, tool_call


def changed(call: CallModelInput, **update: object) -> CallModelInput:
    """Return the call with other fields."""
    return call.model_copy(update=update)


async def fail(
    bench: ModelBench, call: CallModelInput, *, attempt: int = 1, failures: int = 0
) -> ApplicationError:
    """Run an attempt that fails."""
    with pytest.raises(ApplicationError) as caught:
        await bench.run(call, attempt=attempt, failures=failures)
    return caught.value


@pytest.mark.parametrize("attempts", [1, 20, 5_000])
async def test_a_later_call_replaces_the_draft_of_an_earlier_one(attempts: int) -> None:
    """The fallback's first attempt is newer than the last one of the model before."""
    script: list[Answer] = [Reply(["Lost"], ending="cut"), Reply(["Found"])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        await fail(bench, bench.call, attempt=attempts)
        reply = await bench.run(changed(bench.call, tries=1))

        response = await bench.response()
        assert response
        assert response.complete
        assert await bench.response_text() == "Found"
        assert reply.is_published


@pytest.mark.parametrize("why", ["not_found", "timed_out"])
async def test_an_attempt_that_temporal_has_forgotten_is_waited_for(why: str) -> None:
    """It streams on to its end, and the next attempt takes its reply: nobody pays twice."""
    rest = asyncio.Event()
    script: list[Answer] = [Reply(["All ", rest, "of it"])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        forgotten = ActivityEnvironment()
        first = asyncio.create_task(bench.run(environment=forgotten))
        await bench.until(lambda event: isinstance(event, ArtifactChunk))
        forgotten.cancel(
            cancellation_details=ActivityCancellationDetails(
                not_found=why == "not_found", timed_out=why == "timed_out"
            )
        )
        second = asyncio.create_task(bench.run(attempt=2))
        await asyncio.wait({first, second}, timeout=0.5)  # until Temporal has had its say
        rest.set()

        replies = [await first, await second]

        assert replies[0] == replies[1]
        assert (await bench.response_text(), len(provider.requests)) == ("All of it", 1)


async def test_an_attempt_that_was_overtaken_tells_nothing_more() -> None:
    """Another has taken the call over while it was frozen: not a chunk of its text follows, nor its reply."""
    rest = asyncio.Event()
    script: list[Answer] = [Reply(["Old ", rest, "text"]), Reply(["New text"])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        first = asyncio.create_task(bench.run())
        await bench.until(lambda event: isinstance(event, ArtifactChunk))
        name = f"reply {bench.task.run_id} 1.0"
        await bench.leases.revoke(Lease(bench.task.task_id, name, "thief"))
        reply = await bench.run(attempt=2)
        told = await bench.events()
        with pytest.raises(OvertakenError):
            await first
        rest.set()

        assert reply.text == await bench.response_text() == "New text"
        assert await bench.events() == told


async def test_a_cancelled_attempt_that_fails_as_it_stops_is_cancelled() -> None:
    """Redis' client may lose the cancellation, so that a failure comes of it; nobody is told of a defect."""
    begun, defects = asyncio.Event(), list[object]()

    async def fail_as_it_stops() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ApplicationError("refused") from None

    async def attempt() -> None:
        await CallLease(bench.leases, bench.task.task_id, "reply", MODEL_LEASE, is_repeatable=True).hold(
            fail_as_it_stops()
        )

    async def cancel_it() -> None:
        environment = ActivityEnvironment()
        working = asyncio.create_task(environment.run(attempt))
        await begun.wait()
        environment.cancel(cancellation_details=ActivityCancellationDetails(cancel_requested=True))
        with pytest.raises(asyncio.CancelledError):
            await working

    async with ScriptedOpenAI([]) as provider, model_bench(provider) as bench:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: defects.append(context))
        await cancel_it()
        await asyncio.sleep(0)  # the loop itself keeps the task until then
        gc.collect()
        asyncio.get_running_loop().set_exception_handler(None)

    assert not defects


@pytest.mark.parametrize("lost", [1, 2])
async def test_an_attempt_after_a_reset_of_the_activity_replaces_the_draft(lost: int) -> None:
    """Temporal then counts attempts from 1 again; neither draft nor note of an earlier one may stay."""
    cut = [Reply(["Lost ", "once"], ending="cut")] * lost
    script: list[Answer] = [*cut, Reply(["Found ", "at ", "last"])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        for _ in range(lost):
            await fail(bench, bench.call, attempt=1)
        await bench.run(bench.call, attempt=1)

        response = await bench.response()
        assert response
        assert response.complete
        assert await bench.response_text() == "Found at last"
        assert (await bench.view()).status.message is None


async def test_a_later_call_takes_the_draft_of_an_earlier_one_back() -> None:
    """The call before was lost with its worker; this one asks for tools, so there is no answer yet."""
    script: list[Answer] = [Reply(["Lost"], ending="cut"), Reply([tool_call("search")])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        await fail(bench, bench.call, attempt=3)
        await bench.run(changed(bench.call, tries=1))

        response = await bench.response()
        assert response
        assert (await bench.response_text(), response.complete) == ("", False)


async def test_a_later_call_takes_the_note_of_an_earlier_one_back() -> None:
    """The workflow said nothing in between: the status must not go on waiting for the first model."""
    script: list[Answer] = [Refusal(503), Refusal(503), Reply(["Hi"])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        await fail(bench, bench.call, attempt=7)
        assert "503" in text((await bench.view()).status.message)
        await fail(bench, changed(bench.call, tries=1), attempt=1)
        note = (await bench.view()).status.message
        assert note
        assert note.message_id.endswith("-1001")
        await bench.run(changed(bench.call, tries=2))

        assert (await bench.view()).status.message is None


async def test_what_is_said_with_a_later_call_stands_until_the_model_answers() -> None:
    """A status that comes again is known already; only the answer shows that the wait is over."""
    said = AgentMessage(message_id="said", parts=(TextPart(text="asking another model"),))
    status = working(version=2).model_copy(update={"message": said})
    script: list[Answer] = [Refusal(503), Reply(["Hi"])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        await fail(bench, bench.call)
        await bench.run(changed(bench.call, tries=1, version=2, statuses=(status,)))

        view = await bench.view()
        statuses = [event for event in await bench.events() if isinstance(event, StatusChanged)]
        assert [(e.version, e.step) for e in statuses] == [(1, 2), (2, 0), (2, 2001)]
        assert statuses[1].message == said
        assert view.status.message is None
        assert said in view.history


async def test_an_answer_after_very_many_calls_is_left_to_the_workflow() -> None:
    """Draft numbers end: nobody knows whether the view takes this one, so the workflow completes it."""
    script: list[Answer] = [Reply(["Lost"], ending="cut"), Reply(["Found"])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        await fail(bench, changed(bench.call, tries=10_000), failures=MODEL_FAILURES - 1)
        reply = await bench.run(changed(bench.call, tries=10_001))

        assert (reply.text, reply.is_published) == ("Found", False)


async def test_a_warning_is_told() -> None:
    """Subscribers learn that another model answers, and why."""
    async with ScriptedOpenAI([Reply(["Hi"])]) as provider, model_bench(provider) as bench:
        await bench.run(changed(bench.call, warning="gpt failed; asking llama"))

        assert Warned(text="gpt failed; asking llama") in await bench.events()


async def test_a_run_goes_on_from_the_cache_of_the_run_before() -> None:
    """A task that continued as new does not send its transcript again."""
    async with ScriptedOpenAI([Reply(["One"]), Reply(["Two"])]) as provider, model_bench(provider) as bench:
        first = await bench.run()
        task = bench.task.model_copy(update={"run_id": "next"})
        new = (UserMessage(message_id="more", parts=(TextPart(text="And?"),)),)
        call = changed(bench.call, task=task, previous_run=bench.task.run_id, length=3, new=new)

        reply = await bench.run(call)

        assert (first.text, reply.text) == ("One", "Two")
        assert [m["content"] for m in provider.requests[1].conversation] == ["Be brief.", "Hi", "One", "And?"]


async def test_the_model_reads_the_summary() -> None:
    """What it covers is not sent; the summary itself is no reply that an earlier attempt left."""
    said = [AssistantMessage(text=str(n)) for n in range(1, 4)]
    async with ScriptedOpenAI([Reply(["Four"])]) as provider, model_bench(provider) as bench:
        task = bench.task
        await bench.transcripts.put(
            task.task_id, task.run_id, 0, [*bench.call.new, *said, SummaryMessage(end=3, text="1, 2")]
        )
        reply = await bench.run(changed(bench.call, length=5, new=()))
        assert reply.text == "Four"

        contents = [m["content"] for m in provider.requests[0].conversation]
        assert contents == ["Be brief.", "Hi", "[Summary of the conversation so far]\n1, 2", "3"]


async def test_a_summary_at_the_position_is_no_reply() -> None:
    """A call to make room that came too late does not stand for the model's reply."""
    async with ScriptedOpenAI([Reply(["Hi"])]) as provider, model_bench(provider) as bench:
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, 1, SummaryMessage(end=1))

        assert (await bench.run()).text == "Hi"


@pytest.mark.parametrize(
    ("model", "cost"), [("priced-model", 0.51), ("priced-model-2026-01-01", 0.51), ("other", 0)]
)
async def test_a_reply_has_its_cost(model: str, cost: float) -> None:
    """It comes from the price of the model asked for; without one it is 0."""
    async with ScriptedOpenAI([Reply(["Hi"], usage=(10, 5))]) as provider, model_bench(provider) as bench:
        reply = await bench.run(changed(bench.call, model=model))

        assert reply.usage == Usage(input_tokens=10, output_tokens=5, cost=cost)


@pytest.mark.parametrize("usage", [None, (0, 0)])
async def test_tokens_that_nobody_counted_are_estimated(usage: tuple[int, int] | None) -> None:
    """At four characters each: text, arguments and reasoning; what they cost is known then."""
    written = (Reasoning("hm, hm"), "1234", tool_call("search", '{"query": "é"}'))
    async with ScriptedOpenAI([Reply(written, usage=usage)]) as provider, model_bench(provider) as bench:
        reply = await bench.run(changed(bench.call, model="priced-model"))

        prompt = len(json.dumps(provider.requests[0].messages, ensure_ascii=False))
        estimate = Usage(input_tokens=-(-prompt // 4), output_tokens=8)
        assert reply.usage == estimate.model_copy(update={"cost": PRICE.cost(estimate)})


async def test_a_limit_of_cost_needs_a_price() -> None:
    """Nothing is asked of a model whose cost nobody knows; the message says what to set."""
    async with ScriptedOpenAI([Reply(["Hi"])]) as provider, model_bench(provider) as bench:
        failure = await fail(bench, changed(bench.call, needs_price=True))

        assert (failure.type, failure.non_retryable) == (PRICE_UNKNOWN, True)
        assert "'test-model' is not known: set EVERLOOP_PRICES" in failure.message
        assert provider.requests == []
        assert (await bench.run(changed(bench.call, needs_price=True, model="priced-model"))).text == "Hi"

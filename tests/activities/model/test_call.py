"""Model calls: streamed, published, stored, returned once; with the effect of the calls before."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from pydantic import JsonValue
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.model_retries import RETRIES
from everloop.activities.model.request import without_tools
from everloop.models.catalogue import ModelEntry
from everloop.models.interface import ModelRequest
from everloop.stores.scripts import Lease, OvertakenError
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.events import (
    ArtifactChunk,
    ContentCompleted,
    IterationStarted,
    StatusChanged,
    TaskEvent,
    Thought,
    ToolCalled,
    UsageReported,
)
from everloop.workflows.contract.failures import PRICE_UNKNOWN, TRANSCRIPT_MISSING
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    extend_digest,
)
from tests.support.fakes.failing import failing
from tests.support.rigs.model_rig import (
    PRICE,
    QUESTION,
    ModelRig,
    is_chunk,
    model_rig,
    working,
)
from tests.support.servers.scripted_openai import (
    Answer,
    CallFragment,
    Reasoning,
    Refusal,
    Reply,
    Step,
    Whole,
    tool_call,
)
from tests.support.stores import database

SAID = working().model_copy(update={"received": (UserMessage(message_id=QUESTION.message_id, parts=()),)})
"""The status of a first call; its received message is among the new messages of the call."""

SEARCH = ToolCall(id="r00001c01", name="search", arguments="{}")


async def test_an_answer_is_streamed_and_returned_once() -> None:
    """An answer is streamed at once and returned once complete; the next attempt asks no model."""
    gate = asyncio.Event()
    script = [Reply(["Hel", gate, "lo"], usage=(7, 2))]
    async with model_rig(script) as rig:
        rig.call = rig.changed(statuses=(SAID,))
        running = await rig.begin()
        assert await rig.answer() == ("Hel", False)
        gate.set()
        reply = await running
        usage = Usage(input_tokens=7, output_tokens=2, cost=None)
        assert reply == AssistantMessage(
            text="Hello", finish_reason="stop", usage=usage, source="openai/test-model"
        )
        assert UsageReported(iteration=1, usage=usage) in await rig.events()
        assert await rig.run(attempt=2) == reply
        assert await rig.answer() == ("Hello", True)
        assert [event.version for event in await rig.events_of(StatusChanged)] == [1, 1]
        assert len(rig.provider.requests) == 1


def completion(message: dict[str, JsonValue], reason: str | None) -> Whole:
    """Return a chat completion in one piece."""
    choice: JsonValue = {"index": 0, "message": message, "finish_reason": reason}
    return Whole({"id": "w", "model": "m", "choices": [choice], "usage": {"prompt_tokens": 7}})


MESSAGE: dict[str, JsonValue] = {"role": "assistant", "content": "Hello"}
CALL: JsonValue = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
CALLS: dict[str, JsonValue] = {"content": None, "tool_calls": [CALL, CALL]}
FRAGMENTS = [CallFragment(0, "a", "search", "{"), CallFragment(0, None, None, "}")]


@pytest.mark.parametrize(
    ("answer", "text", "calls", "reason"),
    [
        (Reply(["Hel", "lo"], ending="bare"), "Hello", 0, "stop"),
        (completion(MESSAGE, "stop"), "Hello", 0, "stop"),
        (completion(MESSAGE, None), "Hello", 0, "stop"),
        (completion(CALLS, None), "", 2, "tool_calls"),
        (Reply([*FRAGMENTS, CallFragment(1, "b", "search", "{}")]), "", 2, "tool_calls"),
    ],
    ids=["no reason", "no stream", "neither", "calls in one piece", "fragments"],
)
async def test_a_reply_may_be_told_in_several_ways(
    answer: Answer, text: str, calls: int, reason: str
) -> None:
    """Each wire form of a reply becomes the same reply, with a reason of its end.

    Each call gets an id of ours.
    """
    async with model_rig([answer]) as rig:
        reply = await rig.run()
        assert (reply.text, reply.ended_with) == (text, reason)
        assert reply.tool_calls == tuple(
            SEARCH.model_copy(update={"id": f"r00001c0{n}", "repeat": n - 1}) for n in range(1, calls + 1)
        )
        assert [event.call_id for event in await rig.events_of(ToolCalled)] == [
            c.id for c in reply.tool_calls
        ]
        assert await rig.answer() == ((text, True) if text else None)
        assert [event.finish_reason for event in await rig.events_of(ContentCompleted)] == [reason]


async def test_events_come_in_order() -> None:
    """Events are published in order.

    The status, the iteration, thoughts and text as written, then the rest.
    """
    steps: list[Step] = [Reasoning("Hm. "), '<thinking id="a">So', "!</thinking>Yes", ", I do."]
    async with model_rig([Reply(steps)]) as rig:
        await rig.run(rig.changed(statuses=(SAID,)))

        _, status, iteration, *deltas, whole, usage = await rig.events()
        assert status == working().model_copy(update={"received": (QUESTION,)})
        assert iteration == IterationStarted(iteration=1, model="openai/test-model")
        assert whole == ContentCompleted(iteration=1, finish_reason="stop", model="test-model")
        assert isinstance(usage, UsageReported)
        is_text = [isinstance(event, ArtifactChunk) for event in deltas]
        assert is_text == sorted(is_text)
        thoughts = [event for event in deltas if isinstance(event, Thought)]
        ids = ("r00001t01", "a")
        said = {id_: "".join(event.text for event in thoughts if event.thought_id == id_) for id_ in ids}
        assert said == {"r00001t01": "Hm. ", "a": "So!"}
        assert tuple(event.thought_id for event in thoughts if event.last) == ids
        assert await rig.answer() == ("Yes, I do.", True)
        assert (await rig.view()).history == (QUESTION,)


async def test_a_text_before_tool_calls_is_taken_back() -> None:
    """The draft of a text before tool calls is emptied, because it is not the answer."""
    gate = asyncio.Event()
    async with model_rig([Reply(["Let me look", gate, tool_call("search")]), Reply(["Found."])]) as rig:
        running = await rig.begin()
        gate.set()
        reply = await running
        assert reply.text == "Let me look"
        assert await rig.answer() == ("", False)
        await rig.run(await after_tools(rig, reply))
        assert await rig.answer() == ("Found.", True)


async def test_an_answer_that_was_overtaken_is_taken_back() -> None:
    """An answer that a message overtook is taken back, even if the new reply has no text."""
    async with model_rig([Reply(["Old."]), Reply([tool_call("search")])]) as rig:
        await rig.run(rig.follow_up(await rig.run()))
        assert await rig.answer() == ("", False)


ANSWER = AssistantMessage(text="Theirs", finish_reason="stop")
ASKS = AssistantMessage(text="The", tool_calls=(SEARCH,))
REPLIES: Sequence[tuple[AssistantMessage, tuple[str, bool]]] = [
    (ANSWER, ("Theirs", True)),
    (ASKS, ("", False)),
]


@pytest.mark.parametrize(("reply", "shown"), REPLIES, ids=["answer", "tool call"])
async def test_a_stored_reply_is_not_asked_for_again(reply: AssistantMessage, shown: object) -> None:
    """A retry publishes the end of a stored reply without another model call."""
    async with model_rig([Reply(["Hel"], ending="cut")]) as rig:
        await rig.fail(attempt=1)
        await rig.store_reply(reply)
        assert await rig.run(attempt=2) == reply
        assert await rig.answer() == shown
        assert len(rig.provider.requests) == 1


@pytest.mark.parametrize(("reply", "shown"), REPLIES, ids=["answer", "tool call"])
async def test_the_first_reply_stored_counts(reply: AssistantMessage, shown: tuple[str, bool]) -> None:
    """The first stored reply counts; an overlapping attempt drops the text that it streamed."""
    gate = asyncio.Event()
    async with model_rig([Reply(["Ours", gate])]) as rig:
        running = await rig.begin()
        await rig.store_reply(reply)
        gate.set()
        assert await running == reply
        assert (await rig.text("response")) == shown[0]


def is_start(event: TaskEvent) -> bool:
    return isinstance(event, IterationStarted)


async def test_a_cancelled_call_hangs_up() -> None:
    """A cancelled call closes its connection, so that the provider stops writing and billing."""
    script: list[Answer] = [Reply(["Hel", asyncio.Event()]), Reply([asyncio.Event()])]
    async with model_rig(script) as rig:
        for number, seen in ((1, is_chunk), (2, is_start)):
            environment = ActivityEnvironment()
            running = asyncio.create_task(rig.run(environment=environment))
            request = await rig.provider.request(number)
            await rig.until(seen)
            environment.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await request.disconnected.wait()


async def test_a_cache_that_differs_from_the_history_is_sent_again() -> None:
    """A cache that differs from the history is replaced, such as by the error of a late attempt."""
    reply = AssistantMessage(tool_calls=(ToolCall(id="c", name="x", arguments="{}"),))
    good = ToolMessage(call_id="c", name="x", content="lines")
    bad = good.model_copy(update={"content": "the artifact was overtaken", "outcome": "error"})
    async with model_rig([Reply(["Done."])]) as rig:
        await rig.store(QUESTION, reply, bad)
        call = rig.changed(new=(), length=3, digest=extend_digest("", [QUESTION, reply, good]))
        missing = await rig.fail(call)
        assert (missing.type, missing.non_retryable) == (TRANSCRIPT_MISSING, True)
        await rig.store(QUESTION, reply, good)
        assert (await rig.run(call)).text == "Done."
        (request,) = rig.provider.requests
        assert "lines" in str(request.body)
        assert "overtaken" not in str(request.body)


async def test_a_running_call_sends_heartbeats() -> None:
    """A running call sends heartbeats, by which it receives its cancellation."""
    gate, environment = asyncio.Event(), ActivityEnvironment()
    environment.on_heartbeat = lambda *details: gate.set()
    async with model_rig([Reply([gate, "Hi"])]) as rig:
        assert (await rig.run(environment=environment)).text == "Hi"


async def test_a_reply_that_cannot_be_cached_is_returned() -> None:
    """A reply that cannot be cached is returned.

    The workflow publishes it, and the next call fills the cache.
    """
    async with model_rig([Reply(["Hello"])], transcripts=failing(Transcripts(database()), "adding")) as rig:
        reply = await rig.run()
        assert (reply.text, reply.is_published) == ("Hello", False)


async def after_tools(rig: ModelRig, reply: AssistantMessage) -> CallModelInput:
    """Store a result for each call of the reply; return the next model call."""
    results = [ToolMessage(call_id=call.id, name=call.name, content="found") for call in reply.tool_calls]
    await rig.store(*results, start=2)
    return rig.changed(iteration=2, length=2 + len(results), new=())


LOST = Reply(["Lost"], ending="cut")


@pytest.mark.parametrize("attempts", [1, 20, 5_000])
@pytest.mark.parametrize(
    ("then", "shown"), [(Reply(["Found"]), ("Found", True)), (Reply([tool_call("search")]), ("", False))]
)
async def test_a_later_call_replaces_the_draft_of_an_earlier_one(
    attempts: int, then: Reply, shown: tuple[str, bool]
) -> None:
    """A later call replaces an earlier one's draft, such as a fallback's first attempt without a text."""
    async with model_rig([LOST, then]) as rig:
        await rig.fail(attempt=attempts)
        reply = await rig.run(rig.changed(tries=1))
        assert await rig.answer() == shown
        assert reply.is_published


@pytest.mark.parametrize("why", ["not_found", "timed_out"])
async def test_an_attempt_that_temporal_has_forgotten_is_waited_for(why: str) -> None:
    """A retry waits for the running attempt that Temporal timed out, and returns its reply.

    It is paid for once.
    """
    rest, forgotten = asyncio.Event(), ActivityEnvironment()
    async with model_rig([Reply(["All ", rest, "of it"])]) as rig:
        first = await rig.begin(forgotten)
        forgotten.cancel(cancellation_details=ActivityCancellationDetails(**{why: True}))
        second = asyncio.create_task(rig.run(attempt=2))
        await asyncio.wait({first, second}, timeout=0.5)  # until Temporal has timed it out
        rest.set()
        assert await first == await second
        assert (await rig.answer(), len(rig.provider.requests)) == (("All of it", True), 1)


async def test_an_attempt_that_was_overtaken_tells_nothing_more() -> None:
    """An overtaken attempt publishes neither another chunk nor its reply."""
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
    """After a reset of the activity, attempt 1 replaces the draft and the note of the earlier attempts."""
    async with model_rig([*[LOST] * lost, Reply(["Found ", "at ", "last"])]) as rig:
        for _ in range(lost):
            await rig.fail(attempt=1)
        await rig.run(attempt=1)
        assert await rig.answer() == ("Found at last", True)
        assert await rig.note() == ""


async def test_a_later_call_takes_the_note_of_an_earlier_one_back() -> None:
    """A later call takes back the note about the earlier model's wait."""
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
    """After the last possible draft number, the workflow publishes the answer."""
    async with model_rig([LOST, Reply(["Found"])]) as rig:
        await rig.fail(rig.changed(tries=10_000), failures=RETRIES)
        reply = await rig.run(rig.changed(tries=10_001))
        assert (reply.text, reply.is_published) == ("Found", False)


async def test_a_run_goes_on_from_the_cache_of_the_run_before() -> None:
    """A task that continued as new reads its transcript from the cache of the run before."""
    async with model_rig([Reply(["One"]), Reply(["Two"])]) as rig:
        await rig.run()
        task = rig.task.model_copy(update={"run_id": "next"})
        new = (UserMessage(message_id="more", parts=(TextPart(text="And?"),)),)
        call = rig.changed(task=task, previous_run=rig.task.run_id, length=3, new=new)
        assert (await rig.run(call)).text == "Two"
        contents = [m["content"] for m in rig.provider.requests[1].conversation]
        assert contents == ["Be brief.", "Hi", "One", "And?"]


async def test_a_summary_at_the_position_is_no_reply() -> None:
    """A summary stored at the position by a late compaction is not taken for the reply."""
    async with model_rig([Reply(["Hi"])]) as rig:
        await rig.store_reply(SummaryMessage(end=1))
        assert (await rig.run()).text == "Hi"


@pytest.mark.parametrize("usage", [None, (0, 0)])
async def test_tokens_that_nobody_counted_are_estimated(usage: tuple[int, int] | None) -> None:
    """Missing token counts are estimated at four characters each, with arguments and reasoning."""
    written = (Reasoning("hm, hm"), "1234", tool_call("search", '{"query": "é"}'))
    async with model_rig([Reply(written, usage=usage)]) as rig:
        reply = await rig.run(rig.changed(model="priced-model"))
        prompt = len(json.dumps(rig.provider.requests[0].messages, ensure_ascii=False))
        estimate = Usage(input_tokens=-(-prompt // 4), output_tokens=8)
        assert reply.usage == estimate.model_copy(update={"cost": PRICE.cost(estimate)})


async def test_a_limit_of_cost_needs_a_price() -> None:
    """A limit of cost refuses a model without a price before it is asked, and says what to set."""
    async with model_rig([Reply(["Hi"])]) as rig:
        failure = await rig.fail(rig.changed(needs_price=True))
        assert (failure.type, failure.non_retryable) == (PRICE_UNKNOWN, True)
        assert 'is not known: set price of [models."openai/test-model"] in models.toml' in failure.message
        assert rig.provider.requests == []
        assert (await rig.run(rig.changed(needs_price=True, model="priced-model"))).text == "Hi"


async def test_models_settings_do_not_keep_a_task_from_its_answer() -> None:
    """Forced tools in the settings end once the tool was called.

    The last call has no tools, not even the provider's.
    """
    own = ModelSettings(tool_choice="required", provider_tools=[{"type": "web_search"}])
    async with model_rig([Reply([tool_call("search")]), Reply(["Found."])]) as rig:
        rig.know(replace(rig.models.catalogue.providers["openai"], models={"": ModelEntry(settings=own)}))
        asking = await rig.run()
        await rig.store(asking.tool_calls[0].result("found"), start=2)
        await rig.run(rig.changed(iteration=2, length=3, new=()))
        first, second = rig.provider.requests
    assert (first.body["tool_choice"], second.body["tool_choice"]) == ("required", "auto")
    assert without_tools(ModelRequest("m", ()), "three").settings.over(own).provider_tools == ()


async def test_the_last_call_has_no_tools_and_runs_none() -> None:
    """The last call offers no tools, tells the model why, and drops a call that it makes."""
    script = [Reply(["Half of it.", tool_call("search")])]
    forced = ModelSettings(tool_choice="search", parallel_tool_calls=True)
    async with model_rig(script) as rig:
        reply = await rig.run(rig.changed(last="three is the limit", settings=forced))
        assert await rig.answer() == ("Half of it.", True)
        (request,) = rig.provider.requests
    assert request.messages[-1] == {
        "role": "user",
        "content": "[This is the last call: three is the limit. There are no tools any more: answer now "
        "with what you have, and say what is missing.]",
    }
    assert {"tools", "tool_choice", "parallel_tool_calls"} & request.body.keys() == set()
    assert (reply.text, reply.tool_calls, reply.refused) == ("Half of it.", (), "")
    assert reply.closing == "three is the limit; the answer is what there was by then"

"""How a model call runs: streamed, published, stored, returned once."""

import asyncio
from collections.abc import Sequence

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis
from temporalio.testing import ActivityEnvironment

from everloop.stores.transcripts import Transcripts
from everloop.stores.views.redis import RedisTaskViews
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
from everloop.workflows.contract.failures import TRANSCRIPT_MISSING
from everloop.workflows.contract.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    extend_digest,
)
from tests.support.rigs.model_rig import (
    QUESTION,
    ForgetfulTranscripts,
    ModelRig,
    is_chunk,
    model_rig,
    working,
)
from tests.support.servers.scripted_openai import (
    Answer,
    CallFragment,
    Reasoning,
    Reply,
    Step,
    Whole,
    tool_call,
)

SAID = working().model_copy(update={"received": (UserMessage(message_id=QUESTION.message_id, parts=()),)})
"""The status of a first call: what it has received is among what the call sends as new."""

SEARCH = ToolCall(id="r00001c01", name="search", arguments="{}")


async def test_an_answer_is_streamed_and_returned_once(redis: Redis) -> None:
    """Subscribers see its beginning at once, and the whole in the end; the next attempt asks nobody."""
    gate = asyncio.Event()
    script = [Reply(["Hel", gate, "lo"], usage=(7, 2))]
    async with model_rig(script, RedisTaskViews(redis), Transcripts(redis)) as rig:
        rig.call = rig.changed(statuses=(SAID,))
        running = await rig.begin()
        assert await rig.answer() == ("Hel", False)
        gate.set()
        reply = await running
        usage = Usage(input_tokens=7, output_tokens=2)
        assert reply == AssistantMessage(text="Hello", model="test-model", finish_reason="stop", usage=usage)
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
        (Reply(["Hel"], finish_reason="length"), "Hel", 0, "length"),
        (Reply(["Hel"], finish_reason="content_filter"), "Hel", 0, "content_filter"),
        (completion(MESSAGE, "length"), "Hello", 0, "length"),
        (completion(MESSAGE, None), "Hello", 0, "stop"),
        (completion(CALLS, None), "", 2, "tool_calls"),
        (Reply([*FRAGMENTS, CallFragment(1, "b", "search", "{}")]), "", 2, "tool_calls"),
    ],
    ids=["no reason", "cut off", "filtered", "no stream", "neither", "calls in one piece", "fragments"],
)
async def test_a_reply_may_be_told_in_several_ways(
    answer: Answer, text: str, calls: int, reason: str
) -> None:
    """It is put together, shown, and clients hear why it ended; each call has an id of ours."""
    async with model_rig([answer]) as rig:
        reply = await rig.run()
        assert (reply.text, reply.finish_reason) == (text, reason)
        assert reply.tool_calls == tuple(
            SEARCH.model_copy(update={"id": f"r00001c0{n}", "repeat": n - 1}) for n in range(1, calls + 1)
        )
        assert [event.call_id for event in await rig.events_of(ToolCalled)] == [
            c.id for c in reply.tool_calls
        ]
        assert await rig.answer() == ((text, True) if text else None)
        assert [event.finish_reason for event in await rig.events_of(ContentCompleted)] == [reason]


async def test_the_provider_gets_prompt_transcript_and_tools() -> None:
    """A request holds all the model has to know, and asks for usage."""
    async with model_rig([Reply(["Hi"])]) as rig:
        await rig.run(rig.changed(model="gpt"))
        [request] = rig.provider.requests
        assert request.messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ]
        assert request.body["model"] == "gpt"
        assert request.body["stream_options"] == {"include_usage": True}
        assert [t["function"]["name"] for t in request.body["tools"]] == ["search"]  # pyright: ignore  # noqa: PGH003 -- JSON


async def test_events_come_in_order() -> None:
    """The status comes first, then the iteration, thoughts and text as they were written, then the rest."""
    steps: list[Step] = [Reasoning("Hm. "), '<thinking id="a">So', "!</thinking>Yes", ", I do."]
    async with model_rig([Reply(steps)]) as rig:
        await rig.run(rig.changed(statuses=(SAID,)))

        _, status, iteration, *deltas, whole, usage = await rig.events()
        assert status == working().model_copy(update={"received": (QUESTION,)})
        assert iteration == IterationStarted(iteration=1, model="test-model")
        assert whole == ContentCompleted(iteration=1, finish_reason="stop", model="test-model")
        assert isinstance(usage, UsageReported)
        is_text = [isinstance(event, ArtifactChunk) for event in deltas]
        assert is_text == sorted(is_text)
        thoughts = [event for event in deltas if isinstance(event, Thought)]
        said = {
            id_: "".join(event.text for event in thoughts if event.thought_id == id_) for id_ in ("", "a")
        }
        assert said == {"": "Hm. ", "a": "So!"}
        assert [event.thought_id for event in thoughts if event.last] == ["", "a"]
        assert await rig.answer() == ("Yes, I do.", True)
        assert (await rig.view()).history == (QUESTION,)


async def test_a_text_before_tool_calls_is_taken_back() -> None:
    """Nobody knew that it was no answer; its draft is emptied and waits for the answer."""
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
    """A message came before the answer ended: the old one is no result, though the new reply has no text."""
    async with model_rig([Reply(["Old."]), Reply([tool_call("search")])]) as rig:
        await rig.run(rig.follow_up(await rig.run()))
        assert await rig.answer() == ("", False)


async def test_calls_have_ids_of_our_own() -> None:
    """They are made of the place of a call, and are what the provider reads from then on."""
    async with model_rig([Reply([tool_call("search")])] * 2) as rig:
        first = await rig.run()
        second = await rig.run(await after_tools(rig, first))
        assert (first.tool_calls[0].id, second.tool_calls[0].id) == ("r00001c01", "r00003c01")
        result = {"role": "tool", "tool_call_id": "r00001c01", "content": "found"}
        assert rig.provider.requests[1].messages[-1] == result


ANSWER = AssistantMessage(text="Theirs", finish_reason="stop")
ASKS = AssistantMessage(text="The", tool_calls=(SEARCH,))
REPLIES: Sequence[tuple[AssistantMessage, tuple[str, bool]]] = [
    (ANSWER, ("Theirs", True)),
    (ASKS, ("", False)),
]


@pytest.mark.parametrize(("reply", "shown"), REPLIES, ids=["answer", "tool call"])
async def test_a_stored_reply_is_not_asked_for_again(reply: AssistantMessage, shown: object) -> None:
    """The attempt that stored it died before its end was published: the next one publishes it, no more."""
    async with model_rig([Reply(["Hel"], ending="cut")]) as rig:
        await rig.fail(attempt=1)
        await rig.store_reply(reply)
        assert await rig.run(attempt=2) == reply
        assert await rig.answer() == shown
        assert len(rig.provider.requests) == 1


@pytest.mark.parametrize(("reply", "shown"), REPLIES, ids=["answer", "tool call"])
async def test_the_first_reply_stored_counts(reply: AssistantMessage, shown: tuple[str, bool]) -> None:
    """When two attempts overlap, the later one drops what it streamed."""
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
    """The provider sees the connection closed while it still writes, so that it stops, and stops billing."""
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
    """A late attempt at a tool call has put its error there; no model reads it."""
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
    """Temporal learns that the worker lives, and the worker that the call was cancelled."""
    gate, environment = asyncio.Event(), ActivityEnvironment()
    environment.on_heartbeat = lambda *details: gate.set()
    async with model_rig([Reply([gate, "Hi"])]) as rig:
        assert (await rig.run(environment=environment)).text == "Hi"


async def test_a_reply_that_cannot_be_cached_is_returned() -> None:
    """History will hold it, and the next call fills the cache again."""
    async with model_rig([Reply(["Hello"])], transcripts=ForgetfulTranscripts()) as rig:
        assert (await rig.run()).text == "Hello"
        assert await rig.answer() == ("Hello", True)


async def after_tools(rig: ModelRig, reply: AssistantMessage) -> CallModelInput:
    """Store a result for each call of the reply; return the next model call."""
    results = [ToolMessage(call_id=call.id, name=call.name, content="found") for call in reply.tool_calls]
    await rig.store(*results, start=2)
    return rig.changed(iteration=2, length=2 + len(results), new=())

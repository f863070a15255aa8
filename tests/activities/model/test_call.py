"""How a model call runs: streamed, published, stored, returned once."""

import asyncio

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.contextvars import get_contextvars, merge_contextvars
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.stores.leases import Lease
from everloop.stores.transcripts import RedisTranscripts
from everloop.stores.transcripts import Reply as TranscriptReply
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
    TranscriptMessage,
    Usage,
    UserMessage,
    extend_digest,
)
from tests.support.memory.transcripts import MemoryTranscripts
from tests.support.rigs.model_rig import QUESTION, ModelBench, follow_up, model_bench, working
from tests.support.servers.scripted_openai import (
    Answer,
    CallFragment,
    Reasoning,
    Reply,
    ScriptedOpenAI,
    Step,
    Whole,
    tool_call,
)

SAID = working().model_copy(update={"received": (UserMessage(message_id=QUESTION.message_id, parts=()),)})
"""The status of a first call: what it has received is among what the call sends as new."""


def is_chunk(event: TaskEvent) -> bool:
    """Whether an event carries a piece of the answer."""
    return isinstance(event, ArtifactChunk)


def is_start(event: TaskEvent) -> bool:
    """Whether an event tells that a call begins."""
    return isinstance(event, IterationStarted)


async def test_an_answer_is_streamed_and_returned() -> None:
    """The reply comes back whole, and the fold of what was published is the same text, complete."""
    async with (
        ScriptedOpenAI([Reply(["Hel", "lo"], usage=(7, 2))]) as provider,
        model_bench(provider) as bench,
    ):
        reply = await bench.run()

        assert reply == AssistantMessage(
            text="Hello",
            model="test-model",
            finish_reason="stop",
            usage=Usage(input_tokens=7, output_tokens=2),
        )
        response = await bench.response()
        assert response
        assert response.complete
        assert await bench.response_text() == "Hello"
        assert UsageReported(iteration=1, usage=reply.usage) in await bench.events()


MESSAGE: dict[str, JsonValue] = {"role": "assistant", "content": "Hello"}
USED: dict[str, JsonValue] = {"prompt_tokens": 7, "completion_tokens": 2}
CALL: dict[str, JsonValue] = {
    "id": "c1",
    "type": "function",
    "function": {"name": "search", "arguments": '{"query": "x"}'},
}


def completion(message: dict[str, JsonValue], reason: str | None) -> Whole:
    """Return a chat completion in one piece."""
    choice: JsonValue = {"index": 0, "message": message, "finish_reason": reason}
    return Whole({"id": "w", "model": "m", "choices": [choice], "usage": USED})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Reply(["Hel", "lo"], ending="bare"), "stop"),
        (completion(MESSAGE, "length"), "length"),
        (completion(MESSAGE, None), "stop"),
    ],
    ids=["no finish reason", "no stream", "neither"],
)
async def test_a_reply_may_be_told_in_other_ways(answer: Answer, reason: str) -> None:
    """A stream that says it is done, and not why; a completion in one piece where a stream was asked for."""
    async with ScriptedOpenAI([answer]) as provider, model_bench(provider) as bench:
        reply = await bench.run()

        assert (reply.text, reply.finish_reason) == ("Hello", reason)
        assert await bench.response_text() == "Hello"


async def test_tool_calls_may_come_in_one_piece() -> None:
    """Also several at once."""
    message: dict[str, JsonValue] = {"content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]}
    async with ScriptedOpenAI([completion(message, None)]) as provider, model_bench(provider) as bench:
        reply = await bench.run()

        assert [(call.name, call.arguments) for call in reply.tool_calls] == [
            ("search", '{"query": "x"}')
        ] * 2
        assert reply.finish_reason == "tool_calls"


async def test_the_provider_gets_prompt_transcript_and_tools() -> None:
    """A request holds all the model has to know, and asks for usage."""
    async with ScriptedOpenAI([Reply(["Hi"])]) as provider, model_bench(provider) as bench:
        await bench.run(bench.call.model_copy(update={"model": "gpt"}))

        [request] = provider.requests
        assert request.messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ]
        assert request.body["model"] == "gpt"
        assert request.body["stream_options"] == {"include_usage": True}
        assert [t["function"]["name"] for t in request.body["tools"]] == ["search"]  # pyright: ignore  # noqa: PGH003 -- JSON


async def test_the_first_delta_is_published_at_once() -> None:
    """A subscriber sees the beginning while the provider still writes."""
    gate = asyncio.Event()
    async with ScriptedOpenAI([Reply(["Hel", gate, "lo"])]) as provider, model_bench(provider) as bench:
        running = asyncio.create_task(bench.run())
        await bench.until(is_chunk)

        assert await bench.response_text() == "Hel"
        gate.set()
        await running
        assert await bench.response_text() == "Hello"


async def test_events_come_in_order() -> None:
    """The status comes first, then the iteration, thoughts and text as they were written, then the rest."""
    steps: list[Step] = [Reasoning("Hm. "), '<thinking id="a">So', "!</thinking>Yes", ", I do."]
    async with ScriptedOpenAI([Reply(steps)]) as provider, model_bench(provider) as bench:
        await bench.run(bench.call.model_copy(update={"statuses": (SAID,)}))

        _, status, iteration, *deltas, whole, usage = await bench.events()
        assert status == working().model_copy(update={"received": (QUESTION,)})
        assert iteration == IterationStarted(iteration=1, model="test-model")
        assert whole == ContentCompleted(iteration=1, finish_reason="stop", model="test-model")
        assert isinstance(usage, UsageReported)
        is_text = [isinstance(event, ArtifactChunk) for event in deltas]
        assert is_text == sorted(is_text)
        thoughts = [(e.thought_id, e.text) for e in deltas if isinstance(e, Thought)]
        assert "".join(text for id_, text in thoughts if not id_) == "Hm. "
        assert "".join(text for id_, text in thoughts if id_ == "a") == "So!"
        assert [e.thought_id for e in deltas if isinstance(e, Thought) and e.last] == ["", "a"]
        assert await bench.response_text() == "Yes, I do."
        assert (await bench.view()).history == (QUESTION,)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_clients_hear_why_a_reply_ended(reason: str) -> None:
    """An answer that was cut off looks like any other."""
    answer = Reply(["Hel"], finish_reason=reason)
    async with ScriptedOpenAI([answer]) as provider, model_bench(provider) as bench:
        await bench.run()

        whole = ContentCompleted(iteration=1, finish_reason=reason, model="test-model")
        assert whole in await bench.events()


async def test_parallel_tool_calls_come_in_fragments() -> None:
    """Each call is put together, returned and shown."""
    steps = [
        CallFragment(0, "a", "search", '{"query":'),
        CallFragment(0, None, None, '"x"}'),
        CallFragment(1, "b", "search", "{}"),
    ]
    async with ScriptedOpenAI([Reply(steps)]) as provider, model_bench(provider) as bench:
        reply = await bench.run()

        assert reply.tool_calls == (
            ToolCall(id="r00001c01", name="search", arguments='{"query":"x"}'),
            ToolCall(id="r00001c02", name="search", arguments="{}"),
        )
        assert [e.call_id for e in await bench.events() if isinstance(e, ToolCalled)] == [
            "r00001c01",
            "r00001c02",
        ]
        assert await bench.response() is None


async def test_a_text_before_tool_calls_is_taken_back() -> None:
    """Nobody knew that it was no answer; its draft is emptied and waits for the answer."""
    gate = asyncio.Event()
    script = [Reply(["Let me look", gate, tool_call("search")]), Reply(["Found."])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        running = asyncio.create_task(bench.run())
        await bench.until(is_chunk)
        gate.set()
        reply = await running

        response = await bench.response()
        assert reply.text == "Let me look"
        assert response
        assert not response.complete
        assert await bench.response_text() == ""
        await bench.run(await after_tools(bench, reply))
        assert await bench.response_text() == "Found."


async def test_an_answer_that_was_overtaken_is_taken_back() -> None:
    """A message came before the answer ended: the old one is no result, though the new reply has no text."""
    script = [Reply(["Old."]), Reply([tool_call("search")])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        bench.call = follow_up(bench.call, await bench.run())
        await bench.run()

        response = await bench.response()
        assert response
        assert (await bench.response_text(), response.complete) == ("", False)


async def test_log_lines_name_their_task() -> None:
    """Whatever a model call logs carries the ids of its task and context."""
    async with ScriptedOpenAI([Reply(["Hi"])]) as provider, model_bench(provider) as bench:
        with capture_logs([merge_contextvars]) as lines:
            await bench.run()

    (line,) = [line for line in lines if line["event"] == "model replied"]
    assert (line["task_id"], line["context_id"]) == (bench.task.task_id, bench.task.context_id)
    assert "task_id" not in get_contextvars()


async def test_calls_have_ids_of_our_own() -> None:
    """They are made of the place of a call, and are what the provider reads from then on."""
    script = [Reply([tool_call("search")]), Reply([tool_call("search")])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        first = await bench.run()
        second = await bench.run(await after_tools(bench, first))

        assert first.tool_calls[0].id == "r00001c01"
        assert second.tool_calls[0].id == "r00003c01"
        assert provider.requests[1].messages[-1] == {
            "role": "tool",
            "tool_call_id": "r00001c01",
            "content": "found",
        }


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (AssistantMessage(text="Hello", finish_reason="stop"), "Hello"),
        (
            AssistantMessage(
                text="Hel", tool_calls=(ToolCall(id="r00001c01", name="search", arguments="{}"),)
            ),
            "",
        ),
    ],
    ids=["answer", "tool call"],
)
async def test_a_stored_reply_is_not_asked_for_again(reply: AssistantMessage, text: str) -> None:
    """The attempt that stored it died before its end was published: the next one publishes it, no more."""
    async with ScriptedOpenAI([Reply(["Hel"], ending="cut")]) as provider, model_bench(provider) as bench:
        with pytest.raises(Exception, match="no connection"):
            await bench.run(attempt=1)
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, 1, reply)

        assert await bench.run(attempt=2) == reply

        response = await bench.response()
        assert len(provider.requests) == 1
        assert response
        assert await bench.response_text() == text
        assert response.complete is not bool(reply.tool_calls)


async def test_a_finished_call_that_runs_again_changes_nothing() -> None:
    """The worker died before Temporal heard of the end."""
    async with ScriptedOpenAI([Reply(["Hello"])]) as provider, model_bench(provider) as bench:
        first = await bench.run(attempt=1)
        second = await bench.run(attempt=2)

        assert first == second
        assert len(provider.requests) == 1
        assert await bench.response_text() == "Hello"


@pytest.mark.parametrize(
    ("winner", "text"),
    [
        (AssistantMessage(text="Theirs", finish_reason="stop"), "Theirs"),
        (AssistantMessage(tool_calls=(ToolCall(id="r00001c01", name="search", arguments="{}"),)), ""),
    ],
    ids=["answer", "tool call"],
)
async def test_the_first_reply_stored_counts(winner: AssistantMessage, text: str) -> None:
    """When two attempts overlap, the later one drops what it streamed."""
    gate = asyncio.Event()
    async with ScriptedOpenAI([Reply(["Ours", gate])]) as provider, model_bench(provider) as bench:
        running = asyncio.create_task(bench.run())
        await bench.until(is_chunk)
        await bench.transcripts.put_reply(bench.task.task_id, bench.task.run_id, 1, winner)
        gate.set()

        assert await running == winner
        assert await bench.response_text() == text


async def test_a_cancelled_call_hangs_up() -> None:
    """The provider sees the connection closed while it still writes, so that it stops, and stops billing."""
    script: list[Answer] = [Reply(["Hel", asyncio.Event()]), Reply([asyncio.Event()])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        for number, seen in ((1, is_chunk), (2, is_start)):
            environment = ActivityEnvironment()
            running = asyncio.create_task(bench.run(environment=environment))
            request = await provider.request(number)
            await bench.until(seen)

            environment.cancel()

            with pytest.raises(asyncio.CancelledError):
                await running
            await request.disconnected.wait()


async def test_a_cache_that_differs_from_the_history_is_sent_again() -> None:
    """A late attempt at a tool call has put its error there; no model reads it."""
    reply = AssistantMessage(tool_calls=(ToolCall(id="c", name="x", arguments="{}"),))
    good = ToolMessage(call_id="c", name="x", content="lines")
    bad = good.model_copy(update={"content": "the artifact was overtaken", "outcome": "error"})
    history: list[TranscriptMessage] = [QUESTION, reply, good]
    async with ScriptedOpenAI([Reply(["Done."])]) as provider, model_bench(provider) as bench:
        place = (bench.task.task_id, bench.task.run_id)
        await bench.transcripts.put(*place, 0, [QUESTION, reply, bad])
        call = bench.call.model_copy(update={"new": (), "length": 3, "digest": extend_digest("", history)})

        with pytest.raises(ApplicationError) as missing:
            await bench.run(call)
        assert (missing.value.type, missing.value.non_retryable) == (TRANSCRIPT_MISSING, True)
        await bench.transcripts.put(*place, 0, history)
        assert (await bench.run(call)).text == "Done."

        (request,) = provider.requests
        assert "lines" in str(request.body)
        assert "overtaken" not in str(request.body)


async def test_a_running_call_sends_heartbeats() -> None:
    """Temporal learns that the worker lives, and the worker that the call was cancelled."""
    gate = asyncio.Event()
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: gate.set()
    async with ScriptedOpenAI([Reply([gate, "Hi"])]) as provider, model_bench(provider) as bench:
        assert (await bench.run(environment=environment)).text == "Hi"


async def test_a_reply_that_cannot_be_cached_is_returned() -> None:
    """History will hold it, and the next call fills the cache again."""
    async with (
        ScriptedOpenAI([Reply(["Hello"])]) as provider,
        model_bench(provider, transcripts=ForgetfulTranscripts()) as bench,
    ):
        assert (await bench.run()).text == "Hello"
        assert await bench.response_text() == "Hello"


async def test_a_call_works_on_redis(redis_url: str) -> None:
    """The same on the stores of production."""
    gate = asyncio.Event()
    async with (
        Redis.from_url(redis_url, decode_responses=True) as redis,
        ScriptedOpenAI([Reply(["Hel", gate, "lo"])]) as provider,
        model_bench(provider, RedisTaskViews(redis), RedisTranscripts(redis)) as bench,
    ):
        running = asyncio.create_task(bench.run(bench.call.model_copy(update={"statuses": (SAID,)})))
        await bench.until(is_chunk)
        assert await bench.response_text() == "Hel"
        gate.set()
        first = await running
        second = await bench.run(attempt=2)

        response = await bench.response()
        assert first == second
        assert response
        assert response.complete
        assert await bench.response_text() == "Hello"
        assert [e.version for e in await bench.events() if isinstance(e, StatusChanged)] == [1, 1]


class ForgetfulTranscripts(MemoryTranscripts):
    """Loses its connection when a reply is to be stored."""

    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: TranscriptReply, lease: Lease | None = None
    ) -> TranscriptReply:
        raise RedisConnectionError


async def after_tools(bench: ModelBench, reply: AssistantMessage) -> CallModelInput:
    """Store a result for each call of the reply; return the next model call."""
    results = [ToolMessage(call_id=c.id, name=c.name, content="found") for c in reply.tool_calls]
    await bench.transcripts.put(bench.task.task_id, bench.task.run_id, 2, results)
    return bench.call.model_copy(update={"iteration": 2, "length": 2 + len(results), "new": ()})

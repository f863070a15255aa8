"""What a model call does when the provider, a store or the worker fails."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta

import pytest
from openai import AsyncOpenAI
from pydantic import JsonValue
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.call import OpenAIModel
from everloop.activities.model.failures import MODEL_FAILURES
from everloop.activities.model.provider import LONGEST_REPLY, ModelProvider
from everloop.stores.leases import Lease
from everloop.workflows.contract.events import ArtifactChunk, Resumed, RetryScheduled, TaskEvent
from everloop.workflows.contract.failures import (
    AGENT_UNKNOWN,
    CONTEXT_TOO_LONG,
    MODEL_REFUSED,
    MODEL_UNAVAILABLE,
    TRANSCRIPT_MISSING,
)
from everloop.workflows.contract.tasks import TaskState
from everloop.workflows.scope import model_call
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.rigs.model_rig import ModelBench, follow_up, model_bench, text, working
from tests.support.servers.scripted_openai import (
    Answer,
    Raw,
    Refusal,
    Reply,
    ScriptedOpenAI,
    Whole,
    tool_call,
)


def _call_delta(call: JsonValue) -> str:
    return json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]})


ERROR_EVENT = Raw(json.dumps({"error": {"message": "overloaded", "code": "server_error"}}))


async def failure_of(bench: ModelBench, *, attempt: int = 1, failures: int = 0) -> ApplicationError:
    """Run an attempt that fails."""
    with pytest.raises(ApplicationError) as caught:
        await bench.run(attempt=attempt, failures=failures)
    return caught.value


def port(client: AsyncOpenAI, bench: ModelBench, default_model: str | None) -> OpenAIModel:
    """Return a port to another provider, on the stores of the bench."""
    provider = ModelProvider(client, default_model)
    return bench.port_to(provider)


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        (Refusal(401, "invalid_api_key", "wrong key sk-secret"), MODEL_REFUSED, False),
        (Refusal(404, "model_not_found"), MODEL_REFUSED, False),
        (Refusal(429, "insufficient_quota"), MODEL_REFUSED, False),
        (Refusal(400, "context_length_exceeded"), CONTEXT_TOO_LONG, False),
        (Refusal(429), MODEL_UNAVAILABLE, True),
        (Refusal(500), MODEL_UNAVAILABLE, True),
        (Reply(["Hel"], ending="cut"), MODEL_UNAVAILABLE, True),
        (Reply(["Hel"], ending="quiet"), MODEL_UNAVAILABLE, True),
        (Reply([], ending="quiet"), MODEL_UNAVAILABLE, True),
        (Reply(["Hel\ndata: [DONE]"], ending="quiet"), MODEL_UNAVAILABLE, True),
        (Reply(["Hel", ERROR_EVENT]), MODEL_UNAVAILABLE, True),
        (Reply(["Hel", Raw("{no JSON")]), MODEL_UNAVAILABLE, True),
        (Reply([Raw('"no chunk"')]), MODEL_UNAVAILABLE, True),
        (Reply([Raw('{"choices": [{"delta": {"content": ["a", "list"]}}]}')]), MODEL_UNAVAILABLE, True),
        (Reply([tool_call("")]), MODEL_UNAVAILABLE, True),
        (Reply([Raw("[" * 10_000)]), MODEL_UNAVAILABLE, True),
        (Reply([Raw(_call_delta({"id": "a", "function": {"name": 5}}))]), MODEL_UNAVAILABLE, True),
        (
            Reply([Raw(_call_delta({"function": {"name": "f", "arguments": {"a": 1}}}))]),
            MODEL_UNAVAILABLE,
            True,
        ),
    ],
    ids=lambda value: repr(value) if isinstance(value, Refusal | Reply) else "",
)
async def test_a_provider_failure_has_a_name(answer: Answer, kind: str, *, retryable: bool) -> None:
    """What failed decides whether it is tried again; neither key nor provider's text reach the history."""
    async with ScriptedOpenAI([answer]) as provider, model_bench(provider) as bench:
        failure = await failure_of(bench)

        assert (failure.type, failure.non_retryable) == (kind, not retryable)
        assert "sk-secret" not in str(failure)
        assert failure.__suppress_context__
        assert failure.__cause__ is None
        assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (Whole({"status": "ok"}), "JSON that is no chat completion"),
        (Whole([]), "JSON that is no chat completion"),
        (Reply([], ending="bare"), "without a reply"),
    ],
    ids=["another object", "a list", "no reply"],
)
async def test_what_is_no_reply_is_called_what_it_is(answer: Answer, named: str) -> None:
    """Whoever reads it knows where to look."""
    async with ScriptedOpenAI([answer]) as provider, model_bench(provider) as bench:
        failure = await failure_of(bench)

        assert named in failure.message


async def test_a_wait_is_shown() -> None:
    """Subscribers and the status message say what the task waits for, and how long."""
    script = [Refusal(429, headers={"Retry-After": "3"})]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        await bench.views.publish(bench.task.task_id, bench.task.run_id, [working()])
        failure = await failure_of(bench)

        reason = "the provider limits the rate of requests (429)"
        status = (await bench.view()).status
        delay = failure.next_retry_delay
        assert delay
        assert timedelta(seconds=3) <= delay <= timedelta(seconds=3.3)
        retry = RetryScheduled(attempt=1, reason=reason, delay=delay.total_seconds())
        assert retry in await bench.events()
        assert status.state is TaskState.WORKING
        assert text(status.message) == f"waiting for the model: {reason}; retry in 3 s"


async def test_a_recovery_clears_the_status() -> None:
    """The note of the wait is taken back when the provider answers, and the draft is replaced."""
    script: list[Answer] = [Reply(["Hel"], ending="cut"), Refusal(503), Reply(["Hello"])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        await failure_of(bench, attempt=1)
        first = (await bench.view()).status
        await failure_of(bench, attempt=2)
        second = (await bench.view()).status
        await bench.run(attempt=3)

        assert text(first.message).startswith("waiting for the model: no connection")
        assert text(second.message).startswith("waiting for the model: the provider failed (503)")
        assert (await bench.view()).status.message is None
        assert await bench.response_text() == "Hello"
        resumed = [event for event in await bench.events() if isinstance(event, Resumed)]
        assert resumed == [Resumed(after="attempt", attempt=2), Resumed(after="attempt", attempt=3)]


async def test_a_lost_attempt_is_replaced() -> None:
    """The worker was killed in the middle of a text; the next attempt's answer stands alone."""
    gate = asyncio.Event()
    async with (
        ScriptedOpenAI([Reply(["Lost", gate]), Reply(["Found"])]) as provider,
        model_bench(provider) as bench,
    ):
        lost = asyncio.create_task(bench.run(attempt=1))
        await bench.until(lambda event: isinstance(event, ArtifactChunk))
        lost.cancel()
        await asyncio.wait([lost])

        await bench.run(attempt=2)

        assert await bench.response_text() == "Found"


async def test_a_call_that_is_cancelled_before_it_reads_hangs_up() -> None:
    """The provider has begun to answer, and Redis keeps the attempt waiting: its stream is closed too."""
    async with (
        ScriptedOpenAI([Reply(["Hel", asyncio.Event()])]) as provider,
        model_bench(provider, FlakyViews()) as bench,
    ):
        assert isinstance(bench.views, FlakyViews)
        bench.views.hangs_at = 1
        running = asyncio.create_task(bench.run(attempt=2))
        await bench.views.hanging.wait()
        running.cancel()
        await asyncio.wait([running])

        await provider.requests[0].disconnected.wait()


async def test_only_failures_of_the_provider_are_counted() -> None:
    """After many attempts that Redis or dead workers cost, the provider still has all its chances."""
    counts: list[dict[str, int]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = counts.append
    async with ScriptedOpenAI([Refusal(503)]) as provider, model_bench(provider) as bench:
        with pytest.raises(ApplicationError) as caught:
            await bench.run(attempt=10 * MODEL_FAILURES, failures=2, environment=environment)

        assert not caught.value.non_retryable
        assert counts == [{"failed": 3}]


async def test_answers_that_are_no_reply_are_counted_for_themselves() -> None:
    """A bad hour of the provider does not use up the few chances that these have, nor the other way round."""
    counts: list[dict[str, int]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = counts.append
    async with ScriptedOpenAI([Whole([])]) as provider, model_bench(provider) as bench:
        with pytest.raises(ApplicationError) as caught:
            await bench.run(attempt=6, failures=5, environment=environment)

        assert not caught.value.non_retryable
        assert counts == [{"failed": 5, "unreadable": 1}]


async def test_a_reply_without_end_is_a_counted_failure() -> None:
    """It ends before Temporal ends the activity, uncounted; the provider hears that nobody listens."""
    counts: list[dict[str, int]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = counts.append
    endless = Reply(["Hel", asyncio.Event()])
    async with ScriptedOpenAI([endless]) as provider, model_bench(provider) as bench:
        async with AsyncOpenAI(api_key="k", base_url=provider.base_url, max_retries=0) as client:
            models = ModelProvider(client, "m", longest_reply=timedelta(seconds=1))
            hurried = bench.port_to(models)
            with pytest.raises(ApplicationError, match="within 1 s") as caught:
                await environment.run(hurried.call_model, bench.call)
        await provider.requests[0].disconnected.wait()

    assert (caught.value.type, caught.value.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert counts[-1] == {"failed": 1}


def test_a_reply_has_less_time_than_its_activity() -> None:
    """Otherwise Temporal would end it first."""
    limit = model_call(None, "").get("start_to_close_timeout")
    assert limit
    assert limit > LONGEST_REPLY


async def test_the_last_failure_takes_the_draft_back() -> None:
    """A call that ends for good leaves no half answer and is not tried again."""
    async with ScriptedOpenAI([Reply(["Hel"], ending="cut")]) as provider, model_bench(provider) as bench:
        failure = await failure_of(bench, failures=MODEL_FAILURES - 1)

        assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, True)
        assert await bench.response_text() == ""


async def test_a_refused_follow_up_takes_the_older_answer_back() -> None:
    """The task failed: what it answered to an earlier message is not its result."""
    async with ScriptedOpenAI([Reply(["Old."]), Refusal(401)]) as provider, model_bench(provider) as bench:
        bench.call = follow_up(bench.call, await bench.run())
        await failure_of(bench)

        response = await bench.response()
        assert response
        assert (await bench.response_text(), response.complete) == ("", False)


async def test_an_unreachable_provider_is_waited_for() -> None:
    """No connection at all is retryable."""
    async with ScriptedOpenAI() as provider, model_bench(provider) as bench:
        pass
    async with AsyncOpenAI(api_key="k", base_url=provider.base_url, max_retries=0) as client:
        bench.port = port(client, bench, "m")
        failure = await failure_of(bench)

    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)


async def test_an_unknown_agent_may_be_known_elsewhere() -> None:
    """Another worker may have the agent: retryable."""
    async with ScriptedOpenAI() as provider, model_bench(provider) as bench:
        bench.call = bench.call.model_copy(
            update={"task": bench.task.model_copy(update={"agent_id": "stranger"})}
        )
        failure = await failure_of(bench)

        assert (failure.type, failure.non_retryable) == (AGENT_UNKNOWN, False)
        assert provider.requests == []


async def test_a_model_must_be_named() -> None:
    """Neither the agent nor the worker names a model: the message says where to."""
    async with ScriptedOpenAI() as provider, model_bench(provider) as bench:
        async with AsyncOpenAI(api_key="k", base_url=provider.base_url) as client:
            bench.port = port(client, bench, None)
            failure = await failure_of(bench)

        assert (failure.type, failure.non_retryable) == (MODEL_REFUSED, True)
        assert "EVERLOOP_MODEL" in failure.message


async def test_a_transcript_with_a_gap_is_not_sent() -> None:
    """The model never answers half a conversation: the workflow has to send it again."""
    async with ScriptedOpenAI() as provider, model_bench(provider) as bench:
        bench.call = bench.call.model_copy(update={"length": 2})
        failure = await failure_of(bench)

        assert (failure.type, failure.non_retryable) == (TRANSCRIPT_MISSING, True)
        assert provider.requests == []


async def test_nothing_is_asked_before_the_status_is_out() -> None:
    """While Redis does not answer, no call is made whose status nobody could see; Temporal retries."""
    async with ScriptedOpenAI() as provider, model_bench(provider, FlakyViews()) as bench:
        assert isinstance(bench.views, FlakyViews)
        bench.views.fails_from = 0
        with pytest.raises(RedisConnectionError):
            await bench.run()

        assert provider.requests == []


async def test_an_outage_costs_deltas_only() -> None:
    """Redis goes away when the stream has begun: the call ends well; the workflow publishes the answer."""
    async with ScriptedOpenAI([Reply(["Hello"])]) as provider, model_bench(provider, FlakyViews()) as bench:
        assert isinstance(bench.views, FlakyViews)
        bench.views.fails_from = 1

        assert (await bench.run()).text == "Hello"


async def test_a_publish_that_failed_unseen_leaves_no_scar() -> None:
    """The first delta took effect though its answer was lost; the whole text stands there in the end."""
    gate = asyncio.Event()
    async with (
        ScriptedOpenAI([Reply(["Hel", gate, "lo"])]) as provider,
        model_bench(provider, FlakyViews()) as bench,
    ):
        assert isinstance(bench.views, FlakyViews)
        bench.views.loses_answer_of = 1
        running = asyncio.create_task(bench.run())
        await bench.until(lambda event: isinstance(event, ArtifactChunk))
        gate.set()
        await running

        response = await bench.response()
        assert response
        assert response.complete
        assert await bench.response_text() == "Hello"


class FlakyViews(MemoryTaskViews):
    """Fails from the given publish on, hangs at one, or loses the answer of one; counts from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs_at: int | None = None
        self.hanging = asyncio.Event()
        self.fails_from: int | None = None
        self.loses_answer_of: int | None = None
        self._publishes = 0

    async def publish(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent], lease: Lease | None = None
    ) -> Sequence[TaskState]:
        number, self._publishes = self._publishes, self._publishes + 1
        if self.fails_from is not None and number >= self.fails_from:
            raise RedisConnectionError
        if number == self.hangs_at:
            self.hanging.set()
            await asyncio.Event().wait()
        taken = await super().publish(task_id, run_id, events, lease)
        if number == self.loses_answer_of:
            raise RedisConnectionError
        return taken

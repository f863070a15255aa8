"""Model calls during failures of the provider, a store or the worker."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.testing import ActivityEnvironment

from everloop.activities.model.model_retries import RETRIES
from everloop.activities.model.models import LONGEST_REPLY
from everloop.models.catalogue import ModelEntry
from everloop.workflows.contract.events import Resumed, RetryScheduled
from everloop.workflows.contract.failures import (
    AGENT_UNKNOWN,
    CONTEXT_TOO_LONG,
    MODEL_REFUSED,
    MODEL_UNAVAILABLE,
    TRANSCRIPT_MISSING,
)
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage
from everloop.workflows.contract.tasks import TaskState
from everloop.workflows.scope import model_call
from tests.support.fakes.failing import failing
from tests.support.rigs.model_rig import QUESTION, model_rig, working
from tests.support.servers.scripted_openai import Answer, Raw, Refusal, Reply, Step, Whole, Wire, tool_call


def call_delta(call: JsonValue) -> Raw:
    return Raw(json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}))


REFUSED: Sequence[tuple[Refusal, str]] = [
    (Refusal(401, "invalid_api_key", "wrong key sk-secret"), MODEL_REFUSED),
    (Refusal(404, "model_not_found"), MODEL_REFUSED),
    (Refusal(429, "insufficient_quota"), MODEL_REFUSED),
    (Refusal(400, "context_length_exceeded"), CONTEXT_TOO_LONG),
]
UNAVAILABLE: Sequence[Answer] = [
    Refusal(429),
    Refusal(500),
    Reply(["Hel"], ending="cut"),
    Reply(ending="quiet"),
]
STEPS: Sequence[Step] = [
    Raw(json.dumps({"error": {"message": "overloaded", "code": "server_error"}})),
    Raw("{no JSON"),
    Raw('"no chunk"'),
    Raw('{"choices": [{"delta": {"content": ["a", "list"]}}]}'),
    Raw("[" * 10_000),
    tool_call(""),
    call_delta({"id": "a", "function": {"name": 5}}),
]
"""Steps of streams that are unreadable after any beginning."""


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        *REFUSED,
        *((answer, MODEL_UNAVAILABLE) for answer in UNAVAILABLE),
        *((Reply(["Hel", step]), MODEL_UNAVAILABLE) for step in STEPS),
        (Reply(["Hel"], ending="quiet"), MODEL_UNAVAILABLE),
        (Reply(["Hel\ndata: [DONE]"], ending="quiet"), MODEL_UNAVAILABLE),
    ],
)
async def test_a_provider_failure_has_a_name(answer: Answer, kind: str) -> None:
    """A provider's failure has a kind that decides on a retry.

    The history has neither the key nor the provider's text.
    """
    async with model_rig([answer]) as rig:
        failure = await rig.fail()
        assert (failure.type, failure.non_retryable) == (kind, kind != MODEL_UNAVAILABLE)
        assert "sk-secret" not in str(failure)
        assert failure.__suppress_context__
        assert failure.__cause__ is None
        assert len(rig.provider.requests) == 1


@pytest.mark.parametrize("wrong", [{"key": "sk-\u00e9cret"}, {"headers": {"x": "sk-\u00e9cret"}}])
@pytest.mark.parametrize("kind", ["chat", "responses"])
async def test_what_else_a_client_raises_is_counted_as_no_reply(kind: str, wrong: dict[str, Any]) -> None:
    """Any other error of a client is an invalid reply.

    Its text is left out, as it may quote the prompt or the key.
    """
    async with model_rig(kind=kind, **wrong) as rig:
        failure = await rig.fail()
    assert failure.type == MODEL_UNAVAILABLE
    assert failure.message.startswith("the client of the provider 'openai' failed (UnicodeEncodeError)")
    assert failure.__cause__ is None


@pytest.mark.parametrize("window", [128_000, None])
async def test_a_conversation_that_is_too_long_names_its_largest_result(window: int | None) -> None:
    """The error of a long conversation names the largest result's tool, and the model's window if known."""
    results = [
        ToolMessage(call_id=name, name=name, content="x" * size) for name, size in (("a", 9), ("b", 70))
    ]
    asked = AssistantMessage(tool_calls=tuple(ToolCall(id=name, name=name, arguments="") for name in "ab"))
    async with model_rig(
        [Refusal(400, "context_length_exceeded")], models={"": ModelEntry(window=window)}
    ) as rig:
        await rig.store(QUESTION, asked, *results)
        failure = await rig.fail(rig.changed(length=4, new=()))
    room = "; the window has 128,000 tokens" if window else ": use a larger model"
    assert failure.message.endswith(f"{room}; the largest result in it is that of 'b', 70 bytes")
    assert (failure.type, failure.non_retryable) == (CONTEXT_TOO_LONG, True)


NO_REPLIES: Sequence[tuple[Answer, str]] = [
    (Whole({"status": "ok"}), "without a reply"),
    (Whole([]), "answered with no Chat Completions reply (ValueError)"),
    (Reply([], ending="bare"), "without a reply"),
    (Wire([b"<html>Sign in</html>"], headers={"content-type": "text/html"}), "reply, but 'text/html' ("),
    (Wire([b"<html>Sign in</html>"], headers={}), "answered with no Chat Completions reply (ValueError)"),
]


@pytest.mark.parametrize(
    ("answer", "named"), NO_REPLIES, ids=["another object", "a list", "no reply", "a page", "no type"]
)
async def test_what_is_no_reply_is_called_what_it_is(answer: Answer, named: str) -> None:
    """The error of an invalid reply names its form, such as another content type."""
    async with model_rig([answer]) as rig:
        assert named in (await rig.fail()).message


async def test_a_wait_is_shown() -> None:
    """A wait is shown to subscribers with its reason and duration."""
    async with model_rig([Refusal(429, headers={"Retry-After": "3"})]) as rig:
        await rig.views.publish(*rig.place, [working()])
        delay = (await rig.fail()).next_retry_delay
        reason = "the provider 'openai' limits the rate of requests (429)"
        assert delay
        assert timedelta(seconds=3) <= delay <= timedelta(seconds=3.3)
        retry = RetryScheduled(attempt=1, reason=reason, delay=delay.total_seconds())
        assert retry in await rig.events()
        assert (await rig.view()).status.state is TaskState.WORKING
        assert await rig.note() == f"waiting for the model: {reason}; retry in 3 s"


async def test_a_recovery_clears_the_status() -> None:
    """A recovery clears the status of the wait and replaces the draft."""
    async with model_rig([Reply(["Hel"], ending="cut"), Refusal(503), Reply(["Hello"])]) as rig:
        for attempt, why in ((1, "no connection"), (2, "the provider 'openai' failed (503)")):
            await rig.fail(attempt=attempt)
            assert (await rig.note()).startswith(f"waiting for the model: {why}")
        await rig.run(attempt=3)
        assert await rig.note() == ""
        assert await rig.answer() == ("Hello", True)
        resumed = [Resumed(after="attempt", attempt=attempt) for attempt in (2, 3)]
        assert await rig.events_of(Resumed) == resumed


@pytest.mark.parametrize(
    ("answer", "attempt", "earlier", "counted"),
    [(Refusal(503), 10 * RETRIES, 2, {"failed": 3}), (Whole([]), 6, 5, {"failed": 5, "unreadable": 1})],
)
async def test_only_failures_of_the_provider_are_counted(
    answer: Answer, attempt: int, earlier: int, counted: dict[str, int]
) -> None:
    """Only failures of the provider are counted, not those of Redis or workers.

    Invalid replies have a lower limit of their own.
    """
    counts, environment = list[dict[str, int]](), ActivityEnvironment()
    environment.on_heartbeat = counts.append
    async with model_rig([answer]) as rig:
        failure = await rig.fail(attempt=attempt, failures=earlier, environment=environment)
        assert not failure.non_retryable
        assert counts == [counted]


async def test_a_reply_without_end_is_a_counted_failure() -> None:
    """An endless reply is a counted failure before the activity times out, and its connection is closed."""
    counts, environment = list[dict[str, int]](), ActivityEnvironment()
    environment.on_heartbeat = counts.append
    async with model_rig([Reply(["Hel", asyncio.Event()])]) as rig:
        rig.port = rig.port_to("m", longest_reply=timedelta(seconds=1))
        failure = await rig.fail(environment=environment)
        await rig.provider.requests[0].disconnected.wait()
    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert "within 1 s" in failure.message
    assert counts[-1] == {"failed": 1}


def test_a_reply_has_less_time_than_its_activity() -> None:
    """The time limit of a reply is shorter than that of its activity."""
    limit = model_call(None, "").get("start_to_close_timeout")
    assert limit
    assert limit > LONGEST_REPLY


async def test_the_last_failure_takes_the_draft_back() -> None:
    """A final failure takes the draft back and is not retried."""
    async with model_rig([Reply(["Hel"], ending="cut")]) as rig:
        failure = await rig.fail(failures=RETRIES)
        assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, True)
        assert (await rig.text("response") or "") == ""


async def test_a_refused_follow_up_takes_the_older_answer_back() -> None:
    """A refused follow-up takes the older answer back, because the task failed."""
    async with model_rig([Reply(["Old."]), Refusal(401)]) as rig:
        await rig.fail(rig.follow_up(await rig.run()))
        assert await rig.answer() == ("", False)


async def test_nothing_is_asked_without_agent_model_or_transcript() -> None:
    """Without agent, model or complete transcript no request is sent.

    The message says where to name a model.
    """
    async with model_rig() as rig:
        stranger = await rig.fail(rig.changed(task=rig.task.model_copy(update={"agent_id": "stranger"})))
        gap = await rig.fail(rig.changed(length=2))
        rig.port = rig.port_to(None)
        nameless = await rig.fail()
        assert (stranger.type, stranger.non_retryable) == (AGENT_UNKNOWN, False)
        assert (gap.type, gap.non_retryable) == (TRANSCRIPT_MISSING, True)
        assert (nameless.type, nameless.non_retryable) == (MODEL_REFUSED, True)
        assert "EVERLOOP_MODEL" in nameless.message
        assert rig.provider.requests == []


async def test_nothing_is_asked_before_the_status_is_out() -> None:
    """No request is sent before its status is published; Temporal retries while Redis is away."""
    async with model_rig() as rig:
        failing(rig.views, "publishing")
        with pytest.raises(RedisConnectionError):
            await rig.run()
        assert rig.provider.requests == []


async def test_an_outage_costs_deltas_only() -> None:
    """An outage of Redis after the stream began costs deltas only; the workflow publishes the answer."""
    gate, away = asyncio.Event(), asyncio.Event()
    async with model_rig([Reply([gate, "Hel", away, "lo"])]) as rig:
        running = asyncio.create_task(rig.run())
        await rig.provider.request(1)
        failing(rig.views, "publishing", reached=away)
        gate.set()
        reply = await running
        assert (reply.text, reply.is_published) == ("Hello", False)

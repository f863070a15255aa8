"""Model calls whose replies end irregularly: effects for model, client and task."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from everloop.agents.agent import Turn
from everloop.agents.limits import ModelSettings
from everloop.models.catalogue import ModelEntry
from everloop.workflows.contract import failures
from everloop.workflows.contract.events import Thought, ToolCalled, UsageReported, Warned
from everloop.workflows.contract.messages import AssistantMessage, TextPart, Usage, UserMessage
from tests.support.rigs.model_rig import After, Before, agent, in_capitals, model_rig
from tests.support.servers.scripted_openai import (
    Answer,
    CallFragment,
    Reasoning,
    Refusal,
    Reply,
    Whole,
    Wire,
    tool_call,
)

HALF_CALL = CallFragment(1, "b", "search", '{"query": "Pa')
CUT = Reply(["Once "], finish_reason="length", usage=(10, 3))
DECLINED = Whole(
    {
        "choices": [{"message": {"role": "assistant", "refusal": "I won't."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }
)
REST = Reply(["upon a time."], usage=(14, 4))
GO_ON = {"role": "user", "content": "[Go on exactly where your reply stopped.]"}


@pytest.mark.parametrize(
    ("answer", "reason", "shown"),
    [
        (Reply(["So ", HALF_CALL], finish_reason="length"), failures.REPLY_CUT, "told"),
        (Reply([Reasoning("Hm")], finish_reason="length"), failures.REPLY_CUT, "fails"),
        (Reply(["So"], finish_reason="content_filter"), failures.CONTENT_FILTERED, "fails"),
        (DECLINED, failures.MODEL_DECLINED, "rejects"),
        (Reply([], finish_reason="MALFORMED_FUNCTION_CALL"), failures.REPLY_CUT, "told"),
        (Reply([" "]), failures.EMPTY_REPLY, "told"),
        (Reply([Reasoning("42")]), failures.EMPTY_REPLY, "told"),
    ],
    ids=["half a call", "thoughts", "filtered", "declined", "malformed", "empty", "all in thoughts"],
)
async def test_what_is_no_answer_is_not_shown(answer: Answer, reason: str, shown: str) -> None:
    """The streamed text of an unusable reply is taken back.

    A retry returns the same outcome without a model call.
    """
    async with model_rig([answer]) as rig:
        reply = await rig.run()
        ends = {"told": bool(reply.refused), "fails": reply.fails, "rejects": reply.rejects}
        assert (reply.reason, [name for name, holds in ends.items() if holds]) == (reason, [shown])
        assert reply.usage == Usage(input_tokens=10, output_tokens=5, cost=None)
        assert await rig.answer() in {None, ("", False)}
        assert await rig.events_of(ToolCalled) == []
        assert [event.text for event in await rig.events_of(Warned)] == [
            f"the model is asked again: {reply.refused}" for _ in reply.refused[:1]
        ]
        assert await rig.run(attempt=2) == reply


async def test_calls_that_are_whole_are_run() -> None:
    """The complete calls of a reply that was cut off within the next one are run."""
    script = [Reply([tool_call("search", '{"query": "Rome"}'), HALF_CALL], finish_reason="length")]
    async with model_rig(script) as rig:
        reply = await rig.run()
        assert [call.arguments for call in reply.tool_calls] == ['{"query": "Rome"}']
        assert (reply.reason, reply.refused) == ("", "")
        assert [event.call_id for event in await rig.events_of(ToolCalled)] == ["r00001c01"]


async def test_a_text_that_was_cut_off_is_gone_on_with() -> None:
    """A text that was cut off is continued in the same draft.

    The message has thoughts, cost and calls of both halves.
    """
    gate, watching = asyncio.Event(), After(make=in_capitals)
    script = [
        Reply([Reasoning("A tale."), "Once "], finish_reason="length", usage=(10, 3)),
        Reply([Reasoning("On."), "upon", gate, " a time."], usage=(14, 4)),
    ]
    async with model_rig(script, agent=agent(watching)) as rig:
        running = asyncio.create_task(rig.run(rig.changed(model="priced-model")))
        while await rig.answer() != ("Once upon", False):
            await rig.until(lambda _: True)
        gate.set()
        reply = await running
        assert [said.text for said in watching.asked] == ["Once upon a time."]
        assert (reply.text, reply.reasoning, reply.reason) == ("ONCE UPON A TIME.", "A tale.\n\nOn.", "")
        assert reply.usage == Usage(input_tokens=24, output_tokens=7, cost=0.024 + 0.7)
        assert [event.usage for event in await rig.events_of(UsageReported)] == [reply.usage]
        assert await rig.answer() == ("ONCE UPON A TIME.", True)
        thoughts = [(event.thought_id, event.text) for event in await rig.events_of(Thought) if event.text]
        assert thoughts == [("r00001t01", "A tale."), ("r00001t02", "On.")]
        first, second = rig.provider.requests
        assert second.messages == [*first.messages, {"role": "assistant", "content": "Once "}, GO_ON]


async def test_an_attempt_that_dies_between_the_halves_repeats_both() -> None:
    """A retry after a death between the halves replaces their text, and does not count their tokens."""
    hangs = Reply(["upon a", asyncio.Event()])
    async with model_rig([CUT, hangs, Reply(["Then "], finish_reason="length"), REST]) as rig:
        running = asyncio.create_task(rig.run())
        while await rig.answer() != ("Once upon a", False):
            await rig.until(lambda _: True)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        reply = await rig.run(attempt=2)
        assert (reply.text, reply.usage.output_tokens) == ("Then upon a time.", 5 + 4)
        assert await rig.answer() == ("Then upon a time.", True)


async def test_a_reply_is_continued_once() -> None:
    """A reply is continued once; a second cut stands as the answer, with a note at its end."""
    async with model_rig([CUT, Reply(["upon"], finish_reason="length", usage=(14, 4))]) as rig:
        reply = await rig.run()
        assert (reply.text, reply.reason) == ("Once upon", failures.REPLY_CUT)
        assert reply.closing == "the answer was cut off at the model's limit, after 7 tokens"
        assert await rig.answer() == ("Once upon", True)


BROKEN_OFF = Wire(
    [
        b'data: {"choices": [{"index": 0, "delta": {"content": "up"}}]}\n\n',
        b'data: {"error": {"message": "too long", "code": "context_length_exceeded"}}\n\n',
    ]
)


@pytest.mark.parametrize(
    "refusal",
    [Refusal(400, "context_length_exceeded"), BROKEN_OFF, Refusal(429, headers={"retry-after": "60"})],
    ids=["all", "late", "busy"],
)
async def test_a_rest_that_the_provider_refuses_costs_nothing(refusal: Answer) -> None:
    """If the provider refuses the continuation, the first half stands and is paid for once."""
    async with model_rig([CUT, refusal]) as rig:
        reply = await rig.run()
        assert (reply.text, reply.reason, reply.usage.output_tokens) == ("Once ", failures.REPLY_CUT, 3)
        assert await rig.answer() == ("Once ", True)


async def test_the_rest_may_be_calls() -> None:
    """If the continuation has calls, the text is not the answer."""
    async with model_rig([CUT, Reply([tool_call("search")])]) as rig:
        reply = await rig.run()
        assert (reply.text, [call.id for call in reply.tool_calls]) == ("Once ", ["r00001c01"])
        assert await rig.answer() == ("", False)


TELLS, FAILS = ModelSettings(on_length="tell"), ModelSettings(on_length="fail")


@pytest.mark.parametrize(
    ("of_hook", "of_agent", "of_model", "wanted"),
    [(TELLS, FAILS, None, "told"), (None, TELLS, FAILS, "told"), (None, None, FAILS, "fails")],
    ids=["of a hook", "of the agent", "of the model"],
)
async def test_settings_decide(
    of_hook: ModelSettings | None, of_agent: ModelSettings | None, of_model: ModelSettings | None, wanted: str
) -> None:
    """Settings of a hook come before those of the agent, and these before those of the model."""
    hooks = [Before(make=lambda request: replace(request, settings=of_hook))] if of_hook else []
    known = {"test-model": ModelEntry(settings=of_model or ModelSettings())}
    async with model_rig([CUT], agent=agent(*hooks), models=known) as rig:
        reply = await rig.run(rig.changed(settings=of_agent or ModelSettings()))
        assert (bool(reply.refused), reply.fails) == (wanted == "told", wanted == "fails")
        assert await rig.answer() in {None, ("", False)}


async def test_the_model_is_told_once() -> None:
    """The model is told once: a second reply with the same end ends the task."""
    async with model_rig([Reply([]), Reply([])]) as rig:
        first = await rig.run()
        note = UserMessage(message_id="", parts=(TextPart(text=f"[{first.refused}]"),))
        second = await rig.run(rig.changed(iteration=2, length=3, new=(note,)))
        assert (bool(first.refused), second.fails) == (True, True)
        assert [message["role"] for message in rig.provider.requests[1].conversation] == [
            "system",
            "user",
            "user",
        ]


async def test_a_responder_may_say_nothing() -> None:
    """A function's empty reply is valid and not retried, because no model ended it."""

    async def silent(_turn: Turn) -> AssistantMessage:
        return AssistantMessage()

    async with model_rig(agent=agent(After(make=lambda _: None), respond=silent)) as rig:
        reply = await rig.run()
        assert (reply.refused, reply.fails) == ("", False)

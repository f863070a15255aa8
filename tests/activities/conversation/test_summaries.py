"""Summaries of conversations: when and from what they are made, concurrent tasks, and failures."""

import asyncio
from collections.abc import Sequence

import pytest
from redis.asyncio import Redis
from temporalio.exceptions import ApplicationError

from everloop.activities.conversation.conversation_memory import MAX_BLOCK_CHARACTERS
from everloop.stores.conversations.conversation_store import ConversationSummary
from everloop.workflows.contract.agent_settings import Memory
from everloop.workflows.contract.failures import MODEL_REFUSED, MODEL_UNAVAILABLE
from everloop.workflows.contract.messages import AssistantMessage
from tests.support.rigs.conversation_rig import SUMMARY, conversation_rig, said
from tests.support.servers.scripted_openai import Answer, ReceivedRequest, Refusal, Reply
from tests.support.stores import count_kept


def prompt(request: ReceivedRequest) -> str:
    """Return the text that the model is to summarize."""
    return str(request.conversation[-1]["content"])


async def test_one_summary_stands_for_what_is_too_old(redis: Redis) -> None:
    """A summary covers all but the newest half of the recalled messages.

    The next one is made of it and later messages.
    """
    script = [Reply([" They said ", "0 and 1.\n"]), Reply(["They said 0 to 3."])]
    async with conversation_rig(redis, script) as (rig, provider):
        assert await rig.talk(0, 3) == [False, False, True]
        await rig.compact()
        first = await rig.summaries()
        assert await rig.talk(3, 2) == [False, True]
        await rig.compact(model="their-model")

        assert first == [(0, 0, 4, "They said 0 and 1.")]
        assert await rig.summaries() == [(0, 0, 8, "They said 0 to 3.")]
        assert await count_kept(rig.conversations, rig.context) == 10
        assert (await rig.recalled())[0] == "[Summary of earlier conversation]\nThey said 0 to 3."

    one, two = provider.requests
    assert [one.body["model"], two.body["model"]] == ["test-model", "their-model"]
    assert "question 0." in prompt(one)
    assert "answer 1." in prompt(one)
    assert "question 2." not in prompt(one)
    assert "They said 0 and 1." in prompt(two)
    assert "answer 1." not in prompt(two)
    assert "question 2." in prompt(two)
    assert "answer 3." in prompt(two)
    assert "question 4." not in prompt(two)


async def test_what_is_summed_up_is_not_summed_up_again(redis: Redis) -> None:
    """A retry after the summary was stored asks no model."""
    async with conversation_rig(redis, [Reply(["Sum"])]) as (rig, provider):
        await rig.talk(0, 3)
        for _ in range(2):
            await rig.compact()
        assert await rig.summaries() == [(0, 0, 4, "Sum")]
        assert len(provider.requests) == 1


async def test_an_attempt_goes_on_where_the_last_one_died(redis: Redis) -> None:
    """A retry continues with the first block without a summary."""
    words = "x" * (MAX_BLOCK_CHARACTERS // 6)
    script = [Reply(["one"]), Refusal(503), Reply(["two"])]
    async with conversation_rig(redis, script) as (rig, _):
        for n in range(9):
            await rig.save(f"t{n}", said(f"{n}{words}"), AssistantMessage(text=f"answer {n}."))
        with pytest.raises(ApplicationError) as caught:
            await rig.compact()
        before = await rig.summaries()
        await rig.compact()
        assert (caught.value.type, caught.value.non_retryable) == (MODEL_UNAVAILABLE, False)
        assert before == [(0, 0, 10, "one")]
        assert await rig.summaries() == [(0, 0, 16, "two")]


@pytest.mark.parametrize("answer", [Refusal(400), Refusal(401), Reply([" \n"])], ids=repr)
async def test_a_model_that_writes_no_summary_loses_nothing(redis: Redis, answer: Answer) -> None:
    """Without a summary of the model, messages and the earlier summary stay, and the next task retries."""
    script = [Reply(["early"]), answer, Reply(["late"])]
    async with conversation_rig(redis, script) as (rig, _):
        await rig.talk(0, 3)
        await rig.compact()
        await rig.talk(3, 2)
        with pytest.raises(ApplicationError) as caught:
            await rig.compact()
        assert (caught.value.type, caught.value.non_retryable) == (MODEL_REFUSED, True)
        assert await rig.summaries() == [(0, 0, 4, "early")]
        assert await count_kept(rig.conversations, rig.context) == 10
        assert (await rig.recalled())[0].endswith("early")
        await rig.compact()
        assert await rig.summaries() == [(0, 0, 8, "late")]


QUIET: Sequence[tuple[Memory, int]] = [
    (SUMMARY, 2),
    (Memory(strategy="window", max_messages=1), 3),
]


@pytest.mark.parametrize(("memory", "tasks"), QUIET)
async def test_nothing_is_summed_up_while_all_is_recalled(redis: Redis, memory: Memory, tasks: int) -> None:
    """No summary is made while all messages are recalled, nor ever for a window."""
    async with conversation_rig(redis) as (rig, provider):
        assert not any(await rig.talk(0, tasks, memory))
        await rig.compact(memory)
        assert provider.requests == []


LARGE = Memory(strategy="summary", max_messages=20, max_tokens=25_000)


async def test_what_has_too_many_bytes_is_summed_up(redis: Redis) -> None:
    """Messages of many bytes and few characters are summarized once a task no longer recalls them all."""
    words = "語" * 5_000
    async with conversation_rig(redis, [Reply(["Sum"])]) as (rig, _):
        longs = [
            await rig.save(f"t{n}", said(f"{n}{words}"), AssistantMessage(text=words), memory=LARGE)
            for n in range(4)
        ]
        await rig.compact(LARGE)
        assert longs == [False, False, False, True]
        assert await rig.summaries() == [(0, 0, 6, "Sum")]
        assert [text[:1] for text in await rig.recalled(LARGE)] == list("[1語2語3語")
        assert not await rig.save("t4", said("more"), memory=LARGE)


async def test_a_conversation_that_is_cleared_meanwhile_stays_forgotten(redis: Redis) -> None:
    """A summary that is being written when its conversation is cleared is discarded."""
    gate = asyncio.Event()
    async with conversation_rig(redis, [Reply(["Su", gate, "m"])]) as (rig, provider):
        await rig.talk(0, 3)
        running = asyncio.create_task(rig.compact())
        await provider.request(1)
        await rig.conversations.clear(rig.context)
        gate.set()
        await running
        assert await rig.summaries() == []
        assert await rig.recalled() == []


async def test_a_summary_that_comes_too_late_is_thrown_away(redis: Redis) -> None:
    """Of two tasks that summarize the same range, the first to store ends the work of the other."""
    gate = asyncio.Event()
    script = [Reply(["ours", gate])]
    async with conversation_rig(redis, script) as (rig, provider):
        await rig.talk(0, 3)
        running = asyncio.create_task(rig.compact())
        await provider.request(1)
        theirs = ConversationSummary(start=0, end=4, text="theirs")
        await rig.conversations.compact(rig.context, theirs)
        gate.set()
        await running
        assert await rig.summaries() == [(0, 0, 4, "theirs")]

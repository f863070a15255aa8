"""When a conversation is long enough to be summed up."""

from collections.abc import Sequence

import pytest

from everloop.activities.conversation.summaries import MAX_SUMMARY_CHARACTERS
from everloop.stores.conversations import ConversationSummary
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage
from everloop.workflows.contract.tasks import MemorySpec
from tests.support.rigs.summary_harness import HIERARCHICAL, SUMMARY, open_desk, said
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI

QUIET: Sequence[tuple[MemorySpec, int]] = [
    (SUMMARY, 2),
    (HIERARCHICAL, 2),
    (MemorySpec(strategy="window", max_messages=1), 3),
]


@pytest.mark.parametrize(("memory", "tasks"), QUIET)
async def test_nothing_is_summed_up_while_all_is_recalled(memory: MemorySpec, tasks: int) -> None:
    """Nor ever for a window."""
    async with ScriptedOpenAI() as provider, open_desk(provider) as desk:
        assert not any(await desk.talk(0, tasks, memory))
        await desk.compact(memory)
        assert provider.requests == []


async def test_auto_compact_is_for_what_goes_on_by_itself() -> None:
    """Whoever asks for a summary gets one."""
    memory = SUMMARY.model_copy(update={"auto_compact": False})
    async with ScriptedOpenAI([Reply(["Sum"])]) as provider, open_desk(provider) as desk:
        assert not any(await desk.talk(0, 3, memory))
        await desk.compact(memory)
        assert await desk.summaries() == [(0, 0, 4, "Sum")]


LARGE = MemorySpec(strategy="summary", max_messages=20, max_tokens=25_000)


async def test_what_has_too_many_bytes_is_summed_up() -> None:
    """Chinese has few characters and many bytes: what a task does not recall, the summary covers."""
    words = "語" * 5_000
    async with ScriptedOpenAI([Reply(["Sum"])]) as provider, open_desk(provider) as desk:
        longs = [
            await desk.save(f"t{n}", said(f"{n}{words}"), AssistantMessage(text=words), memory=LARGE)
            for n in range(4)
        ]
        await desk.compact(LARGE)
        assert longs == [False, False, False, True]
        assert await desk.summaries() == [(0, 0, 6, "Sum")]
        assert [text[:1] for text in await desk.recalled(LARGE)] == list("[1語2語3語")
        assert not await desk.save("t4", said("more"), memory=LARGE)


async def test_a_long_summary_leaves_less_room() -> None:
    """Messages that would have room without it are summed up too."""
    words, earlier = "語" * 5_000, "語" * MAX_SUMMARY_CHARACTERS
    async with ScriptedOpenAI([Reply(["Sum"])]) as provider, open_desk(provider) as desk:
        await desk.talk(0, 1)
        await desk.conversations.compact(desk.context, ConversationSummary(start=0, end=2, text=earlier))
        longs = [
            await desk.save(f"t{n}", said(f"{n}{words}"), AssistantMessage(text=words), memory=LARGE)
            for n in range(1, 4)
        ]
        assert longs == [False, False, True]
        await desk.compact(LARGE)
        assert await desk.summaries() == [(0, 0, 6, "Sum")]


async def test_a_turn_that_is_too_long_is_summed_up_too() -> None:
    """Of the newest turn a task recalls the beginning and the end: the summary has what stands between."""
    asks = AssistantMessage(tool_calls=(ToolCall(id="c", name="find", arguments="{}"),))
    result = ToolMessage(call_id="c", name="find", content="found")
    async with ScriptedOpenAI([Reply(["Sum"])]) as provider, open_desk(provider) as desk:
        assert await desk.save("t", said("work"), asks, result, asks, result, AssistantMessage(text="done"))
        await desk.compact()
        assert await desk.summaries() == [(0, 0, 6, "Sum")]
        assert len(await desk.recalled()) == 5
        assert not await desk.save("next", said("more"))

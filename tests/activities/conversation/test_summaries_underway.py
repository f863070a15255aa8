"""A summary in the making: what others do meanwhile, its heartbeats, and how it ends early."""

import asyncio
import dataclasses

import pytest
from temporalio.testing import ActivityEnvironment

from everloop.stores.conversations import ConversationSummary
from tests.support.memory.conversations import MemoryConversations
from tests.support.rigs.summary_harness import open_desk
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI


async def test_a_conversation_that_is_cleared_meanwhile_stays_forgotten() -> None:
    """The summary that was being written is thrown away."""
    gate = asyncio.Event()
    async with ScriptedOpenAI([Reply(["Su", gate, "m"])]) as provider, open_desk(provider) as desk:
        await desk.talk(0, 3)
        running = asyncio.create_task(desk.compact())
        await provider.request(1)
        await desk.conversations.clear(desk.context)
        gate.set()
        await running
        assert await desk.summaries() == []
        assert await desk.recalled() == []


async def test_a_summary_that_comes_too_late_is_thrown_away() -> None:
    """Two tasks ended at once: the first summary of a range stays, and nobody goes on asking for another."""
    gate = asyncio.Event()
    script = [Reply(["ours", gate])]
    async with ScriptedOpenAI(script) as provider, open_desk(provider) as desk:
        await desk.talk(0, 3)
        running = asyncio.create_task(desk.compact())
        await provider.request(1)
        theirs = ConversationSummary(start=0, end=4, text="theirs")
        await desk.conversations.compact(desk.context, theirs)
        gate.set()
        await running
        assert await desk.summaries() == [(0, 0, 4, "theirs")]


class Overtaken(MemoryConversations):
    """Keeps no summary, as if others always overlapped it."""

    async def compact(self, context: str, summary: ConversationSummary) -> None:
        return


async def test_a_summary_that_is_not_kept_is_not_asked_for_again() -> None:
    """An attempt that gets no further ends."""
    async with ScriptedOpenAI([Reply(["Sum"])]) as provider, open_desk(provider, Overtaken()) as desk:
        await desk.talk(0, 3)
        await desk.compact()
        assert len(provider.requests) == 1


async def test_a_summary_in_the_making_sends_heartbeats() -> None:
    """They carry the failures of the provider, which end it after a while."""
    gate, beats = asyncio.Event(), list[object]()
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, heartbeat_details=[{"failed": 7}])

    def note(*details: object) -> None:
        beats.extend(details)
        gate.set()

    environment.on_heartbeat = note
    async with ScriptedOpenAI([Reply([gate, "Sum"])]) as provider, open_desk(provider) as desk:
        await desk.talk(0, 3)
        await desk.compact(environment=environment)
        assert await desk.summaries() == [(0, 0, 4, "Sum")]
    assert beats
    assert all(beat == {"failed": 7} for beat in beats)


async def test_a_cancelled_summary_hangs_up() -> None:
    """The provider sees the connection closed while it still writes; nothing is kept."""
    environment = ActivityEnvironment()
    script = [Reply(["Su", asyncio.Event()])]
    async with ScriptedOpenAI(script) as provider, open_desk(provider) as desk:
        await desk.talk(0, 3)
        running = asyncio.create_task(desk.compact(environment=environment))
        request = await provider.request(1)
        environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await request.disconnected.wait()
        assert await desk.summaries() == []

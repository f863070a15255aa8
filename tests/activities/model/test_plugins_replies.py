"""What plugins do with the reply of a model call: changes and vetoes."""

import asyncio
from dataclasses import dataclass, field

import pytest

from everloop.agents.agent import Turn
from everloop.agents.hooks import HookContext, Veto
from everloop.agents.plugins import tools
from everloop.workflows.contract.events import ArtifactChunk, ToolCalled
from everloop.workflows.contract.messages import AssistantMessage, TextPart, Usage, UserMessage
from tests.support.rigs.model_plugins import After, Before, agent, in_capitals, is_chunk
from tests.support.rigs.model_rig import model_bench, search
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI, Step, tool_call


async def test_a_changed_text_replaces_the_one_that_was_streamed() -> None:
    """The stored reply, the returned one and the shown one are what the plugins left."""
    gate = asyncio.Event()
    plugin = After(make=in_capitals)
    async with (
        ScriptedOpenAI([Reply(["Hel", gate, "lo"])]) as provider,
        model_bench(provider, agent=agent(plugin)) as bench,
    ):
        running = asyncio.create_task(bench.run())
        await bench.until(is_chunk)
        assert await bench.response_text() == "Hel"
        gate.set()
        reply = await running

        response = await bench.response()
        opened = await bench.transcripts.open(bench.task.task_id, bench.task.run_id, 1, ())
        assert response
        assert (reply.text, await bench.response_text(), response.complete) == ("HELLO", "HELLO", True)
        assert opened.reply == reply
        assert plugin.asked[0].text == "Hello"


async def test_a_stored_reply_is_not_asked_about_again() -> None:
    """The worker died after it had stored the reply: the plugins have decided already."""
    plugin = After(make=in_capitals)
    async with (
        ScriptedOpenAI([Reply(["Hello"])]) as provider,
        model_bench(provider, agent=agent(plugin)) as bench,
    ):
        first, second = await bench.run(attempt=1), await bench.run(attempt=2)

        assert first == second
        assert (len(plugin.asked), len(provider.requests)) == (1, 1)
        assert await bench.response_text() == "HELLO"


@dataclass(kw_only=True, eq=False)
class Slow(After):
    """Judges nothing until its gate opens."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def after_model_call(
        self, context: HookContext, reply: AssistantMessage
    ) -> AssistantMessage | Veto | None:
        self.is_asked.set()
        await self.gate.wait()
        return await super().after_model_call(context, reply)


@pytest.mark.parametrize(
    ("written", "shown"),
    [(["Hello"], "HELLO"), (["One moment.", tool_call("search", '{"query": "x"}')], "")],
    ids=["answer", "call"],
)
async def test_an_unjudged_reply_is_asked_for_once(written: list[Step], shown: str) -> None:
    """The worker died while plugins judged it: they judge it again, the model is not asked again."""
    plugin = Slow(make=in_capitals)
    async with (
        ScriptedOpenAI([Reply([*written], usage=(10, 5))]) as provider,
        model_bench(provider, agent=agent(tools(search), plugin)) as bench,
    ):
        first = asyncio.create_task(bench.run(attempt=1))
        await plugin.is_asked.wait()
        first.cancel()
        await asyncio.wait({first})
        plugin.gate.set()
        reply = await bench.run(attempt=2)

        assert len(provider.requests) == 1
        assert reply.text == str(written[0]).upper()
        assert [call.name for call in reply.tool_calls] == ["search"] * (len(written) - 1)
        assert reply.usage == Usage(input_tokens=10, output_tokens=5)
        assert await bench.response_text() == shown
        assert await bench.leases.kept(bench.task.task_id, f"reply {bench.task.run_id} 1.0") is None


async def test_a_reply_that_plugins_leave_alone_costs_nothing_else() -> None:
    """It is streamed and completed as without them."""
    plugin = After(make=lambda _: None)
    async with (
        ScriptedOpenAI([Reply(["Hel", "lo"])]) as provider,
        model_bench(provider, agent=agent(plugin)) as bench,
    ):
        reply = await bench.run()

        chunks = [event for event in await bench.events() if isinstance(event, ArtifactChunk)]
        assert (reply.text, await bench.response_text()) == ("Hello", "Hello")
        assert [chunk.part for chunk in chunks if chunk.last_chunk] == [TextPart(text="Hello")]


async def test_a_reply_that_is_vetoed_does_not_stand() -> None:
    """Its text remains for the model, its calls and its draft are gone, its tokens were spent."""
    plugin = After(make=lambda _: Veto("too rude"))
    script = [Reply(["Fool!", tool_call("search")], usage=(10, 5)), Reply(["Sorry."])]
    async with (
        ScriptedOpenAI(script) as provider,
        model_bench(provider, agent=agent(tools(search), plugin)) as bench,
    ):
        reply = await bench.run()

        assert (reply.refused, reply.text, reply.tool_calls) == ("too rude", "Fool!", ())
        assert reply.usage == Usage(input_tokens=10, output_tokens=5)
        assert await bench.response_text() == ""
        assert not [event for event in await bench.events() if isinstance(event, ToolCalled)]

        again = await bench.run(attempt=2)  # the worker died before Temporal heard of it
        assert again == reply
        response = await bench.response()
        assert response is None or (await bench.response_text(), response.complete) == ("", False)


async def test_a_veto_without_a_reason_is_one() -> None:
    """An empty reason would read as if nothing had been refused."""
    async with (
        ScriptedOpenAI([Reply(["Hi"])]) as provider,
        model_bench(provider, agent=agent(After(make=lambda _: Veto("")))) as bench,
    ):
        assert (await bench.run()).refused


async def test_a_plugin_that_refuses_by_itself_counts_as_a_veto() -> None:
    """The field of the reply and the veto mean the same."""
    plugin = After(make=lambda reply: reply.model_copy(update={"refused": "no", "usage": Usage()}))
    async with (
        ScriptedOpenAI([Reply([tool_call("search")])]) as provider,
        model_bench(provider, agent=agent(tools(search), plugin)) as bench,
    ):
        reply = await bench.run()

        assert (reply.refused, reply.tool_calls) == ("no", ())
        assert reply.usage != Usage()


async def test_replies_of_a_function_are_looked_at_too() -> None:
    """There is no request to look at before; the rest is the same."""

    async def respond(_: Turn) -> AssistantMessage:
        return AssistantMessage(text="Fool!", closing="bye", rejects=True)

    before = Before(make=lambda _: Veto("never"))
    veto = After(make=lambda reply: Veto("too rude") if reply.rejects else None)
    async with (
        ScriptedOpenAI() as provider,
        model_bench(provider, agent=agent(before, veto, respond=respond)) as bench,
    ):
        reply = await bench.run()

        assert (reply.refused, reply.text, reply.closing, reply.rejects) == ("too rude", "Fool!", "", False)
        assert await bench.response() is None
        assert (before.asked, len(veto.asked)) == ([], 1)
        assert await bench.run(attempt=2) == reply


async def test_a_reply_of_a_function_is_changed() -> None:
    """What the plugin leaves is the answer."""

    async def respond(_: Turn) -> AssistantMessage:
        return AssistantMessage(text="Hello")

    async with (
        ScriptedOpenAI() as provider,
        model_bench(provider, agent=agent(After(make=in_capitals), respond=respond)) as bench,
    ):
        assert (await bench.run()).text == "HELLO"
        assert await bench.response_text() == "HELLO"


async def test_an_answer_that_was_refused_is_no_answer_to_take_back() -> None:
    """Subscribers have not seen it: the next call that asks for tools has nothing to empty."""
    refused = AssistantMessage(text="Fool!", refused="too rude")
    told = UserMessage(message_id="told", parts=())
    async with (
        ScriptedOpenAI([Reply([tool_call("search")])]) as provider,
        model_bench(provider, agent=agent(tools(search))) as bench,
    ):
        await bench.transcripts.put(bench.task.task_id, bench.task.run_id, 0, [*bench.call.new, refused])
        await bench.run(bench.call.model_copy(update={"length": 3, "new": (told,)}))

        assert await bench.response() is None
        assert provider.requests[0].messages[1] == {"role": "assistant", "content": "Fool!"}

"""Tool calls of a reply that plugins drop or add, and the artifacts of those that are dropped."""

import asyncio

from everloop.agents.artifact_tools import artifacts
from everloop.agents.plugins import tools
from everloop.workflows.contract.events import ArtifactChunk, ToolCalled
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, text_of
from tests.support.rigs.artifact_writer_rig import BASE, begin_doc
from tests.support.rigs.artifact_writer_rig import arguments as artifact_arguments
from tests.support.rigs.artifact_writer_rig import text as artifact_text
from tests.support.rigs.model_plugins import After, agent, is_chunk
from tests.support.rigs.model_rig import model_bench, search
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI, tool_call


def without_calls(reply: AssistantMessage) -> AssistantMessage:
    return reply.model_copy(update={"tool_calls": ()})


def last_call(reply: AssistantMessage) -> AssistantMessage:
    return reply.model_copy(update={"tool_calls": reply.tool_calls[-1:]})


async def test_a_call_that_is_dropped_is_none() -> None:
    """Nobody sees it, and the text is the answer after all."""
    script = [Reply(["Well. ", tool_call("search")])]
    async with (
        ScriptedOpenAI(script) as provider,
        model_bench(provider, agent=agent(tools(search), After(make=without_calls))) as bench,
    ):
        reply = await bench.run()

        response = await bench.response()
        assert reply.tool_calls == ()
        assert response
        assert (await bench.response_text(), response.complete) == ("Well. ", True)
        assert not [event for event in await bench.events() if isinstance(event, ToolCalled)]


async def test_calls_that_a_plugin_adds_have_ids_of_their_own() -> None:
    """They are made of the places that calls have in the reply as it stands; of two like ones each is one."""
    more = ToolCall(id="a", name="search", arguments='{"query": "more"}')
    plugin = After(
        make=lambda reply: reply.model_copy(update={"tool_calls": (*reply.tool_calls, more, more)})
    )
    async with (
        ScriptedOpenAI([Reply([tool_call("search")])]) as provider,
        model_bench(provider, agent=agent(tools(search), plugin)) as bench,
    ):
        reply = await bench.run()

        assert [call.id for call in reply.tool_calls] == ["r00001c01", "r00001c02", "r00001c03"]
        assert reply.tool_calls[1].arguments == more.arguments
        assert [call.repeat for call in reply.tool_calls] == [0, 0, 1]


async def test_an_artifact_of_a_dropped_call_is_taken_back() -> None:
    """It was shown while the call was written; the other call is shown in its place, whole."""
    steps = [
        tool_call("artifact_update", artifact_arguments("One.", artifact_id="one")),
        tool_call("artifact_update", artifact_arguments("Two.", artifact_id="two"), index=1),
    ]
    plugin = After(make=last_call)
    gate = asyncio.Event()
    async with (
        ScriptedOpenAI([Reply([*steps, gate])]) as provider,
        model_bench(provider, agent=agent(artifacts(), plugin)) as bench,
    ):
        running = asyncio.create_task(bench.run())
        await bench.until(is_chunk)
        gate.set()
        reply = await running

        assert [call.id for call in reply.tool_calls] == ["r00001c01"]
        assert await artifact_text(bench, "one") in {"", None}
        assert await artifact_text(bench, "two") == "Two."


async def test_an_artifact_is_not_mixed_up_with_that_of_a_dropped_call() -> None:
    """Not even for a moment: the call before it would have extended another one."""
    gate = asyncio.Event()
    steps = [
        tool_call("artifact_update", artifact_arguments("More.", append=True)),
        tool_call("artifact_update", artifact_arguments("Two.", artifact_id="two"), index=1),
    ]
    async with (
        ScriptedOpenAI([Reply([*steps, gate])]) as provider,
        model_bench(provider, agent=agent(artifacts(), After(make=last_call))) as bench,
    ):
        await begin_doc(bench)
        running = asyncio.create_task(bench.run())
        await bench.until(lambda event: isinstance(event, ArtifactChunk) and event.artifact_id == "two")
        gate.set()
        await running

        chunks = [event for event in await bench.events() if isinstance(event, ArtifactChunk)]
        said = [text_of((chunk.part,)) for chunk in chunks if chunk.artifact_id == "two"]
        assert said
        assert not any(BASE in text for text in said)
        assert (await artifact_text(bench, "two"), await artifact_text(bench)) == ("Two.", BASE)

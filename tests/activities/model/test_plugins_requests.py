"""What plugins do with the request of a model call: prompts, messages, tools, and settings."""

import json
from dataclasses import replace

from everloop.agents.hooks import HookContext
from everloop.agents.plugins import async_prompt, prompt, tools
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CREATE_TASK
from everloop.workflows.contract.messages import ListedTool, ToolsMessage, Usage
from tests.support.rigs.model_plugins import After, Before, agent, failure_of, in_capitals
from tests.support.rigs.model_rig import model_bench, search
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI


async def test_prompts_are_written_for_each_call() -> None:
    """In the order of the plugins, by priority first; each knows where the task stands."""

    async def tell_iteration(context: HookContext) -> str:
        return f"{context.agent_id} {context.owner} {context.iteration} {context.usage.input_tokens}"

    async def say_nothing(_: HookContext) -> str:
        return ""

    urgent = prompt("First.")
    urgent.priority = -1
    composed = agent(
        prompt("Second."),
        async_prompt(tell_iteration),
        async_prompt(say_nothing),
        prompt("Last.", "after"),
        urgent,
    )
    script = [Reply(["a"]), Reply(["b"])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=composed) as bench:
        await bench.run()
        later = {"iteration": 2, "length": 2, "new": (), "usage": Usage(input_tokens=7)}
        await bench.run(bench.call.model_copy(update=later))

        contents = [[m["content"] for m in request.conversation] for request in provider.requests]
        assert contents[0] == ["First.\n\nSecond.\n\nagent o 1 0", "Hi", "Last."]
        assert contents[1] == ["First.\n\nSecond.\n\nagent o 2 7", "Hi", "a", "Last."]


async def test_a_plugin_changes_the_request() -> None:
    """What it makes of messages, tools and settings is what the provider gets, in this call alone."""
    plugin = Before(
        make=lambda asked: replace(
            asked,
            messages=(*asked.messages, {"role": "system", "content": "Now."}),
            tools=(),
            settings={"temperature": 0.1},
        )
    )
    async with (
        ScriptedOpenAI([Reply(["Hi"])]) as provider,
        model_bench(provider, agent=agent(prompt("Be brief."), tools(search), plugin)) as bench,
    ):
        await bench.run(bench.call.model_copy(update={"usage": Usage(output_tokens=3)}))

        body = provider.requests[0].body
        ((context, asked),) = plugin.asked
        assert [message["content"] for message in provider.requests[0].conversation] == [
            "Be brief.",
            "Hi",
            "Now.",
        ]
        assert ("tools" in body, body["temperature"], body["stream"]) == (False, 0.1, True)
        assert (asked.model, asked.tools) == ("test-model", ("search",))
        assert (context.task_id, context.iteration, context.usage) == (
            bench.task.task_id,
            1,
            Usage(output_tokens=3),
        )


async def test_a_plugin_sees_the_tools_that_others_have_listed() -> None:
    """They are offered like the agent's own, and may be taken away like them."""
    plugin = Before(make=lambda asked: replace(asked, tools=("listed",)))
    listed = ToolsMessage(
        tools=tuple(ListedTool(name=n, description="", parameters={}) for n in ("listed", "other"))
    )
    async with (
        ScriptedOpenAI([Reply(["Hi"])]) as provider,
        model_bench(provider, agent=agent(tools(search), plugin)) as bench,
    ):
        await bench.transcripts.put(bench.task.task_id, bench.task.run_id, 0, [listed])
        await bench.run(bench.call.model_copy(update={"length": 2}))

        offered = json.dumps(provider.requests[0].body["tools"])
        assert plugin.asked[0][1].tools == ("search", "listed", "other")
        assert offered.count('"function": {') == 1
        assert '"name": "listed"' in offered
        assert provider.requests[0].messages == [{"role": "user", "content": "Hi"}]


async def test_the_price_of_another_model_has_to_be_known_too() -> None:
    """A plugin cannot get around a limit of cost by changing the model."""
    plugin = Before(make=lambda asked: replace(asked, model="free-model"))
    async with ScriptedOpenAI() as provider, model_bench(provider, agent=agent(plugin)) as bench:
        bench.call = bench.call.model_copy(update={"model": "priced-model", "needs_price": True})

        assert (await failure_of(bench)).type == failures.PRICE_UNKNOWN
        assert provider.requests == []


async def test_a_deciding_call_is_looked_at_too() -> None:
    """Its one tool may be taken away; its answer is not shown by the call."""
    before = Before(make=lambda asked: replace(asked, tools=()))
    async with (
        ScriptedOpenAI([Reply(["Four."])]) as provider,
        model_bench(provider, agent=agent(before, After(make=in_capitals))) as bench,
    ):
        reply = await bench.run(bench.call.model_copy(update={"routing": True}))

        assert before.asked[0][1].tools == (CREATE_TASK,)
        assert "tools" not in provider.requests[0].body
        assert (reply.text, await bench.response()) == ("FOUR.", None)

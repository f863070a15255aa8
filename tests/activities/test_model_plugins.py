"""What plugins do with a model call: prompts, changes, vetoes, and failures that they hear of."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest
from temporalio.exceptions import ApplicationError

from activities.provider_errors import MODEL_FAILURES
from agents.agent import Agent
from agents.artifact_tools import artifacts
from agents.hooks import HookContext, ModelRequest, Veto
from agents.plugins import Plugin, async_prompt, prompt, tools
from agents.responder import Turn
from tests.support.artifact_writer_bench import BASE, begin_doc
from tests.support.artifact_writer_bench import arguments as artifact_arguments
from tests.support.artifact_writer_bench import text as artifact_text
from tests.support.model_bench import ModelBench, model_bench, search
from tests.support.scripted_openai import Answer, Refusal, Reply, ScriptedOpenAI, tool_call
from workflows.contract import failures
from workflows.contract.calls import CREATE_TASK
from workflows.contract.events import ArtifactChunk, TaskEvent, ToolCalled
from workflows.contract.messages import (
    AssistantMessage,
    ListedTool,
    ToolCall,
    ToolsMessage,
    Usage,
    UserMessage,
    text_of,
)


@dataclass(kw_only=True, eq=False)
class Before(Plugin):
    """Makes a request of a request; remembers what it was asked."""

    make: Callable[[ModelRequest], ModelRequest | Veto | None]
    asked: list[tuple[HookContext, ModelRequest]] = field(
        default_factory=list[tuple[HookContext, ModelRequest]]
    )

    async def before_model_call(
        self, context: HookContext, request: ModelRequest
    ) -> ModelRequest | Veto | None:
        self.asked.append((context, request))
        return self.make(request)


@dataclass(kw_only=True, eq=False)
class After(Plugin):
    """Makes a reply of a reply; remembers what it was asked."""

    make: Callable[[AssistantMessage], AssistantMessage | Veto | None]
    asked: list[AssistantMessage] = field(default_factory=list[AssistantMessage])

    async def after_model_call(
        self, context: HookContext, reply: AssistantMessage
    ) -> AssistantMessage | Veto | None:
        self.asked.append(reply)
        return self.make(reply)


class Listener(Plugin):
    """Hears of errors."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[int, str]] = []

    async def on_error(self, context: HookContext, error: str) -> None:
        self.heard.append((context.iteration, error))


def agent(*plugins: Plugin, **fields: object) -> Agent:
    return Agent(id="agent", name="Agent", description="", plugins=plugins, **fields)  # pyright: ignore[reportArgumentType] -- settings of a test


def without_calls(reply: AssistantMessage) -> AssistantMessage:
    return reply.model_copy(update={"tool_calls": ()})


def last_call(reply: AssistantMessage) -> AssistantMessage:
    return reply.model_copy(update={"tool_calls": reply.tool_calls[-1:]})


def in_capitals(reply: AssistantMessage) -> AssistantMessage:
    return reply.model_copy(update={"text": reply.text.upper()})


def fails(_: object) -> None:
    raise ValueError("no idea")


def is_chunk(event: TaskEvent) -> bool:
    return isinstance(event, ArtifactChunk)


async def failure_of(bench: ModelBench) -> ApplicationError:
    """Run the call, which has to fail for good."""
    with pytest.raises(ApplicationError) as caught:
        await bench.run()
    assert caught.value.non_retryable
    assert caught.value.__cause__ is None
    return caught.value


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


async def _no_prompt(_: HookContext) -> str:
    raise ValueError("no idea")


async def _number(_: HookContext) -> str:
    return 1  # pyright: ignore[reportReturnType] -- what a plugin may do


@pytest.mark.parametrize(
    ("writer", "problem"),
    [(_no_prompt, "ValueError: no idea"), (_number, "it is a int, not a text")],
)
async def test_a_prompt_that_cannot_be_written_ends_the_call(
    writer: Callable[[HookContext], Awaitable[str]], problem: str
) -> None:
    """The failure names the plugin; nobody is asked without its prompt."""
    async with (
        ScriptedOpenAI() as provider,
        model_bench(provider, agent=agent(async_prompt(writer))) as bench,
    ):
        failure = await failure_of(bench)

        assert failure.type == failures.PLUGIN_FAILED
        assert failure.message == f"plugin 'async_prompt' failed in its system prompt: {problem}"
        assert provider.requests == []


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


@pytest.mark.parametrize(
    ("plugin", "kind", "told"),
    [
        (Before(make=lambda _: Veto("not today")), failures.PLUGIN_VETO, "not today"),
        (Before(make=lambda _: Veto("")), failures.PLUGIN_VETO, "the plugin 'before'"),
        (
            Before(make=fails),
            failures.PLUGIN_FAILED,
            "plugin 'before' failed in before_model_call: ValueError",
        ),
        (
            Before(make=lambda asked: replace(asked, settings={"stream": False})),
            failures.PLUGIN_FAILED,
            "a plugin of agent 'agent' failed in before_model_call: stream cannot be set",
        ),
        (After(make=fails), failures.PLUGIN_FAILED, "plugin 'after' failed in after_model_call: ValueError"),
    ],
)
async def test_a_plugin_ends_the_call(plugin: Plugin, kind: str, told: str) -> None:
    """By a veto before it, or by failing; nothing of it is shown, and the plugins hear of it."""
    listener = Listener()
    async with (
        ScriptedOpenAI([Reply(["Hi"])]) as provider,
        model_bench(provider, agent=agent(plugin, listener)) as bench,
    ):
        failure = await failure_of(bench)

        assert failure.type == kind
        assert failure.message.startswith(told)
        assert listener.heard == [(1, failure.message)]
        assert len(provider.requests) == isinstance(plugin, After)
        assert await bench.response_text() == ""


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
        assert {chunk.attempt for chunk in chunks} == {10}


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
    """Outcomes are recorded by them."""
    more = ToolCall(id="a", name="search", arguments='{"query": "more"}')
    plugin = After(
        make=lambda reply: reply.model_copy(update={"tool_calls": (*reply.tool_calls, more, more)})
    )
    async with (
        ScriptedOpenAI([Reply([tool_call("search", id_="a")])]) as provider,
        model_bench(provider, agent=agent(tools(search), plugin)) as bench,
    ):
        reply = await bench.run()

        assert [call.id for call in reply.tool_calls] == ["a", "a-1", "a-1-2"]
        assert reply.tool_calls[1].arguments == more.arguments


async def test_an_artifact_of_a_dropped_call_is_taken_back() -> None:
    """It was shown while the call was written; the other call is shown in its place, whole."""
    steps = [
        tool_call("artifact_update", artifact_arguments("One.", artifact_id="one"), id_="a"),
        tool_call("artifact_update", artifact_arguments("Two.", artifact_id="two"), id_="b", index=1),
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

        assert [call.id for call in reply.tool_calls] == ["b"]
        assert await artifact_text(bench, "one") in {"", None}
        assert await artifact_text(bench, "two") == "Two."


async def test_an_artifact_is_not_mixed_up_with_that_of_a_dropped_call() -> None:
    """Not even for a moment: the call before it would have extended another one."""
    gate = asyncio.Event()
    steps = [
        tool_call("artifact_update", artifact_arguments("More.", append=True), id_="a"),
        tool_call("artifact_update", artifact_arguments("Two.", artifact_id="two"), id_="b", index=1),
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


@pytest.mark.parametrize(
    ("answer", "earlier_failures", "heard"),
    [(Refusal(401), 0, 1), (Refusal(503), MODEL_FAILURES - 1, 1), (Refusal(503), 0, 0)],
    ids=["refused", "given up", "tried again"],
)
async def test_plugins_hear_of_a_call_that_failed_for_good(
    answer: Answer, earlier_failures: int, heard: int
) -> None:
    """Not of one that is tried again."""
    listener = Listener()
    async with ScriptedOpenAI([answer]) as provider, model_bench(provider, agent=agent(listener)) as bench:
        with pytest.raises(ApplicationError) as caught:
            await bench.run(failures=earlier_failures)

        assert listener.heard == [(1, caught.value.message)] * heard


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

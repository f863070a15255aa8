"""Plugins around a model call: changes of requests and replies, and ends of calls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from everloop.activities.model.model_retries import RETRIES
from everloop.agents.agent import Turn
from everloop.agents.guard import budget
from everloop.agents.hooks import HookContext, Veto
from everloop.agents.limits import ModelSettings
from everloop.agents.plugins import Plugin, async_prompt, prompt, tools
from everloop.models.catalogue import ModelEntry
from everloop.models.interface import ModelRequest
from everloop.workflows.contract import failures
from everloop.workflows.contract.events import ToolCalled
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, Usage
from tests.support.rigs.model_rig import After, Before, Listener, agent, in_capitals, model_rig, search
from tests.support.servers.scripted_openai import Answer, Refusal, Reply, Step, tool_call


async def test_prompts_are_written_for_each_call() -> None:
    """Prompts of plugins are written for each call, by priority and order, with the state of the task."""

    async def tell_iteration(context: HookContext) -> str:
        return f"{context.agent_id} {context.owner} {context.iteration} {context.usage.input_tokens}"

    async def say_nothing(_: HookContext) -> str:
        return ""

    urgent = prompt("First.")
    urgent.priority = -1
    written = (async_prompt(tell_iteration), async_prompt(say_nothing))
    composed = agent(prompt("Second."), *written, prompt("Last.", "after"), urgent)
    async with model_rig([Reply(["a"]), Reply(["b"])], agent=composed) as rig:
        await rig.run()
        await rig.run(rig.changed(iteration=2, length=2, new=(), usage=Usage(input_tokens=7)))
        assert [[m["content"] for m in request.conversation] for request in rig.provider.requests] == [
            ["First.\n\nSecond.\n\nagent o 1 0", "Hi", "Last."],
            ["First.\n\nSecond.\n\nagent o 2 7", "Hi", "a", "Last."],
        ]


async def test_a_plugin_changes_the_request() -> None:
    """A plugin's changes of messages, tools and settings reach the provider in this call alone."""

    def change(asked: ModelRequest) -> ModelRequest:
        more = {"role": "system", "content": "Now."}
        settings = replace(asked.settings, temperature=0.1, seed=None)
        return replace(asked, messages=(*asked.messages, more), tools=(), settings=settings)

    plugin = Before(make=change)
    async with model_rig([Reply(["Hi"])], agent=agent(prompt("Be brief."), tools(search), plugin)) as rig:
        pinned = ModelSettings(seed=1, effort="low", extra_body={"top_k": 5})
        await rig.run(rig.changed(usage=Usage(output_tokens=3), settings=pinned))
        [request], ((context, asked),) = rig.provider.requests, plugin.asked
        assert [message["content"] for message in request.conversation] == ["Be brief.", "Hi", "Now."]
        sent = {
            name: value for name, value in request.body.items() if name not in {"messages", "stream_options"}
        }
        assert sent == {
            "model": "test-model",
            "stream": True,
            "temperature": 0.1,
            "reasoning_effort": "low",
            "top_k": 5,
        }
        assert asked.settings == pinned
        assert (asked.model, [tool.name for tool in asked.tools]) == ("openai/test-model", ["search"])
        assert (context.task_id, context.iteration, context.usage.output_tokens) == (rig.task.task_id, 1, 3)


@pytest.mark.parametrize("limits", [[], [budget(cost=1)]], ids=["a limit", "a budget"])
async def test_the_price_of_another_model_has_to_be_known_too(limits: list[Plugin]) -> None:
    """With a limit of cost or a budget, a plugin cannot change the model to one without a price."""
    plugin = Before(make=lambda asked: replace(asked, model="free-model"))
    async with model_rig(agent=agent(plugin, *limits)) as rig:
        failure = await rig.fail(rig.changed(model="priced-model", needs_price=not limits))
        assert (failure.type, failure.non_retryable) == (failures.PRICE_UNKNOWN, True)
        assert rig.provider.requests == []


async def test_a_changed_text_replaces_the_one_that_was_streamed() -> None:
    """A text that a plugin changes replaces the streamed one; plugins are asked once for a stored reply."""
    gate, plugin = asyncio.Event(), After(make=in_capitals)
    async with model_rig([Reply(["Hel", gate, "lo"])], agent=agent(plugin)) as rig:
        running = await rig.begin()
        assert await rig.answer() == ("Hel", False)
        gate.set()
        reply = await running
        again = await rig.run(attempt=2)  # the worker died after it had stored the reply
        assert (reply.text, again, await rig.answer()) == ("HELLO", reply, ("HELLO", True))
        assert [asked.text for asked in plugin.asked] == ["Hello"]
        assert len(rig.provider.requests) == 1


@dataclass(kw_only=True, eq=False)
class Slow(After):
    """A plugin that waits for its gate before it judges."""

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
    """A reply whose worker died while plugins judged it is judged again, without another model call."""
    plugin = Slow(make=in_capitals)
    async with model_rig([Reply([*written])], agent=agent(tools(search), plugin)) as rig:
        first = asyncio.create_task(rig.run(attempt=1))
        await plugin.is_asked.wait()
        first.cancel()
        await asyncio.wait({first})
        plugin.gate.set()
        reply = await rig.run(attempt=2)
        assert len(rig.provider.requests) == 1
        assert reply.text == str(written[0]).upper()
        assert [call.name for call in reply.tool_calls] == ["search"] * (len(written) - 1)
        assert reply.usage == Usage(input_tokens=10, output_tokens=5, cost=None)
        assert await rig.text("response") == shown
        assert await rig.leases.kept(rig.task.task_id, f"reply {rig.task.run_id} 1.0") is None


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (After(make=lambda _: Veto("too rude")), "too rude"),
        (After(make=lambda _: Veto("")), "the plugin 'after' does not allow it"),
        (After(make=lambda reply: reply.model_copy(update={"refused": "no", "usage": Usage()})), "no"),
    ],
    ids=["veto", "for no reason", "as a field"],
)
async def test_a_reply_that_is_vetoed_does_not_stand(plugin: After, reason: str) -> None:
    """A vetoed reply has its text for the model and its cost, but neither calls nor a draft."""
    script = [Reply(["Fool!", tool_call("search")]), Reply(["Sorry."])]
    async with model_rig(script, agent=agent(tools(search), plugin)) as rig:
        reply = await rig.run()
        assert (reply.refused, reply.text, reply.tool_calls) == (reason, "Fool!", ())
        assert reply.usage == Usage(input_tokens=10, output_tokens=5, cost=None)
        assert await rig.events_of(ToolCalled) == []
        assert await rig.run(attempt=2) == reply  # the worker died before Temporal received the reply
        assert await rig.answer() in (None, ("", False))


async def test_replies_of_a_function_are_looked_at_too() -> None:
    """Replies of a function are judged as those of a model; it has no request to change."""

    async def respond(_: Turn) -> AssistantMessage:
        return AssistantMessage(text="Fool!", closing="bye", rejects=True)

    before = Before(make=lambda _: Veto("never"))
    veto = After(make=lambda reply: Veto("too rude") if reply.rejects else None)
    async with model_rig(agent=agent(before, veto, respond=respond)) as rig:
        reply = await rig.run()
        assert (reply.refused, reply.text, reply.closing, reply.rejects) == ("too rude", "Fool!", "", False)
        assert await rig.answer() is None
        assert (before.asked, len(veto.asked)) == ([], 1)
        assert await rig.run(attempt=2) == reply
    async with model_rig(agent=agent(After(make=in_capitals), respond=respond)) as rig:
        assert (await rig.run()).text == "FOOL!"
        assert await rig.text("response") == "FOOL!"


async def test_a_call_that_is_dropped_is_none() -> None:
    """Without the calls that a plugin dropped, which are not shown, a text is the answer."""
    dropping = After(make=lambda reply: reply.model_copy(update={"tool_calls": ()}))
    async with model_rig(
        [Reply(["Well. ", tool_call("search")])], agent=agent(tools(search), dropping)
    ) as rig:
        assert (await rig.run()).tool_calls == ()
        assert await rig.answer() == ("Well. ", True)
        assert await rig.events_of(ToolCalled) == []


async def test_calls_that_a_plugin_adds_have_ids_of_their_own() -> None:
    """Calls that a plugin adds get ids by their position in the final reply, so that equal calls differ."""
    more = ToolCall(id="a", name="search", arguments='{"query": "more"}')
    adding = After(
        make=lambda reply: reply.model_copy(update={"tool_calls": (*reply.tool_calls, more, more)})
    )
    async with model_rig([Reply([tool_call("search")])], agent=agent(tools(search), adding)) as rig:
        calls = (await rig.run()).tool_calls
        assert [call.id for call in calls] == ["r00001c01", "r00001c02", "r00001c03"]
        assert calls[1].arguments == more.arguments
        assert [call.repeat for call in calls] == [0, 0, 1]


async def _no_prompt(_: HookContext) -> str:
    raise ValueError("no idea")


async def _number(_: HookContext) -> str:
    return 1  # pyright: ignore[reportReturnType] -- what a plugin may do


@pytest.mark.parametrize(
    ("writer", "problem"), [(_no_prompt, "ValueError: no idea"), (_number, "it is a int, not a text")]
)
async def test_a_prompt_that_cannot_be_written_ends_the_call(
    writer: Callable[[HookContext], Awaitable[str]], problem: str
) -> None:
    """A prompt function that fails ends the call with the plugin's name, and no model is asked."""
    async with model_rig(agent=agent(async_prompt(writer))) as rig:
        failure = await rig.fail()
        assert (failure.type, failure.non_retryable) == (failures.PLUGIN_FAILED, True)
        assert failure.message == f"plugin 'async_prompt' failed in its system prompt: {problem}"
        assert rig.provider.requests == []


def fails(_: object) -> None:
    raise ValueError("no idea")


def misspells(asked: ModelRequest) -> ModelRequest:
    settings: dict[str, Any] = {"temprature": 1}
    return replace(asked, settings=replace(asked.settings, **settings))


MISSPELT = "plugin 'before' failed in before_model_call: AgentDefinitionError: ModelSettings: it has no "


def _says(content: Any) -> Callable[[ModelRequest], ModelRequest]:  # noqa: ANN401 -- whatever a plugin may give
    return lambda asked: replace(asked, messages=(*asked.messages, {"role": "user", "content": content}))


def sets_nan(asked: ModelRequest) -> ModelRequest:
    return replace(asked, settings=ModelSettings(extra_body={"x": float("nan")}))


NO_JSON = "a plugin of agent 'agent' failed in before_model_call: its messages or settings are no JSON"


ENDINGS: Sequence[tuple[Plugin, str, str]] = [
    (Before(make=lambda _: Veto("not today")), failures.PLUGIN_VETO, "not today"),
    (Before(make=lambda _: Veto("")), failures.PLUGIN_VETO, "the plugin 'before'"),
    (Before(make=fails), failures.PLUGIN_FAILED, "plugin 'before' failed in before_model_call: ValueError"),
    (Before(make=misspells), failures.PLUGIN_FAILED, MISSPELT),
    (Before(make=_says(datetime(2026, 1, 1, tzinfo=UTC))), failures.PLUGIN_FAILED, NO_JSON),
    (Before(make=_says("\ud800")), failures.PLUGIN_FAILED, NO_JSON),
    (Before(make=sets_nan), failures.PLUGIN_FAILED, NO_JSON),
    (After(make=fails), failures.PLUGIN_FAILED, "plugin 'after' failed in after_model_call: ValueError"),
]


@pytest.mark.parametrize(("plugin", "kind", "told"), ENDINGS)
async def test_a_plugin_ends_the_call(plugin: Plugin, kind: str, told: str) -> None:
    """A plugin ends the call by a veto or a failure; nothing is shown, and all plugins are notified."""
    listener = Listener()
    async with model_rig([Reply(["Hi"])], agent=agent(plugin, listener)) as rig:
        failure = await rig.fail()
        assert (failure.type, failure.non_retryable, failure.__cause__) == (kind, True, None)
        assert failure.message.startswith(told)
        assert listener.heard == [(1, failure.message)]
        assert len(rig.provider.requests) == isinstance(plugin, After)
        assert (await rig.text("response") or "") == ""


@pytest.mark.parametrize(
    ("answer", "earlier", "heard"),
    [(Refusal(401), 0, 1), (Refusal(503), RETRIES, 1), (Refusal(503), 0, 0)],
    ids=["refused", "given up", "tried again"],
)
async def test_plugins_hear_of_a_call_that_failed_for_good(answer: Answer, earlier: int, heard: int) -> None:
    """Plugins are notified of a final failure, not of one that is retried."""
    listener = Listener()
    async with model_rig([answer], agent=agent(listener)) as rig:
        failure = await rig.fail(failures=earlier)
        assert listener.heard == [(1, failure.message)] * heard


@pytest.mark.parametrize(
    ("of_hook", "of_agent", "of_model"),
    [(None, None, 2), (None, 2, 9), (2, 9, 9)],
    ids=["model", "agent", "hook"],
)
async def test_a_call_is_tried_again_as_settings_say(
    of_hook: int | None, of_agent: int | None, of_model: int
) -> None:
    """The retries of the hook's settings come before the agent's, and these before the model's."""
    hooks = (
        [Before(make=lambda asked: replace(asked, settings=ModelSettings(retries=of_hook)))]
        if of_hook
        else []
    )
    entries = {"test-model": ModelEntry(settings=ModelSettings(retries=of_model))}
    async with model_rig([Refusal(503)] * 2, agent=agent(*hooks), models=entries) as rig:
        call = rig.changed(settings=ModelSettings(retries=of_agent))
        ends = [(await rig.fail(call, failures=earlier)).non_retryable for earlier in (1, 2)]
    assert ends == [False, True]

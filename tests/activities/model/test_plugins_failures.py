"""Plugins that end a model call, and failures of it that they hear of."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from temporalio.exceptions import ApplicationError

from everloop.activities.model.failures import MODEL_FAILURES
from everloop.agents.hooks import HookContext, Veto
from everloop.agents.plugins import Plugin, async_prompt
from everloop.workflows.contract import failures
from tests.support.rigs.model_plugins import After, Before, Listener, agent, failure_of
from tests.support.rigs.model_rig import model_bench
from tests.support.servers.scripted_openai import Answer, Refusal, Reply, ScriptedOpenAI


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


def fails(_: object) -> None:
    raise ValueError("no idea")


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

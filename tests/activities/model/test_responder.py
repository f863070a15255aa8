"""Agents whose replies come from a function of theirs instead of a language model, and agents that decide."""

import json

import pytest
from temporalio.exceptions import ApplicationError

from everloop.agents.agent import Agent, Responder, Turn
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CREATE_TASK
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage, UserMessage, text_of
from tests.support.rigs.model_rig import AGENT, QUESTION, model_bench
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI, tool_call


def agent(respond: Responder) -> Agent:
    return Agent(id="agent", name="Agent", description="", respond=respond)


async def test_a_function_stands_in_for_the_model() -> None:
    """It gets the whole transcript; its text is the answer, and no provider is asked."""
    turns: list[Turn] = []

    async def respond(turn: Turn) -> AssistantMessage:
        turns.append(turn)
        (said,) = turn.messages
        assert isinstance(said, UserMessage)
        return AssistantMessage(text=f"You said {text_of(said.parts)}.")

    async with ScriptedOpenAI([]) as provider, model_bench(provider, agent=agent(respond)) as bench:
        reply = await bench.run()

        response = await bench.response()
        assert reply.text == "You said Hi."
        assert response
        assert (await bench.response_text(), response.complete) == ("You said Hi.", True)
        assert provider.requests == []
        assert [turn.decides for turn in turns] == [False]


async def test_the_reply_that_was_stored_first_counts() -> None:
    """An attempt that comes again returns it, and does not ask the function again."""
    replies = iter(["first", "second"])

    async def respond(_: Turn) -> AssistantMessage:
        return AssistantMessage(text=next(replies))

    async with ScriptedOpenAI([]) as provider, model_bench(provider, agent=agent(respond)) as bench:
        assert [(await bench.run()).text for _ in range(2)] == ["first", "first"]


async def test_a_function_that_fails_ends_the_call() -> None:
    """The failure is named and final: the same turn would fail again."""

    async def respond(_: Turn) -> AssistantMessage:
        raise ValueError("no idea")

    async with ScriptedOpenAI([]) as provider, model_bench(provider, agent=agent(respond)) as bench:
        with pytest.raises(ApplicationError) as failed:
            await bench.run()

    assert (failed.value.type, failed.value.non_retryable) == (failures.MODEL_REFUSED, True)
    assert "ValueError: no idea" in failed.value.message


async def test_a_reply_without_text_is_no_answer_to_show() -> None:
    """What ends the task is its last status; there is no empty artifact."""

    async def respond(_: Turn) -> AssistantMessage:
        return AssistantMessage(closing="done")

    async with ScriptedOpenAI([]) as provider, model_bench(provider, agent=agent(respond)) as bench:
        reply = await bench.run()

        assert (reply.closing, await bench.response()) == ("done", None)


async def test_a_deciding_call_offers_one_tool_and_shows_nothing() -> None:
    """The model may ask for a task or answer; its words are for the message, not for a stream."""
    async with ScriptedOpenAI([Reply(["Four."])]) as provider, model_bench(provider, agent=AGENT) as bench:
        reply = await bench.run(bench.call.model_copy(update={"routing": True}))

        tools = json.dumps(provider.requests[0].body["tools"])
        assert tools.count('"function": {') == 1
        assert f'"name": "{CREATE_TASK}"' in tools
        assert "these tools can be used: search" in tools
        assert (reply.text, await bench.response()) == ("Four.", None)


async def test_after_the_decision_the_model_has_its_tools() -> None:
    """The deciding call stands in the conversation; `create_task` is offered no more."""
    script = [Reply([tool_call(CREATE_TASK, "{}")]), Reply(["Done."])]
    async with ScriptedOpenAI(script) as provider, model_bench(provider, agent=AGENT) as bench:
        decision = await bench.run(bench.call.model_copy(update={"routing": True}))
        (call,) = decision.tool_calls
        created = ToolMessage(call_id=call.id, name=call.name, content="created")
        messages = [QUESTION, decision, created]
        await bench.transcripts.put(bench.task.task_id, bench.task.run_id, 0, messages)
        await bench.run(bench.call.model_copy(update={"length": 3, "new": ()}))

        tools = json.dumps(provider.requests[1].body["tools"])
        assert call.name == CREATE_TASK
        assert '"name": "search"' in tools
        assert CREATE_TASK not in tools

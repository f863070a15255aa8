"""Agents whose replies come from a function of theirs instead of a language model, and agents that decide."""

import json

from everloop.agents.agent import Agent, Responder, Turn
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CREATE_TASK
from everloop.workflows.contract.messages import AssistantMessage, UserMessage, text_of
from tests.support.rigs.model_rig import model_rig
from tests.support.servers.scripted_openai import Reply


def agent(respond: Responder) -> Agent:
    return Agent(id="agent", name="Agent", description="", respond=respond)


async def test_a_function_stands_in_for_the_model() -> None:
    """It gets the whole transcript; its text is the answer; no provider is asked, nor it again."""
    turns: list[Turn] = []

    async def respond(turn: Turn) -> AssistantMessage:
        turns.append(turn)
        (said,) = turn.messages
        assert isinstance(said, UserMessage)
        return AssistantMessage(text=f"You said {text_of(said.parts)}.")

    async with model_rig(agent=agent(respond)) as rig:
        replies = [await rig.run() for _ in range(2)]
        assert [reply.text for reply in replies] == ["You said Hi."] * 2
        assert await rig.answer() == ("You said Hi.", True)
        assert rig.provider.requests == []
        assert [turn.decides for turn in turns] == [False]


async def test_a_function_that_fails_ends_the_call() -> None:
    """The failure is named and final: the same turn would fail again."""

    async def respond(_: Turn) -> AssistantMessage:
        raise ValueError("no idea")

    async with model_rig(agent=agent(respond)) as rig:
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == (failures.MODEL_REFUSED, True)
    assert "ValueError: no idea" in failure.message


async def test_a_deciding_call_offers_one_tool_and_shows_nothing() -> None:
    """The model may ask for a task or answer; its words are for the message, not for a stream."""
    async with model_rig([Reply(["Four."])]) as rig:
        reply = await rig.run(rig.changed(routing=True))
        tools = json.dumps(rig.provider.requests[0].body["tools"])
        assert tools.count('"function": {') == 1
        assert f'"name": "{CREATE_TASK}"' in tools
        assert "these tools can be used: search" in tools
        assert (reply.text, await rig.answer()) == ("Four.", None)

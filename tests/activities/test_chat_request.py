"""From a transcript to the request that a provider gets."""

import json

import pytest

from activities.chat_request import build_request, readable_arguments
from agents.agent import Agent
from agents.plugins import prompt
from workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)

BARE = Agent(id="bare", name="", description="")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            UserMessage(message_id="m", parts=(TextPart(text="Look:"), DataPart(data={"é": [1, None]}))),
            {"role": "user", "content": 'Look:\n\n{"é": [1, null]}'},
        ),
        (AssistantMessage(text="Hi", reasoning="Hm"), {"role": "assistant", "content": "Hi"}),
        (
            AssistantMessage(text="", tool_calls=(ToolCall(id="a", name="f", arguments='{"x": 1}'),)),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
                ],
            },
        ),
        (
            ToolMessage(call_id="a", name="f", content="1", outcome="unknown"),
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ),
    ],
)
def test_messages_are_translated(message: TranscriptMessage, expected: dict[str, object]) -> None:
    """Each kind of message has its place in Chat Completions; reasoning is not sent back."""
    assert build_request("m", BARE, [message])["messages"] == [expected]


def test_prompts_come_first() -> None:
    """The prompts of the plugins are one system message at the head."""
    agent = Agent(id="a", name="", description="", plugins=[prompt("One."), prompt("Two.")])

    request = build_request("m", agent, [AssistantMessage(text="Hi")])

    assert request["messages"][0] == {"role": "system", "content": "One.\n\nTwo."}


def test_what_an_agent_lacks_is_left_out() -> None:
    """An agent without tools sends no empty list, which providers refuse."""
    assert build_request("m", BARE, []) == {"model": "m", "messages": []}


@pytest.mark.parametrize("written", ["", " ", "{", "[1]", "null", "no JSON", '{"a": 1}'])
def test_arguments_go_back_as_an_object(written: str) -> None:
    """Whatever the model wrote, a provider that parses the transcript can read it."""
    read = json.loads(readable_arguments(written))

    assert isinstance(read, dict)
    assert (written.strip() in read.values()) or read in ({}, {"a": 1})

"""What the conformance agent does for which messageId."""

import json

import pytest

from everloop.agents.agent import Turn
from everloop.examples.conformance import respond
from everloop.workflows.contract.messages import (
    AssistantMessage,
    TextPart,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)


def said(message_id: str) -> UserMessage:
    return UserMessage(message_id=message_id, parts=(TextPart(text="x"),))


def result(name: str, content: str) -> ToolMessage:
    return ToolMessage(call_id="c", name=name, content=content)


async def reply(*messages: TranscriptMessage, decides: bool = False) -> AssistantMessage:
    return await respond(Turn(messages, decides))


@pytest.mark.parametrize(
    ("message_id", "closing", "rejects"),
    [
        ("tck-complete-task-1", "Hello from TCK", False),
        ("tck-reject-task-1", "rejected", True),
        ("tck-stream-002", "done", False),
        ("tck-whatever", "done", False),
    ],
)
async def test_a_task_ends_with_the_words_of_its_prefix(
    message_id: str, closing: str, *, rejects: bool
) -> None:
    """The words are those of the last status; there is no other answer."""
    ended = await reply(said(message_id))

    assert (ended.closing, ended.rejects, ended.text, ended.tool_calls) == (closing, rejects, "", ())


@pytest.mark.parametrize(
    ("message_id", "prefix"),
    [
        ("tck-artifact-text-1", "tck-artifact-text"),
        ("tck-artifact-file-url-1", "tck-artifact-file-url"),
        ("tck-artifact-file-1", "tck-artifact-file"),
        ("tck-artifact-data", "tck-artifact-data"),
        ("tck-stream-ordering-001", "tck-stream-ordering-001"),
    ],
)
async def test_an_artifact_is_left_and_then_the_task_ends(message_id: str, prefix: str) -> None:
    """The longer of two prefixes counts; after the artifact there is nothing more to do."""
    first = await reply(said(message_id))
    (call,) = first.tool_calls
    last = await reply(said(message_id), first, result(call.name, "done"))

    assert (call.name, json.loads(call.arguments)) == ("put_out", {"prefix": prefix})
    assert (last.closing, last.tool_calls) == ("done", ())

"""What the conformance agent does for which messageId."""

import json

import pytest

from everloop.agents.agent import Turn
from everloop.examples import conformance
from everloop.examples.conformance import agent, respond
from everloop.workflows.contract.calls import CREATE_TASK
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


async def test_the_newest_message_decides() -> None:
    """After its question the task does what the answer's messageId says, which may be to ask again."""
    asked = await reply(said("tck-input-required"))
    (call,) = asked.tool_calls
    again = await reply(said("tck-input-required"), asked, result(call.name, "tck-input-required-2"))
    done = await reply(said("tck-input-required"), asked, result(call.name, "tck-complete-task"))
    interrupted = await reply(said("tck-input-required"), asked, said("tck-reject-task"))

    assert call.name == again.tool_calls[0].name == "wait_for_input"
    assert done.closing == "Hello from TCK"
    assert interrupted.rejects


async def test_only_a_message_response_is_no_task() -> None:
    """The first call decides; after `create_task` the task does what it would have done."""
    direct = await reply(said("tck-message-response"), decides=True)
    first = await reply(said("tck-complete-task"), decides=True)
    then = await reply(said("tck-complete-task"), first, result(CREATE_TASK, "created"))

    assert (direct.text, direct.tool_calls) == ("Direct message response", ())
    assert [call.name for call in first.tool_calls] == [CREATE_TASK]
    assert then.closing == "Hello from TCK"


async def test_an_unknown_message_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment of work the task waits for input."""
    monkeypatch.setattr(conformance, "THINKING_TIME", 0)

    asked = await reply(said("anything"))

    assert [call.name for call in asked.tool_calls] == ["wait_for_input"]


def test_the_agent_takes_repeated_messages_and_decides() -> None:
    """Kits repeat messageIds, and one of them wants a message in place of a task."""
    assert (agent.deduplicate, agent.routing) == (False, "auto")
    assert "application/x-unsupported" not in agent.input_modes

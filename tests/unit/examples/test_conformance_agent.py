"""How the conformance agent ends a task; what it writes and asks is tested by the conformance suite."""

import pytest

from everloop.agents.agent import Turn
from everloop.examples.conformance_agent import respond
from everloop.workflows.contract.messages import TextPart, UserMessage


@pytest.mark.parametrize(
    ("message_id", "closing", "rejects"),
    [
        ("tck-complete-task-1", "Hello from TCK", False),
        ("tck-reject-task-1", "rejected", True),
        ("tck-whatever", "done", False),
    ],
)
async def test_a_task_ends_as_its_prefix_says(message_id: str, closing: str, *, rejects: bool) -> None:
    """With these words in its last status, and no other answer."""
    message = UserMessage(message_id=message_id, parts=(TextPart(text="x"),))

    ended = await respond(Turn((message,), decides=False))

    assert (ended.closing, ended.rejects, ended.text, ended.tool_calls) == (closing, rejects, "", ())

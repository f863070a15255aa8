"""SendMessage: A2A 1.0 §3.1.1, §3.2, §3.4."""

import pytest
from a2a.types import a2a_pb2 as pb

from tests.conformance.messages import ASKS, COMPLETES, REJECTS, TERMINAL, WRITES_TEXT, fresh, message
from tests.support.wires.agent import Agent, refusal


async def test_a_blocking_send_returns_the_ended_task(agent: Agent) -> None:
    """Without returnImmediately the answer waits for a terminal state and has the artifacts (§3.2.2)."""
    task = await agent.send(message(WRITES_TEXT))
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert [part.text for artifact in task.artifacts for part in artifact.parts] == ["Generated text content"]


async def test_ids_are_generated_and_unique(agent: Agent) -> None:
    """The server makes the id of a task, and of a context that the client does not name (§3.4.1, §3.4.2)."""
    first, second = await agent.send(message(COMPLETES)), await agent.send(message(COMPLETES))
    assert first.id
    assert first.context_id
    assert first.id != second.id
    assert first.context_id != second.context_id


@pytest.mark.parametrize("with_context", [False, True], ids=["task id alone", "task id and context id"])
async def test_a_follow_up_continues_its_task(agent: Agent, *, with_context: bool) -> None:
    """A message with the id of an interrupted task goes on with it; its context is inferred (§3.4.3)."""
    asking = await agent.send(message(ASKS))
    request = message(COMPLETES, taskId=asking.id)
    request.message.context_id = asking.context_id if with_context else ""
    done = await agent.send(request)
    assert (done.id, done.context_id) == (asking.id, asking.context_id)
    assert done.status.state == pb.TASK_STATE_COMPLETED


async def test_a_task_may_ask_again_and_again(agent: Agent) -> None:
    """A follow-up that leads to another question leaves the task interrupted, not ended (§3.4.3)."""
    task = await agent.send(message(ASKS))
    for _ in range(2):
        task = await agent.send(message(ASKS, taskId=task.id))
        assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED
    task = await agent.send(message(COMPLETES, taskId=task.id))
    assert task.status.state == pb.TASK_STATE_COMPLETED


async def test_the_context_of_another_task_is_refused(agent: Agent) -> None:
    """A context id that is not the task's is an invalid parameter (§3.4.3)."""
    asking = await agent.send(message(ASKS))
    refused = await refusal(agent.send(message(COMPLETES, taskId=asking.id, contextId=fresh("other"))))
    assert refused.reason == "INVALID_PARAMS"
    assert "contextId" in refused.message
    unharmed = await agent.get(asking.id)
    assert unharmed.status.state == pb.TASK_STATE_INPUT_REQUIRED


@pytest.mark.parametrize("behaviour", [COMPLETES, REJECTS, ASKS])
async def test_an_ended_task_takes_no_message(agent: Agent, behaviour: str) -> None:
    """A message to a terminal task, also a canceled one, is an unsupported operation (§3.1.1)."""
    ended = await agent.send(message(behaviour))
    if behaviour == ASKS:
        ended = await agent.cancel(ended.id)
    assert ended.status.state in TERMINAL
    refused = await refusal(agent.send(message(COMPLETES, taskId=ended.id)))
    assert refused.reason == "UNSUPPORTED_OPERATION"

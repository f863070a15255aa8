"""GetTask and CancelTask: A2A 1.0 §3.1.3, §3.1.5, §3.3.1."""

import asyncio

import pytest
from a2a.types import a2a_pb2 as pb

from tests.conformance.bindings import Binding, Refusal, refusal
from tests.conformance.messages import ASKS, COMPLETES, LASTS, REJECTS, WRITES_TEXT, fresh, message

IMMEDIATELY = {"returnImmediately": True}


async def test_a_task_can_be_read_as_it_was_sent_back(agent: Binding) -> None:
    """GetTask shows what the send returned: status, artifacts and history (§3.1.3)."""
    sent = await agent.send(message(WRITES_TEXT))
    assert await agent.get(sent.id) == sent


async def test_reading_a_task_changes_nothing(agent: Binding) -> None:
    """Get operations are idempotent (§3.3.1)."""
    asking = await agent.send(message(ASKS))
    assert await agent.get(asking.id) == await agent.get(asking.id)


@pytest.mark.parametrize("operation", ["get", "cancel"])
async def test_an_unknown_task_is_not_found(agent: Binding, operation: str) -> None:
    """A task that does not exist is not found (§3.1.3, §3.1.5)."""
    call = agent.get if operation == "get" else agent.cancel
    refused = await refusal(call(fresh("task")))
    assert refused.reason == "TASK_NOT_FOUND"


async def test_a_waiting_task_is_canceled(agent: Binding) -> None:
    """CancelTask returns the task in its new state, which stays (§3.1.5)."""
    asking = await agent.send(message(ASKS))
    canceled = await agent.cancel(asking.id)
    assert (canceled.id, canceled.status.state) == (asking.id, pb.TASK_STATE_CANCELED)
    assert (await agent.get(asking.id)).status.state == pb.TASK_STATE_CANCELED


async def test_a_working_task_is_canceled(agent: Binding) -> None:
    """A task that works can be canceled, too (§3.1.5)."""
    working = await agent.send(message(LASTS, configuration=IMMEDIATELY))
    canceled = await agent.cancel(working.id)
    assert canceled.status.state == pb.TASK_STATE_CANCELED


async def test_canceling_is_idempotent(agent: Binding) -> None:
    """Canceling again has the same effect, one after the other and at once (§3.3.1)."""
    asking = await agent.send(message(ASKS))
    both = await asyncio.gather(agent.cancel(asking.id), agent.cancel(asking.id))
    again = await agent.cancel(asking.id)
    assert {task.status.state for task in (*both, again)} == {pb.TASK_STATE_CANCELED}


@pytest.mark.parametrize("behaviour", [COMPLETES, REJECTS])
async def test_an_ended_task_cannot_be_canceled(agent: Binding, behaviour: str) -> None:
    """A task that ended in another way is not cancelable, and stays as it is (§3.1.5)."""
    ended = await agent.send(message(behaviour))
    refused = await refusal(agent.cancel(ended.id))
    assert refused.reason == "TASK_NOT_CANCELABLE"
    assert (await agent.get(ended.id)).status == ended.status


async def test_an_empty_task_id_is_refused(agent: Binding) -> None:
    """The id is required (§5.7). REST has no address for a task without one."""
    for operation, request in (("GetTask", pb.GetTaskRequest()), ("CancelTask", pb.CancelTaskRequest())):
        if agent.name == "HTTP+JSON":
            continue
        refused: Refusal = await refusal(agent.call(operation, request))
        assert refused.reason == "INVALID_PARAMS"

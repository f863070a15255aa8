"""What clients hear while a task works: narrations, and what its sub-agents do."""

from a2a.types.a2a_pb2 import TaskState as A2AState
from google.protobuf.json_format import MessageToDict

from everloop.runtime.protocol.tasks import EVENTS_EXTENSION
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.events import AgentInvoked, Narrated, TaskEvent, ToolCalled
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.harness import RunningGateway
from tests.gateway.streams.followed_tasks import FollowedTask, working_task
from tests.gateway.streams.sse import stream
from tests.stores.examples import status

SUBSCRIBE = "SubscribeToTask"
EXTENDED = {"A2A-Extensions": EVENTS_EXTENSION}
NARRATION = Narrated(text="Reading the minutes")


async def say(task: FollowedTask, *events: TaskEvent) -> None:
    await task.views.publish(task.id, "run", events)


async def test_a_narration_is_a_status_with_a_message(gateway: RunningGateway, views: TaskViews) -> None:
    """Each client gets it, at once; with the extension also as what it is."""
    task = await working_task(views)
    for headers in ({}, EXTENDED):
        async with stream(gateway, SUBSCRIBE, {"id": task.id}, **headers) as events:
            await anext(events)
            await say(task, NARRATION)
            update = (await anext(events)).response.status_update
        assert update.status.state == A2AState.TASK_STATE_WORKING
        assert update.status.message.parts[0].text == "Reading the minutes"
        known = MessageToDict(update.metadata).get(EVENTS_EXTENSION, {})
        assert known.pop("at", None) == (MessageToDict(update.status)["timestamp"] if headers else None)
        assert known == ({"kind": "narration", "text": "Reading the minutes"} if headers else {})


async def test_nothing_is_narrated_after_a_question_or_the_end(
    gateway: RunningGateway, views: TaskViews
) -> None:
    """A client that waits for its turn, or has heard the end, is not told that the task works."""
    task = await working_task(views)
    async with stream(gateway, SUBSCRIBE, {"id": task.id}) as events:
        await anext(events)
        await say(task, status(2, TaskState.INPUT_REQUIRED), NARRATION, status(3), NARRATION)
        await say(task, status(4, TaskState.COMPLETED), NARRATION)
        updates = [event.response.status_update.status async for event in events]
    assert [(each.state, each.message.message_id != "") for each in updates] == [
        (A2AState.TASK_STATE_INPUT_REQUIRED, False),
        (A2AState.TASK_STATE_WORKING, False),
        (A2AState.TASK_STATE_WORKING, True),
        (A2AState.TASK_STATE_COMPLETED, False),
    ]


async def test_events_of_sub_agents_come_with_the_extension(
    gateway: RunningGateway, views: TaskViews
) -> None:
    """Who did not activate it hears nothing of them; who did, of all, with their path."""
    task = await working_task(views)
    called = ToolCalled(iteration=1, call_id="c", name="search", arguments="{}")
    async with (
        stream(gateway, SUBSCRIBE, {"id": task.id}) as plain,
        stream(gateway, SUBSCRIBE, {"id": task.id}, **EXTENDED) as extended,
    ):
        await anext(plain)
        await anext(extended)
        child_id = child_task_id(task.id, "call_1")
        await say(task, AgentInvoked(call_id="call_1", agent_id="writer", task_id=child_id))
        await views.publish(child_id, "child", [called, NARRATION, status(1, TaskState.FAILED)])
        await task.complete()
        await views.publish(child_id, "child", [called])
        heard = [event async for event in plain]
        told = [event async for event in extended]

    assert [event.response.status_update.status.state for event in heard] == [A2AState.TASK_STATE_COMPLETED]
    *before, last = [event.response.status_update for event in told]
    assert last.status.state == A2AState.TASK_STATE_COMPLETED
    assert {update.status.state for update in before} == {A2AState.TASK_STATE_WORKING}
    invoked, *inner = [MessageToDict(update.metadata)[EVENTS_EXTENSION] for update in before]
    assert (invoked["kind"], invoked["agent_id"]) == ("agent-invoked", "writer")
    assert [(each["path"], each["event"]["kind"]) for each in inner] == [
        (["call_1"], "tool-call"),
        (["call_1"], "narration"),
        (["call_1"], "status"),
    ]

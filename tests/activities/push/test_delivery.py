"""What a client is notified of, in which order, and in which words."""

import pytest
from a2a.types.a2a_pb2 import StreamResponse
from google.protobuf.json_format import ParseDict

from everloop.runtime.redis import connect_redis
from everloop.stores.push.configs import RedisPushConfigs
from everloop.stores.views.interface import START
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.calls import DeliverPushResult
from everloop.workflows.contract.events import Narrated
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import at, chunk, status, told
from tests.support.rigs.push_rig import PushRig
from tests.support.servers.webhook import Notification, artifacts_of, running_webhook

DONE = DeliverPushResult(done=True)
WAITS = DeliverPushResult()

WORKING, ASKS = "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"
COMPLETED = "TASK_STATE_COMPLETED"


def read(notification: Notification) -> StreamResponse:
    """Read a notification as a strict client of A2A 1.0 does."""
    return ParseDict(notification.body, StreamResponse())


async def test_every_status_is_told_in_order() -> None:
    """From the beginning for a client who was there then; deltas are not told."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(position=START)
        await rig.publish(status(1, message=told("a", "On it.")), chunk("Hel"), chunk("lo", index=1))
        await rig.publish(status(2, TaskState.INPUT_REQUIRED))
        waiting = await rig.deliver_all()
        await rig.publish(status(3), status(4, TaskState.COMPLETED))
        end = await rig.deliver_all()
    assert (waiting, end) == (WAITS, DONE)
    assert hook.states == [WORKING, ASKS, WORKING, COMPLETED]
    first = read(hook.taken[0]).status_update
    assert (first.task_id, first.context_id) == (rig.task.task_id, rig.task.context_id)
    assert first.status.message.parts[0].text == "On it."
    assert first.status.timestamp.ToDatetime() == at(1).replace(tzinfo=None)


async def test_narrations_and_sub_agents_are_not_told() -> None:
    """Who is notified is not there to watch; what passes by is over when it arrives."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(position=START)
        await rig.publish(status(1), Narrated(text="Reading"))
        await rig.views.publish(child_task_id(rig.task.task_id, "call"), "run", [status(1, TaskState.FAILED)])
        await rig.publish(status(2, TaskState.COMPLETED))
        end = await rig.deliver_all()
    assert end == DONE
    assert hook.states == [WORKING, COMPLETED]


async def test_the_same_on_redis(redis_url: str) -> None:
    """The stores of a deployment."""
    async with running_webhook() as hook, connect_redis(redis_url) as redis:
        rig = PushRig(hook.url, views=RedisTaskViews(redis), configs=RedisPushConfigs(redis))
        await rig.begin(position=START)
        await rig.publish(status(1), *(chunk("x", index=n) for n in range(300)))
        await rig.publish(status(2, TaskState.COMPLETED))
        end = await rig.deliver_all()
    assert end == DONE
    assert hook.states == [WORKING, COMPLETED]


async def test_an_artifact_is_told_whole_when_it_is_complete() -> None:
    """Where it stands among the statuses; a draft that was withdrawn, or failed, is not told."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(position=START)
        await rig.publish(
            status(1), chunk("wrong", artifact_id="log"), chunk("Hel"), chunk("lo", index=1, last=True)
        )
        await rig.publish(chunk("", artifact_id="log", index=1, failed=True), status(2, TaskState.COMPLETED))
        await rig.deliver_all()
    update = read(hook.taken[1]).artifact_update
    assert [each.state for each in hook.taken] == [WORKING, "", COMPLETED]
    assert len(artifacts_of(hook.taken)) == 1
    assert (update.artifact.artifact_id, update.artifact.parts[0].text) == ("response", "Hello")
    assert (update.append, update.last_chunk) == (False, True)


async def test_an_artifact_that_begins_anew_is_told_when_it_is_complete_again() -> None:
    """What stood there before is of no use any more."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(position=START)
        await rig.publish(chunk("old", last=True), chunk("ne", position=2))
        await rig.deliver_all()
        await rig.publish(chunk("w", position=2, index=1, last=True))
        await rig.deliver_all()
    (failure_fields,) = artifacts_of(hook.taken)
    assert isinstance(failure_fields, dict)
    assert failure_fields["parts"] == [{"text": "new"}]


async def test_nothing_is_missed_before_the_first_look() -> None:
    """What happened after the config was set, while no worker was there to look at the task."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(status(1))
        await rig.publish(chunk("Hello", last=True), status(2, TaskState.COMPLETED))
        await rig.deliver_all()
    assert [each.state for each in hook.taken] == ["", COMPLETED]
    assert len(artifacts_of(hook.taken)) == 1


async def test_who_comes_while_a_task_waits_hears_all_of_it_later() -> None:
    """Although it works again by then: the task as it stands, with what was made meanwhile."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(status(1, TaskState.INPUT_REQUIRED))
        await rig.publish(status(2), chunk("Hello", last=True))
        await rig.deliver_all()
    (only,) = hook.taken
    assert read(only).task.artifacts[0].parts[0].text == "Hello"


@pytest.mark.parametrize(
    ("state", "is_told"),
    [
        (TaskState.WORKING, False),
        (TaskState.INPUT_REQUIRED, True),
        (TaskState.AUTH_REQUIRED, True),
        (TaskState.FAILED, True),
    ],
)
async def test_who_comes_later_hears_how_the_task_stands(state: TaskState, is_told: bool) -> None:  # noqa: FBT001 -- a column of the table
    """If it has ended, or waits for somebody; what came before is not told one by one."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(status(1), chunk("Hello", last=True), status(2, state))
        result = await rig.deliver_all()
        await rig.publish(status(3, state))
        await rig.deliver_all()
    tasks = [task for each in hook.taken if (task := read(each).task).id]
    assert result.done == state.is_terminal
    assert len(tasks) == is_told
    assert all(task.artifacts[0].parts[0].text == "Hello" for task in tasks)
    assert len(hook.taken) == is_told + 1


async def test_the_headers_say_who_it_is_and_which_notification() -> None:
    """Token and credentials as the client gave them; an id of its own for each, which is no secret."""
    async with running_webhook() as hook:
        rig = PushRig(f"{hook.url}?key=a%20b")
        await rig.begin(position=START)
        await rig.publish(status(1), status(2, TaskState.COMPLETED))
        await rig.deliver_all()
    first, second = hook.taken
    assert first.target == "/hook?key=a%20b"
    assert first.headers["host"] == f"127.0.0.1:{hook.port}"
    assert first.headers["content-type"] == "application/a2a+json"
    assert first.headers["x-a2a-notification-token"] == "the-token"
    assert first.headers["authorization"] == "Bearer the-credentials"
    assert first.headers["webhook-timestamp"].isdecimal()
    assert first.id != second.id


@pytest.mark.parametrize("missing", ["scheme", "credentials"])
async def test_half_an_authentication_is_not_sent(missing: str) -> None:
    """Nor is an empty token."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        rig.config = rig.config.model_copy(update={missing: "", "token": ""})
        await rig.begin(status(1, TaskState.COMPLETED))
        await rig.deliver_all()
    (only,) = hook.taken
    assert "authorization" not in only.headers
    assert "x-a2a-notification-token" not in only.headers


async def test_a_client_of_the_old_version_gets_tasks() -> None:
    """One for each status, in its own JSON; of artifacts it hears with the next status."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(position=START, is_legacy=True)
        await rig.publish(
            status(1), chunk("Hello", last=True), status(2, TaskState.COMPLETED, message=told("m"))
        )
        await rig.deliver_all()

    assert hook.states == ["working", "completed"]
    assert len(hook.taken) == 2
    last = hook.taken[1].body
    assert (last["kind"], last["id"], last["contextId"]) == (
        "task",
        rig.task.task_id,
        rig.task.context_id,
    )
    assert last["artifacts"] == [
        {"artifactId": "response", "name": "Response", "parts": [{"kind": "text", "text": "Hello"}]}
    ]
    assert hook.taken[1].headers["content-type"] == "application/json"

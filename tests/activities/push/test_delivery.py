"""Notifications of clients: content, order, format and end."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import pytest
from a2a.types.a2a_pb2 import StreamResponse
from google.protobuf.json_format import ParseDict
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from everloop.activities.push.delivery import DELIVERY_TIME, WebhookResponse, Webhooks
from everloop.stores.keys import head_key, log_key, push_configs_key
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.stores.push.configs import PushConfigs
from everloop.stores.scripts import Lease, OvertakenError
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract.calls import PUSH_FAILED, TASK_UNREADABLE, DeliverPushResult
from everloop.workflows.contract.events import Narrated, Shown, TaskEvent
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.tasks import TaskState, TaskStatus
from tests.stores.examples import answered, artifact, at, chunk, status, told
from tests.support.fakes.failing import failing
from tests.support.rigs.push_rig import LOOPBACK_ALLOWED, push_rig
from tests.support.servers.webhook import Notification, artifacts_of, running_webhook
from tests.support.stores import database

DONE, WAITS = DeliverPushResult(done=True), DeliverPushResult()
WORKING, ASKS, COMPLETED = "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"
ENDED = status(2, TaskState.COMPLETED)


def read(notification: Notification) -> StreamResponse:
    """Read a notification as a strict client of A2A 1.0 does."""
    return ParseDict(notification.body, StreamResponse())


async def test_every_status_is_delivered_in_order() -> None:
    """Each status is delivered in order from the beginning to a client that was there; deltas are not."""
    async with push_rig() as (rig, hook):
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


async def test_narrations_and_sub_agents_are_not_delivered() -> None:
    """Neither narrations nor events of sub-agents are delivered, even on real stores with many deltas."""
    async with push_rig() as (rig, hook):
        await rig.begin(position=START)
        await rig.publish(status(1), Narrated(text="Reading"), *(chunk("x", index=n) for n in range(300)))
        child = child_task_id(rig.task.task_id, "call")
        await rig.views.publish(child, "run", [status(1, TaskState.FAILED)])
        await rig.publish(ENDED)
        end = await rig.deliver_all()
    assert end == DONE
    assert hook.states == [WORKING, COMPLETED]


Batches = Sequence[Sequence[TaskEvent]]
FAILED_LOG = chunk("", artifact_id="log", index=1, failed=True)
ARTIFACTS: Mapping[str, tuple[Batches, Sequence[str], Sequence[str]]] = {
    "whole when it is complete": (
        [[status(1), chunk("Hel"), chunk("lo", index=1, last=True)], [ENDED]],
        [WORKING, "", COMPLETED],
        ["Hello"],
    ),
    "not if it was withdrawn or failed": (
        [[status(1), chunk("wrong", artifact_id="log")], [FAILED_LOG, ENDED]],
        [WORKING, COMPLETED],
        [],
    ),
    "anew when it is complete again": (
        [
            [chunk("old", last=True), chunk("ne", position=2)],
            [],
            [chunk("w", position=2, index=1, last=True)],
        ],
        [""],
        ["new"],
    ),
}


@pytest.mark.parametrize(("batches", "states", "texts"), ARTIFACTS.values(), ids=ARTIFACTS.keys())
async def test_an_artifact_is_delivered_whole(
    batches: Batches, states: Sequence[str], texts: Sequence[str]
) -> None:
    """An artifact is delivered complete in its place among the statuses; an empty batch flushes it."""
    async with push_rig() as (rig, hook):
        await rig.begin(position=START)
        for batch in batches:
            await (rig.publish(*batch) if batch else rig.deliver_all())
        await rig.deliver_all()
    updates = [read(each).artifact_update for each in hook.taken if not each.state]
    assert [each.state for each in hook.taken] == states
    assert [update.artifact.parts[0].text for update in updates] == texts
    assert all((update.append, update.last_chunk) == (False, True) for update in updates)


async def test_nothing_is_missed_before_the_first_look() -> None:
    """Events between the setting of the config and the first read are delivered."""
    async with push_rig() as (rig, hook):
        await rig.begin(status(1))
        await rig.publish(chunk("Hello", last=True), ENDED)
        await rig.deliver_all()
    assert [each.state for each in hook.taken] == ["", COMPLETED]
    assert len(artifacts_of(hook.taken)) == 1


async def test_who_comes_while_a_task_waits_hears_all_of_it_later() -> None:
    """A client that registers while a task waits gets the task and its artifacts, though it works again."""
    async with push_rig() as (rig, hook):
        await rig.begin(status(1, TaskState.INPUT_REQUIRED))
        await rig.publish(status(2), chunk("Hello", last=True))
        await rig.deliver_all()
    (only,) = hook.taken
    assert read(only).task.artifacts[0].parts[0].text == "Hello"


@pytest.mark.parametrize(
    ("state", "is_delivered"),
    [
        (TaskState.WORKING, False),
        (TaskState.INPUT_REQUIRED, True),
        (TaskState.AUTH_REQUIRED, True),
        (TaskState.FAILED, True),
    ],
)
async def test_who_comes_later_hears_how_the_task_stands(state: TaskState, *, is_delivered: bool) -> None:
    """A client that registers later gets the state of a task that ended or waits, not earlier events."""
    async with push_rig() as (rig, hook):
        await rig.begin(status(1), chunk("Hello", last=True), status(2, state))
        result = await rig.deliver_all()
        await rig.publish(status(3, state))
        await rig.deliver_all()
    tasks = [task for each in hook.taken if (task := read(each).task).id]
    assert result.done == state.is_terminal
    assert [task.artifacts[0].parts[0].text for task in tasks] == ["Hello"] * is_delivered
    assert len(hook.taken) == is_delivered + 1


async def test_the_headers_say_who_it_is_and_which_notification() -> None:
    """Headers carry the client's token and credentials, and an id for each notification, without secrets."""
    async with push_rig(query="?key=a%20b") as (rig, hook):
        await rig.begin(position=START)
        await rig.publish(status(1), ENDED)
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
    """Incomplete credentials or an empty token are not sent."""
    async with push_rig() as (rig, hook):
        rig.config = rig.config.model_copy(update={missing: "", "token": ""})
        await rig.begin(ENDED)
        await rig.deliver_all()
    (only,) = hook.taken
    assert not {"authorization", "x-a2a-notification-token"} & only.headers.keys()


async def test_a_client_of_the_old_version_gets_tasks() -> None:
    """A client of the old version gets a task in its JSON for each status, with the artifacts so far."""
    async with push_rig() as (rig, hook):
        await rig.begin(position=START, is_legacy=True)
        await rig.publish(
            status(1), chunk("Hello", last=True), status(2, TaskState.COMPLETED, message=told("m"))
        )
        await rig.deliver_all()
    assert hook.states == ["working", "completed"]
    assert len(hook.taken) == 2
    last = hook.taken[1].body
    assert (last["kind"], last["id"], last["contextId"]) == ("task", rig.task.task_id, rig.task.context_id)
    parts = [{"kind": "text", "text": "Hello"}]
    assert last["artifacts"] == [{"artifactId": "response", "name": "Response", "parts": parts}]
    assert hook.taken[1].headers["content-type"] == "application/json"


async def test_what_was_not_taken_is_sent_again_under_its_id() -> None:
    """A refused notification is repeated with its id, and no other overtakes it."""
    async with push_rig(500, 404, "close", (302, {"Location": "/taken"}), 503) as (rig, hook):
        await rig.begin(position=START)
        await rig.publish(status(1), ENDED)
        failed = await rig.failures(5)
        await rig.deliver_all()
    assert [error.message for error in failed] == [
        "the webhook answered 500; expected 2xx",
        "the webhook answered 404; expected 2xx",
        "no answer from the webhook (RemoteProtocolError)",
        "the webhook answered 302: redirects are not followed; set the URL it leads to",
        "the webhook answered 503; expected 2xx",
    ]
    assert all(error.type == PUSH_FAILED and not error.non_retryable for error in failed)
    assert {(each.id, each.content) for each in hook.refused} == {(hook.taken[0].id, hook.taken[0].content)}
    assert hook.states == [WORKING, COMPLETED]


@pytest.mark.parametrize(
    ("retry_after", "attempt", "waits"), [("7", 1, 7), ("7", 9, None), ("99999", 1, 600), ("x", 1, None)]
)
async def test_a_webhook_may_ask_for_time(retry_after: str, attempt: int, waits: int | None) -> None:
    """A webhook's Retry-After is honoured up to ten minutes; a longer backoff of ours wins."""
    async with push_rig((429, {"Retry-After": retry_after})) as (rig, _):
        await rig.begin(ENDED)
        rig.attempt = attempt - 1
        (failed,) = await rig.failures(1)
    assert failed.next_retry_delay == (None if waits is None else timedelta(seconds=waits))


async def test_what_nobody_took_for_a_day_is_left_out() -> None:
    """A notification is dropped a day after its first refusal; the next one has a day of its own."""
    async with push_rig(500, 500, 500, 500) as (rig, hook):
        await rig.begin(position=START)
        await rig.publish(status(1), ENDED)
        await rig.failures(2)
        notification, refused_at = rig.heartbeat_details
        assert isinstance(refused_at, float)
        rig.heartbeat_details = [notification, refused_at - DELIVERY_TIME.total_seconds()]
        await rig.deliver()
        await rig.failures(1)
        await rig.deliver_all()
    assert [each.state for each in hook.refused] == [WORKING] * 3 + [COMPLETED]
    assert hook.states == [COMPLETED]


async def test_what_was_taken_but_not_noted_is_sent_again_under_its_id() -> None:
    """A notification that was accepted but not recorded is repeated with its id."""
    async with push_rig(configs=failing(PushConfigs(database()), "advance", times=1)) as (rig, hook):
        await rig.begin(ENDED)
        with pytest.raises(RedisConnectionError):
            await rig.deliver()
        await rig.deliver_all()
    first, second = hook.taken
    assert (first.id, first.content) == (second.id, second.content)


async def test_a_lost_view_comes_back_from_the_workflow() -> None:
    """A lost view is restored by the workflow: the client gets the task's state once, then later events."""
    async with push_rig() as (rig, hook):
        await rig.begin(status(1))
        await rig.deliver_all()
        await database().delete(head_key(rig.task.task_id), log_key(rig.task.task_id))
        asks = TaskStatus(state=TaskState.INPUT_REQUIRED, at=at(5))
        rig.workflows.known = answered(rig.task, "run", 5, status=asks, artifacts=(artifact("Hi"),))
        waiting = await rig.deliver_all()
        await rig.publish(status(6, TaskState.COMPLETED))
        end = await rig.deliver_all()
    assert (waiting, end) == (WAITS, DONE)
    assert hook.states == [ASKS, COMPLETED]
    assert read(hook.taken[0]).task.artifacts[0].parts[0].text == "Hi"
    assert rig.workflows.asked == 1


async def test_what_a_status_shows_and_its_view_does_not_comes_back_from_the_workflow() -> None:
    """An end that Redis lost is restored by the workflow; the end is not delivered before it is complete."""
    async with push_rig() as (rig, hook):
        await rig.begin(status(1))
        await rig.publish(chunk("half"))
        await rig.deliver_all()
        await rig.publish(status(2, TaskState.COMPLETED, shows=Shown(answer=0)))
        rig.workflows.answers = False
        (failed,) = await rig.failures(1)
        rig.workflows.answers = True
        done = TaskStatus(state=TaskState.COMPLETED, at=at(2))
        whole = artifact("half of it").model_copy(update={"position": 0})
        rig.workflows.known = answered(rig.task, "run", 2, status=done, artifacts=(whole,))
        end = await rig.deliver_all()
    assert (failed.type, end) == (TASK_UNREADABLE, DONE)
    (last,) = hook.taken[-1:]
    assert last.state == COMPLETED
    assert read(last).task.artifacts[0].parts[0].text == "half of it"


async def test_a_view_that_nobody_can_tell_is_waited_for() -> None:
    """A view that cannot be restored yet is waited for; a deleted task ends its deliveries."""
    async with push_rig() as (rig, hook):
        await rig.configs.put(rig.config, position="1-0")
        rig.workflows.answers = False
        (failed,) = await rig.failures(1)
        rig.workflows.answers = True
        gone = await rig.deliver()
    assert (failed.type, gone, hook.taken) == (TASK_UNREADABLE, DONE, [])
    assert not rig.heartbeat_details  # it takes no time from a notification


async def test_a_trimmed_stream_is_no_reason_to_miss_the_end() -> None:
    """After a trimmed stream the client gets the task's state and later events."""
    async with push_rig(views=TaskViews(database(), max_events=5)) as (rig, hook):
        await rig.begin(position=START)
        asks = status(2, TaskState.INPUT_REQUIRED)
        await rig.publish(status(1), *(chunk("x", index=n) for n in range(20)), asks)
        await rig.publish(*(chunk("x", index=n) for n in range(20, 40)))
        waiting = await rig.deliver_all()
        await rig.publish(status(3, TaskState.COMPLETED))
        await rig.deliver_all()
    assert waiting == WAITS
    assert hook.states == [ASKS, COMPLETED]


async def test_a_task_that_goes_on_after_its_end_is_delivered_again() -> None:
    """A task that an operator has reset after its end is delivered again without earlier notifications."""
    async with push_rig() as (rig, hook):
        await rig.begin(status(1, TaskState.FAILED))
        await rig.deliver_all()
        again = await rig.deliver_all()
        await rig.views.publish(rig.task.task_id, "newer run", [status(1), ENDED])
        end = await rig.deliver_all()
    assert again == end == DONE
    assert hook.states == ["TASK_STATE_FAILED", WORKING, COMPLETED]


async def test_failures_hold_no_secret() -> None:
    """Failures, which are in histories and logs, have neither token, credentials nor the webhook's path."""
    async with push_rig(500, "close", query="/secret-path?secret-key") as (rig, _):
        await rig.begin(ENDED)
        with capture_logs() as lines:
            failed = await rig.failures(2)
    shown = [*(f"{error!r} {error} {error.__cause__!r}" for error in failed), *map(str, lines)]
    assert [line["attempt"] for line in lines] == [1, 2]
    for secret in ("the-token", "the-credentials", "secret-path", "secret-key"):
        assert not any(secret in text for text in shown)


async def test_a_webhook_that_is_gone_is_removed() -> None:
    """A webhook that is gone is removed, and gets no more requests."""
    async with push_rig(410) as (rig, hook):
        await rig.begin(status(1, TaskState.INPUT_REQUIRED))
        end = await rig.deliver_all()
    assert (end, len(hook.refused), hook.taken) == (DONE, 1, [])
    assert await rig.configs.list_configs(rig.task.task_id) == []


@pytest.mark.parametrize("is_lost", [False, True], ids=["deleted", "lost"])
async def test_a_config_that_is_not_there_ends_its_delivery(*, is_lost: bool) -> None:
    """A missing config ends its delivery; if the store was emptied, an error is logged for the operator."""
    async with push_rig() as (rig, hook):
        await rig.begin(ENDED)
        await rig.configs.delete(rig.task.task_id, rig.config.id)
        if is_lost:
            await database().delete(push_configs_key(rig.task.task_id))
        with capture_logs() as lines:
            end = await rig.deliver()
    assert (end, hook.taken) == (DONE, [])
    logged = [(line["log_level"], line["event"].partition(":")[0]) for line in lines]
    assert logged == [("error", "push config lost")] * is_lost


class Slow(PushConfigs):
    """Configs whose slow read lets a later attempt take the webhook over."""

    leases: ToolRecords

    async def position(self, task_id: str, config_id: str) -> str:
        await self.leases.revoke(Lease(task_id, f"push {config_id}", "later", "9", 2))
        return await super().position(task_id, config_id)


async def test_an_overtaken_attempt_posts_nothing() -> None:
    """An attempt checks its lease before each post, and posts nothing once overtaken."""
    configs, webhooks = Slow(database()), Webhooks(LOOPBACK_ALLOWED, time_limit=60)  # longer than its lease
    async with push_rig(configs=configs, webhooks=webhooks) as (rig, hook):
        configs.leases = rig.leases
        await rig.begin(ENDED)
        with pytest.raises(OvertakenError):
            await rig.deliver()
    assert hook.taken == []


Act = Callable[[str], Awaitable[None]]


class Replacing(Webhooks):
    """Webhooks that call a function before and after each post."""

    def __init__(
        self, before: Callable[[str], Awaitable[None]], after: Callable[[str], Awaitable[None]]
    ) -> None:
        super().__init__(LOOPBACK_ALLOWED)
        self._before, self._after = before, after

    async def post(
        self, url: str, content: bytes, headers: Mapping[str, str], *, owner: str = ""
    ) -> WebhookResponse:
        await self._before(url)
        answer = await super().post(url, content, headers, owner=owner)
        await self._after(url)
        return answer


async def nothing(_: str) -> None:
    return


async def test_a_config_that_is_set_anew_while_it_is_served_begins_anew() -> None:
    """A config that is replaced during a delivery starts again: its webhook gets the task's state."""

    async def replace(url: str) -> None:
        if url == old.url:
            await rig.configs.put(rig.config.model_copy(update={"url": new.url}))

    async with running_webhook() as new, push_rig(webhooks=Replacing(nothing, replace)) as (rig, old):
        await rig.begin(ENDED)
        await rig.deliver_all()
    assert old.states == new.states == [COMPLETED]


@pytest.mark.parametrize("change", ["url", "token"])
async def test_a_config_that_was_set_anew_survives_the_end_of_its_old_webhook(change: str) -> None:
    """A replaced config survives the end of its old webhook, and gets the refused notification."""

    async def replace(url: str) -> None:
        if url == old.url and not new.taken:
            await rig.configs.put(fresh)

    async with running_webhook() as new, push_rig(410, webhooks=Replacing(replace, nothing)) as (rig, old):
        fresh = rig.config.model_copy(update={change: new.url if change == "url" else "new"})
        await rig.begin(ENDED)
        await rig.deliver_all()
    assert [each.id for each in old.refused] == [each.id for each in [*new.taken, *old.taken]]
    assert await rig.configs.get(rig.task.task_id, rig.config.id) == fresh

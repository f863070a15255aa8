"""What happens when a webhook does not take a notification, or a store has lost what it was about."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from a2a.types.a2a_pb2 import StreamResponse
from google.protobuf.json_format import ParseDict
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from everloop.activities.push.webhook import Answer, Webhooks
from everloop.stores.push.configs import PushConfig
from everloop.stores.views.interface import START
from everloop.workflows.contract.calls import PUSH_FAILED, TASK_UNREADABLE, DeliverPushResult
from everloop.workflows.contract.tasks import TaskState, TaskStatus
from tests.stores.examples import answered, artifact, at, chunk, status
from tests.support.memory.push_configs import MemoryPushConfigs
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.rigs.push_rig import LOOPBACK_ALLOWED, PushRig
from tests.support.servers.webhook import Notification, running_webhook

DONE = DeliverPushResult(done=True)
WAITS = DeliverPushResult()

WORKING, ASKS = "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"
COMPLETED = "TASK_STATE_COMPLETED"


def read(notification: Notification) -> StreamResponse:
    """Read a notification as a strict client of A2A 1.0 does."""
    return ParseDict(notification.body, StreamResponse())


async def test_what_was_not_taken_is_sent_again_under_its_id() -> None:
    """Nothing else overtakes it, however often that happens."""
    async with running_webhook(500, 404, "close", (302, {"Location": "/taken"}), 503) as hook:
        rig = PushRig(hook.url)
        await rig.begin(position=START)
        await rig.publish(status(1), status(2, TaskState.COMPLETED))
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
    assert {each.id for each in hook.refused} == {hook.taken[0].id}
    assert {each.content for each in hook.refused} == {hook.taken[0].content}
    assert hook.states == [WORKING, COMPLETED]


@pytest.mark.parametrize(
    ("told_to_wait", "attempt", "waits"), [("7", 1, 7), ("7", 9, None), ("99999", 1, 600), ("x", 1, None)]
)
async def test_a_webhook_may_ask_for_time(told_to_wait: str, attempt: int, waits: int | None) -> None:
    """It is not asked sooner; if our own backoff is longer, that holds, and ten minutes are the most."""
    async with running_webhook((429, {"Retry-After": told_to_wait})) as hook:
        rig = PushRig(hook.url)
        await rig.begin(status(1, TaskState.COMPLETED))
        rig.attempt = attempt - 1
        (failed,) = await rig.failures(1)
    assert failed.next_retry_delay == (None if waits is None else timedelta(seconds=waits))


async def test_what_nobody_took_for_too_long_is_left_out() -> None:
    """The next one is sent."""
    async with running_webhook(500) as hook:
        rig = PushRig(hook.url)
        await rig.begin(position=START)
        await rig.publish(status(1), status(2, TaskState.COMPLETED))
        await rig.failures(1)
        await rig.deliver(skips=True)
        await rig.deliver_all()
    assert hook.states == [COMPLETED]


async def test_what_was_taken_but_not_noted_is_sent_again_under_its_id() -> None:
    """A worker that dies in between, or a store that is away, loses nothing."""

    class FailingOnce(MemoryPushConfigs):
        is_away = True

        async def advance(self, config: PushConfig, *, start: str, end: str) -> None:
            if self.is_away:
                self.is_away = False
                raise RedisConnectionError
            await super().advance(config, start=start, end=end)

    async with running_webhook() as hook:
        rig = PushRig(hook.url, configs=FailingOnce())
        await rig.begin(status(1, TaskState.COMPLETED))
        with pytest.raises(RedisConnectionError):
            await rig.deliver()
        await rig.deliver_all()

    first, second = hook.taken
    assert first.id == second.id
    assert first.content == second.content


async def test_a_config_that_is_set_anew_while_it_is_served_begins_anew() -> None:
    """Its new webhook hears how the task stands, although the old one has taken that."""

    class Replacing(Webhooks):
        async def post(
            self, url: str, content: bytes, headers: Mapping[str, str], *, owner: str = ""
        ) -> Answer:
            answer = await super().post(url, content, headers, owner=owner)
            if url == old.url:
                await rig.configs.put(rig.config.model_copy(update={"url": new.url}))
            return answer

    async with running_webhook() as old, running_webhook() as new:
        rig = PushRig(old.url, webhooks=Replacing(LOOPBACK_ALLOWED))
        await rig.begin(status(1, TaskState.COMPLETED))
        await rig.deliver_all()
    assert old.states == new.states == [COMPLETED]


async def test_a_lost_view_comes_back_from_the_workflow() -> None:
    """The client hears how the task stands, once, and then what follows."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(status(1))
        await rig.deliver_all()
        lost = PushRig(hook.url, configs=rig.configs)
        lost.task, lost.config = rig.task, rig.config
        lost.workflows.known = answered(
            rig.task,
            "run",
            5,
            status=TaskStatus(state=TaskState.INPUT_REQUIRED, at=at(5)),
            artifacts=(artifact("Hi"),),
        )
        waiting = await lost.deliver_all()
        await lost.publish(status(6, TaskState.COMPLETED))
        end = await lost.deliver_all()

    assert (waiting, end) == (WAITS, DONE)
    assert hook.states == [ASKS, COMPLETED]
    assert read(hook.taken[0]).task.artifacts[0].parts[0].text == "Hi"
    assert lost.workflows.asked == 1


async def test_a_view_that_nobody_can_tell_is_waited_for() -> None:
    """As long as it takes; a task that is gone for good has nothing to tell."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.configs.put(rig.config, position="1-0")
        rig.workflows.answers = False
        (failed,) = await rig.failures(1)
        rig.workflows.answers = True
        gone = await rig.deliver()
    assert failed.type == TASK_UNREADABLE
    assert gone == DONE
    assert hook.taken == []


async def test_a_trimmed_stream_is_no_reason_to_miss_the_end() -> None:
    """The task is told as it stands, and what follows."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url, views=MemoryTaskViews(max_events=5))
        await rig.begin(position=START)
        await rig.publish(
            status(1), *(chunk("x", index=n) for n in range(20)), status(2, TaskState.INPUT_REQUIRED)
        )
        await rig.publish(*(chunk("x", index=n) for n in range(20, 40)))
        waiting = await rig.deliver_all()
        await rig.publish(status(3, TaskState.COMPLETED))
        await rig.deliver_all()
    assert waiting == WAITS
    assert hook.states == [ASKS, COMPLETED]


async def test_a_task_that_goes_on_after_its_end_is_told_again() -> None:
    """An operator has reset it: what was heard before is not repeated."""
    async with running_webhook() as hook:
        rig = PushRig(hook.url)
        await rig.begin(status(1, TaskState.FAILED))
        await rig.deliver_all()
        again = await rig.deliver_all()
        await rig.views.publish(rig.task.task_id, "newer run", [status(1), status(2, TaskState.COMPLETED)])
        end = await rig.deliver_all()
    assert again == end == DONE
    assert hook.states == ["TASK_STATE_FAILED", WORKING, COMPLETED]


async def test_failures_hold_no_secret() -> None:
    """They stand in histories and logs: neither token nor credentials, nor the path of the webhook."""
    async with running_webhook(500, "close") as hook:
        rig = PushRig(f"{hook.url}/secret-path?secret-key")
        await rig.begin(status(1, TaskState.COMPLETED))
        with capture_logs() as lines:
            failed = await rig.failures(2)
    shown = [*(f"{error!r} {error} {error.__cause__!r}" for error in failed), *map(str, lines)]
    assert [line["attempt"] for line in lines] == [1, 2]
    for secret in ("the-token", "the-credentials", "secret-path", "secret-key"):
        assert not any(secret in text for text in shown)

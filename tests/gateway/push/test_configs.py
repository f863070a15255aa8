"""Push notifications: configs, alone and with messages, and the requests to webhooks."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.gateway.errors import UnavailableNowError
from everloop.gateway.operations.push import PushOperations, make_push
from everloop.runtime.outbound.policy import WebhookPolicy
from everloop.runtime.redis import connect_redis
from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.deliveries import PushSettings
from tests.gateway.harness import RunningGateway, unique
from tests.gateway.push.push_harness import PushHarness, running_push_harness
from tests.support.a2a_client import BINDINGS, connected, request, send
from tests.support.servers.webhook import Webhook, running_webhook
from tests.support.wires.operations import OPERATIONS, params_of


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def harness(client: Client, redis_url: str) -> AsyncGenerator[PushHarness]:
    async with connect_redis(redis_url) as redis, running_push_harness(client, redis) as harness:
        yield harness


@pytest_asyncio.fixture
async def hook() -> AsyncGenerator[Webhook]:
    async with running_webhook() as hook:
        yield hook


@pytest_asyncio.fixture(
    params=["JSONRPC", *(pytest.param(each, marks=pytest.mark.slow) for each in BINDINGS[1:])]
)
async def a2a(request: pytest.FixtureRequest, harness: PushHarness) -> AsyncGenerator[A2AClient]:
    """The official client, on each binding."""
    async with connected(harness.url, binding=request.param, streaming=False) as a2a:
        yield a2a


@pytest_asyncio.fixture
async def jsonrpc(harness: PushHarness) -> AsyncGenerator[A2AClient]:
    async with connected(harness.url, streaming=False) as a2a:
        yield a2a


def wanted(task_id: str, url: str, id_: str = "", **fields: str) -> pb.TaskPushNotificationConfig:
    authentication = pb.AuthenticationInfo(scheme="Bearer", credentials="the-credentials")
    return pb.TaskPushNotificationConfig(
        task_id=task_id, id=id_, url=url, token="the-token", authentication=authentication, **fields
    )


def listing(task_id: str, size: int = 0, token: str = "") -> pb.ListTaskPushNotificationConfigsRequest:
    return pb.ListTaskPushNotificationConfigsRequest(task_id=task_id, page_size=size, page_token=token)


async def test_a_config_is_what_the_client_set(a2a: A2AClient, hook: Webhook) -> None:
    """Created, read, listed and deleted, which may be repeated.

    For an ended task the webhook gets the end at once.
    """
    task = await send(a2a, request(unique("prompt")))
    config = wanted(task.id, hook.url, "my config")
    created = await a2a.create_task_push_notification_config(config)
    read = await a2a.get_task_push_notification_config(
        pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="my config")
    )
    listed = await a2a.list_task_push_notification_configs(listing(task.id))
    await hook.until_delivered("TASK_STATE_COMPLETED")
    for _ in range(2):
        await a2a.delete_task_push_notification_config(
            pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="my config")
        )
    assert created == read == config
    assert list(listed.configs) == [config]
    assert not (await a2a.list_task_push_notification_configs(listing(task.id))).configs
    with pytest.raises(TaskNotFoundError, match="no push notification config 'my config'"):
        await a2a.get_task_push_notification_config(
            pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="my config")
        )


async def test_a_message_that_is_sent_again_makes_no_second_config(jsonrpc: A2AClient, hook: Webhook) -> None:
    """No second notification is sent either."""
    message = request(unique("prompt"))
    message.configuration.task_push_notification_config.CopyFrom(wanted("", hook.url))
    task, *_ = [await send(jsonrpc, message) for _ in range(3)]
    await hook.until_delivered("TASK_STATE_COMPLETED")
    listed = await jsonrpc.list_task_push_notification_configs(listing(task.id))
    assert len(listed.configs) == 1
    assert len({each.id for each in hook.taken}) == len(hook.taken) == 3


async def test_configs_are_listed_page_by_page(jsonrpc: A2AClient, hook: Webhook) -> None:
    """Each once, by id; deletions meanwhile do no harm."""
    task = await send(jsonrpc, request(unique("prompt")))
    for id_ in ("b", "c", "a", "d"):
        await jsonrpc.create_task_push_notification_config(wanted(task.id, hook.url, id_))
    first = await jsonrpc.list_task_push_notification_configs(listing(task.id, 2))
    await jsonrpc.delete_task_push_notification_config(
        pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="b")
    )
    rest = await jsonrpc.list_task_push_notification_configs(listing(task.id, 2, first.next_page_token))
    assert [config.id for config in first.configs] == ["a", "b"]
    assert [config.id for config in rest.configs] == ["c", "d"]
    assert rest.next_page_token == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"url": ""}, "url is missing"),
        ({"url": "http://example.com/secret"}, "use https"),
        ({"url": "https://10.0.0.1/secret"}, "url is refused: the host 10.0.0.1"),
        ({"url": "https://[fd00::1]/secret"}, "private or special"),
        ({"url": "https://169.254.169.254/secret"}, "private or special"),
        ({"url": "https://192.168.1.1/secret"}, "private or special"),
        ({"url": "file:///secret"}, "url is no web address"),
        ({"url": "https://secret@example.com/"}, "url holds a user name"),
        ({"id": "x" * 256}, "id has 256 bytes"),
        ({"id": "a\nb"}, "id has control characters"),
        ({"token": "secret\r\nX-Evil: 1"}, "token is not fit"),
        ({"token": "secret☃"}, "token is not fit"),
        ({"token": " secret"}, "token is not fit"),
        ({"token": "secret" * 1_000}, "token has 6000 bytes"),
        (
            {"authentication": {"scheme": "Bear er", "credentials": "secret"}},
            "authentication.scheme is no name",
        ),
        (
            {"authentication": {"scheme": "B" * 65, "credentials": "secret"}},
            "authentication.scheme is no name",
        ),
        ({"authentication": {"scheme": "", "credentials": "secret"}}, "authentication.scheme is missing"),
        ({"authentication": {"scheme": "Bearer", "credentials": "secret\nX: y"}}, "credentials is not fit"),
        ({"authentication": {"scheme": "Bearer", "credentials": "secret" * 2_000}}, "credentials has 12000"),
    ],
)
async def test_what_cannot_be_sent_is_refused(
    harness: PushHarness, jsonrpc: A2AClient, change: dict[str, object], problem: str
) -> None:
    """Alone and with a message, which then starts no task; the error repeats no possible secret."""
    task = await send(jsonrpc, request(unique("prompt")))
    fields = {"url": "https://example.com/secret", **change}
    message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": unique("prompt")}]}
    alone = await harness.gateway.http.call("CreateTaskPushNotificationConfig", {"taskId": task.id, **fields})
    sent = await harness.gateway.http.call(
        "SendMessage", {"message": message, "configuration": {"taskPushNotificationConfig": fields}}
    )
    for answer in (alone, sent):
        error = answer.json()["error"]
        assert error["code"] == -32602
        assert problem in error["message"]
        assert "secret" not in answer.text
    assert not (await jsonrpc.list_task_push_notification_configs(listing(task.id))).configs


@pytest.mark.parametrize(("size", "token"), [(-1, ""), (0, "no token"), (0, "☃")])
async def test_a_page_that_cannot_be_is_refused(jsonrpc: A2AClient, size: int, token: str) -> None:
    """As for lists of tasks."""
    task = await send(jsonrpc, request(unique("prompt")))
    with pytest.raises(InvalidParamsError, match=r"pageSize is -1|pageToken is not one"):
        await jsonrpc.list_task_push_notification_configs(listing(task.id, size, token))


async def test_a_client_of_the_old_version_gets_tasks(harness: PushHarness, hook: Webhook) -> None:
    """It may leave out the id of its only config, and delete it twice."""
    message = {
        "messageId": unique("m"),
        "kind": "message",
        "role": "user",
        "parts": [{"kind": "text", "text": unique("prompt")}],
    }
    config = {
        "url": hook.url,
        "token": "the-token",
        "authentication": {"schemes": ["Basic"], "credentials": "abc"},
    }
    gateway, old = harness.gateway.http, {"A2A-Version": "0.3"}
    sent = await gateway.call(
        "message/send", {"message": message, "configuration": {"pushNotificationConfig": config}}, **old
    )
    task_id = sent.json()["result"]["id"]
    await hook.until_delivered("working", "completed")
    read = (await gateway.call("tasks/pushNotificationConfig/get", {"id": task_id}, **old)).json()["result"]
    deletion = {"id": task_id, "pushNotificationConfigId": read["pushNotificationConfig"]["id"]}
    deleted = [
        (await gateway.call("tasks/pushNotificationConfig/delete", deletion, **old)).json() for _ in range(2)
    ]
    assert read["pushNotificationConfig"] == {**config, "id": read["pushNotificationConfig"]["id"]}
    assert {each.headers["authorization"] for each in hook.taken} == {"Basic abc"}
    assert hook.taken[-1].body["kind"] == "task"
    assert [answer["result"] for answer in deleted] == [None, None]


async def _nobody(_task_id: str, _config_ids: object) -> None:
    """Send no notification."""


def test_an_operator_may_switch_notifications_off(monkeypatch: pytest.MonkeyPatch, redis: Redis) -> None:
    """A server without them says so: the next test."""
    monkeypatch.setenv("EVERLOOP_PUSH", "false")
    assert make_push(PushSettings(), PushConfigs(redis), _nobody, "https://agents.example") is None


async def test_a_server_without_notifications_says_so(gateway: RunningGateway, blocking: A2AClient) -> None:
    """Each operation on configs is refused, and a message with a config starts no task (§3.3.4)."""
    context, config = unique("context"), {"url": "https://hooks.example/"}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "contextId": context}
    sent = {"message": message, "configuration": {"taskPushNotificationConfig": config}}
    task = await send(blocking, request(unique("prompt")))
    calls = [(each, params_of(each, task.id)) for each in OPERATIONS if "PushNotification" in each]
    refused = [await gateway.call(method, params) for method, params in (*calls, ("SendMessage", sent))]
    listed = await gateway.call("ListTasks", {"contextId": context})
    card = (await gateway.http.get(".well-known/agent-card.json")).json()
    assert [each.json()["error"]["code"] for each in refused] == [-32003] * 5
    assert listed.json()["result"]["totalSize"] == 0
    assert not card["capabilities"].get("pushNotifications")


def a_message(text: str, url: str, config_id: str, task_id: str = "") -> dict[str, object]:
    """The params of a message that brings a config."""
    message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": text}], "taskId": task_id}
    config = {"url": url, "id": config_id}
    return {
        "message": message,
        "configuration": {"returnImmediately": True, "taskPushNotificationConfig": config},
    }


async def test_a_message_with_an_eleventh_config_is_not_taken_in(harness: PushHarness) -> None:
    """The message sent again without the config has its effect once; it may come with one of the ten."""
    gateway, prompt, gate = harness.gateway.http, unique("held"), asyncio.Event()
    harness.model.scripts[prompt] = [gate]
    async with running_webhook() as hook:
        sent = await gateway.call("SendMessage", a_message(prompt, hook.url, "0"))
        task_id = sent.json()["result"]["task"]["id"]
        for number in range(1, 10):
            await gateway.call(
                "CreateTaskPushNotificationConfig", {"taskId": task_id, "id": f"{number}", "url": hook.url}
            )
        refused = await gateway.call("SendMessage", a_message("pay 5", hook.url, "more", task_id))
        taken = await gateway.call("SendMessage", a_message("pay 7", hook.url, "3", task_id))
        gate.set()
        await hook.until_delivered("TASK_STATE_COMPLETED")
    task = (await gateway.call("GetTask", {"id": task_id})).json()["result"]
    assert "delete or change one" in refused.json()["error"]["message"]
    assert "error" not in taken.json()
    told = [message["parts"][0]["text"] for message in task["history"] if message["role"] == "ROLE_USER"]
    assert told == [prompt, "pay 7"]


async def test_a_webhook_that_is_away_for_too_long_misses_what_was_sent_meanwhile(
    harness: PushHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal retries each notification for its time; those after the webhook's return arrive."""
    monkeypatch.setattr(harness.port, "delivery_time", timedelta(milliseconds=1))
    prompt, gate = unique("held"), asyncio.Event()
    harness.model.scripts[prompt] = [gate]
    async with running_webhook(503, 503) as hook:
        await harness.gateway.http.call("SendMessage", a_message(prompt, hook.url, "away"))
        await hook.until(lambda hook: not hook.script)
        gate.set()
        await hook.until_delivered("TASK_STATE_COMPLETED")
    assert len({each.id for each in hook.refused}) == 1
    assert hook.states == ["TASK_STATE_COMPLETED"]


async def test_whoever_starts_a_task_hears_all_of_it(harness: PushHarness) -> None:
    """Also events before its config was set: the first attempt of its request died before that.

    Later configs get later events only.
    """
    gateway, prompt, gate, held = harness.gateway.http, unique("held"), asyncio.Event(), asyncio.Event()
    harness.model.scripts[prompt] = [held.set, gate]
    async with running_webhook() as hook, running_webhook() as later:
        params = a_message(prompt, hook.url, "c")
        await gateway.call(
            "SendMessage", {"message": params["message"], "configuration": {"returnImmediately": True}}
        )
        await held.wait()
        sent = await gateway.call("SendMessage", params)
        await hook.until_delivered("TASK_STATE_WORKING")
        task_id = sent.json()["result"]["task"]["id"]
        await gateway.call("CreateTaskPushNotificationConfig", {"taskId": task_id, "url": later.url})
        gate.set()
        for each in (hook, later):
            await each.until_delivered("TASK_STATE_COMPLETED")
    assert hook.states == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
    assert later.states == ["TASK_STATE_COMPLETED"]


async def test_a_host_that_is_not_looked_up_in_time_may_be_sent_again(redis: Redis) -> None:
    """The failed lookup is not the URL's fault."""

    async def look_up(host: str, port: int) -> list[str]:
        raise TimeoutError(f"{host}:{port}")

    push = PushOperations(PushConfigs(redis), notify_nobody, WebhookPolicy(resolver=look_up), "https://b")
    with pytest.raises(UnavailableNowError, match="Send the same request again") as refused:
        await push.check(wanted("task", "https://example.com"), "owner")
    assert refused.value.headers == {"Retry-After": "5"}


async def notify_nobody(task_id: str, config_ids: Sequence[str]) -> None:
    raise AssertionError((task_id, config_ids))

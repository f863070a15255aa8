"""What an agent does not declare, it refuses: A2A 1.0 §3.3.4."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from a2a.types import a2a_pb2 as pb
from temporalio.client import Client

from everloop.runtime.redis import connect_redis
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.conformance.bindings import BINDINGS, GRPC, JSONRPC, VERSION, Binding, opened, refusal
from tests.conformance.messages import COMPLETES, fresh, message
from tests.gateway.harness import RunningGateway, running_gateway


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def silent(temporal_address: str, redis_url: str) -> AsyncGenerator[RunningGateway]:
    """A gateway that notifies nobody, and whose tasks no worker takes."""
    client = await Client.connect(temporal_address, data_converter=WIRE_DATA_CONVERTER)
    async with (
        connect_redis(redis_url) as redis,
        running_gateway(client, RedisTaskViews(redis), queue=fresh("nobody")) as gateway,
    ):
        yield gateway


@pytest_asyncio.fixture(
    scope="session", loop_scope="session", params=[name for name in BINDINGS if name != GRPC]
)
async def without_push(silent: RunningGateway, request: pytest.FixtureRequest) -> AsyncGenerator[Binding]:
    async with opened(silent.url.rstrip("/"), "", request.param) as binding:
        yield binding


Request = (
    pb.TaskPushNotificationConfig
    | pb.GetTaskPushNotificationConfigRequest
    | pb.ListTaskPushNotificationConfigsRequest
    | pb.DeleteTaskPushNotificationConfigRequest
)

OPERATIONS: list[tuple[str, Request]] = [
    ("CreateTaskPushNotificationConfig", pb.TaskPushNotificationConfig(url="https://example.com/hook")),
    ("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest(id="any")),
    ("ListTaskPushNotificationConfigs", pb.ListTaskPushNotificationConfigsRequest()),
    ("DeleteTaskPushNotificationConfig", pb.DeleteTaskPushNotificationConfigRequest(id="any")),
]


@pytest.mark.parametrize(("operation", "request_"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
async def test_without_push_notifications_all_their_operations_are_refused(
    without_push: Binding, operation: str, request_: Request
) -> None:
    """Each tells that push notifications are not supported (§3.3.4)."""
    task = await without_push.send(message(COMPLETES, configuration={"returnImmediately": True}))
    request_.task_id = task.id
    refused = await refusal(without_push.call(operation, request_))
    assert refused.reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"
    assert refused.code == (-32003 if without_push.name == JSONRPC else 400)


async def test_without_push_notifications_no_send_brings_a_config(without_push: Binding) -> None:
    """A config that comes with a message is refused, too, and starts no task (§3.3.4)."""
    context_id = fresh("context")
    config = {"taskPushNotificationConfig": {"url": "https://example.com/hook"}}
    request = message(COMPLETES, contextId=context_id, configuration=config)
    refused = await refusal(without_push.send(request))
    assert refused.reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"
    assert (await without_push.list(contextId=context_id)).total_size == 0


async def test_the_card_does_not_declare_what_is_refused(silent: RunningGateway) -> None:
    """Without push notifications the capability is false or absent (§3.3.4)."""
    response = await silent.http.get("/v1/.well-known/agent-card.json", headers=VERSION)
    assert not response.json()["capabilities"].get("pushNotifications")

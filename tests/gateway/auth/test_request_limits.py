"""Limits of an owner, over real HTTP and several gateways."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl, RequestLimits
from everloop.gateway.errors import UnavailableNowError
from everloop.gateway.http.http_errors import as_a2a
from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.stores.quotas import LimitSettings, Quotas, Rate
from tests.gateway.grpc_harness import running_grpc_gateway
from tests.gateway.harness import Named, PromptModel, RunningGateway, running_gateway, stand_in_worker, unique
from tests.support.recorded_metrics import Recorded
from tests.support.rigs.operator import until
from tests.support.wires.operations import params_of
from tests.support.wires.wires import NAMES, Wire, all_wires

TOO_MANY = -32033
REFUSED = "everloop.requests.refused"


@asynccontextmanager
async def limited(
    client: Client, views: TaskViews, queue: str, redis: Redis, **variables: int
) -> AsyncGenerator[tuple[RunningGateway, RunningGateway]]:
    """Serve two gateways with these limits, as two processes would."""

    def limits() -> RequestLimits:
        return RequestLimits(LimitSettings.model_validate(variables), Quotas(redis))

    async with (
        running_gateway(client, views, queue=queue, access=AccessControl(Named(), limits())) as one,
        running_gateway(client, views, queue=queue, access=AccessControl(Named(), limits())) as two,
    ):
        yield one, two


@pytest.fixture
async def redis(redis_url: str) -> AsyncGenerator[Redis]:
    async with connect_redis(redis_url) as redis:
        yield redis


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def wires(client: Client, views: TaskViews, redis_url: str) -> AsyncGenerator[dict[str, Wire]]:
    """A gateway that takes two requests a minute of each owner, and one open task."""
    settings, queue = LimitSettings(requests_per_minute=2, max_open_tasks=1), unique("limited")
    async with connect_redis(redis_url) as redis, stand_in_worker(client, queue):
        access = AccessControl(Named(), RequestLimits(settings, Quotas(redis)))
        async with running_grpc_gateway(client, views, queue=queue, access=access) as gateway:
            yield all_wires(gateway.http.http, gateway.channel)


@pytest.mark.parametrize("wire", NAMES)
async def test_each_binding_says_when_to_come_back(wires: dict[str, Wire], wire: str) -> None:
    """429 and Retry-After over HTTP, RESOURCE_EXHAUSTED with RetryInfo over gRPC."""
    headers = [{"owner": unique("owner")} for _ in range(2)]
    asked = [await wires[wire].send("GetTask", {"id": "nobody"}, headers[0]) for _ in range(3)]
    sent = [await wires[wire].send("SendMessage", params_of("SendMessage"), headers[1]) for _ in range(2)]
    assert [b"no task" in reply.body for reply in asked] == [True, True, False]
    assert b"2 a minute" in asked[2].body
    assert sent[0].status in {200, "OK"}
    assert b"too many open tasks" in sent[1].body
    for reply in (asked[2], sent[1]):
        assert reply.status in {429, "RESOURCE_EXHAUSTED"}
        assert not wire.startswith("JSON-RPC") or (reply.refusal and reply.refusal.code == TOO_MANY)
        if wire.startswith("gRPC"):
            assert "google.rpc.RetryInfo" in reply.headers["grpc-status-details-bin"]
        else:
            assert int(reply.headers["retry-after"]) > 0


def message(prompt: str, message_id: str = "") -> dict[str, Any]:
    """Return the parameters of a SendMessage that does not wait."""
    sent = {"messageId": message_id or unique("m"), "role": "ROLE_USER", "parts": [{"text": prompt}]}
    return {"message": sent, "configuration": {"returnImmediately": True}}


async def test_of_many_messages_at_once_as_many_start_tasks_as_may(
    client: Client, views: TaskViews, model: PromptModel, queue: str, redis: Redis
) -> None:
    """Twenty messages on two gateways with a limit of five start five tasks; the others get a retry time."""
    owner, prompt, gate = unique("owner"), unique("open"), asyncio.Event()
    model.scripts[prompt] = [gate]
    async with limited(client, views, queue, redis, max_open_tasks=5) as gateways:
        answers = await asyncio.gather(
            *(gateways[n % 2].call("SendMessage", message(prompt), owner=owner) for n in range(20))
        )
        started = [answer for answer in answers if "result" in answer.json()]
        refused = [answer for answer in answers if "error" in answer.json()]
        listed = (await gateways[0].call("ListTasks", {}, owner=owner)).json()["result"]
        gate.set()
    assert (len(started), len(refused), listed["totalSize"]) == (5, 15, 5)
    assert {answer.status_code for answer in refused} == {429}
    assert {answer.json()["error"]["code"] for answer in refused} == {TOO_MANY}
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
    assert "5 that have not ended" in refused[0].json()["error"]["message"]


async def test_a_place_is_free_when_a_task_ends(
    client: Client, views: TaskViews, model: PromptModel, queue: str, redis: Redis
) -> None:
    """A repeated message counts once; each owner has a limit of its own.

    The metric counts refused requests.
    """
    owner, prompt, gate, repeated = unique("owner"), unique("open"), asyncio.Event(), unique("m")
    recorded = Recorded()
    model.scripts[prompt] = [gate]
    async with limited(client, views, queue, redis, max_open_tasks=1) as (one, two):
        first = await one.call("SendMessage", message(prompt, repeated), owner=owner)
        again = await two.call("SendMessage", message(prompt, repeated), owner=owner)
        refused = await two.call("SendMessage", message(prompt), owner=owner)
        other = await two.call("SendMessage", message("hi"), owner=unique("other"))
        task_id = first.json()["result"]["task"]["id"]
        counted = recorded.counts(REFUSED)
        gate.set()
        # The place is free a moment after the view says so.
        later = await until(
            lambda: two.call("SendMessage", message("hi"), owner=owner),
            does=lambda sent: sent.status_code == 200,
        )
    assert again.json()["result"]["task"]["id"] == task_id
    assert refused.status_code == 429
    assert counted == {("open_tasks",): 1}
    assert "task" in other.json()["result"]
    assert "task" in later.json()["result"]


async def test_requests_over_the_rate_are_refused_on_every_gateway(
    client: Client, views: TaskViews, redis: Redis
) -> None:
    """Requests of one owner count together over all gateways; a refusal has a retry time."""
    owner = unique("owner")
    async with limited(client, views, "none", redis, requests_per_minute=1, request_burst=4) as gateways:
        answers = await asyncio.gather(
            *(gateways[n % 2].call("ListTasks", {}, owner=owner) for n in range(20))
        )
        other = await gateways[0].call("ListTasks", {}, owner=unique("other"))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(refused) == 16
    assert {answer.status_code for answer in refused} == {429}
    assert all(0 < int(answer.headers["Retry-After"]) <= 60 for answer in refused)
    assert "1 a minute" in refused[0].json()["error"]["message"]
    assert other.status_code == 200


class _Away(Quotas):
    """A store that does not answer."""

    def __init__(self) -> None:
        """Need no client."""

    async def take_request(self, owner: str, rate: Rate) -> float:
        raise ConnectionError

    async def reserve_task(self, owner: str, task_id: str, limit: int) -> bool:
        raise ConnectionError

    async def release_task(self, owner: str, task_id: str) -> None:
        raise ConnectionError


async def test_without_the_store_a_call_is_refused_for_now() -> None:
    """No call passes uncounted; the client gets a retry time."""
    limits = RequestLimits(LimitSettings(requests_per_minute=1, max_open_tasks=1), _Away())
    for call in (limits.admit_request("o"), limits.reserve_task("o", "t"), limits.release_task("o", "t")):
        with pytest.raises(ConnectionError) as raised:
            await call
        told = as_a2a(raised.value)
        assert isinstance(told, UnavailableNowError)
        assert ("task store" in told.message, told.retry_after) == (True, 2)

"""How many streams a gateway holds open."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.errors import TooManyRequestsError, UnavailableNowError
from everloop.gateway.operations.operation import OpenStreams
from everloop.stores.views.interface import TaskViews
from tests.gateway.bindings.raw_calls import RAW_BINDINGS, Call, RawBinding, changed
from tests.gateway.harness import RunningGateway, running_gateway, unique
from tests.gateway.named_callers import Named
from tests.gateway.streams.followed_tasks import working_task

MOST = 2


def test_streams_are_counted_as_long_as_they_last() -> None:
    """Of each owner, and of all together; others have room until there is none."""
    streams = OpenStreams(most=3, most_of_owner=2)
    with streams.hold("ann"), streams.hold("ann"):
        with pytest.raises(TooManyRequestsError, match="2 streams"), streams.hold("ann"):
            pass
        with streams.hold("bob"), pytest.raises(UnavailableNowError), streams.hold("cid"):
            pass
    with streams.hold("ann"), streams.hold("ann"):
        pass

    assert not streams._open


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small(client: Client, views: TaskViews) -> AsyncGenerator[RunningGateway]:
    async with running_gateway(
        client, views, queue="none", access=AccessControl(Named()), max_streams_per_owner=MOST
    ) as gateway:
        yield gateway


@asynccontextmanager
async def full(gateway: RunningGateway, call: Call) -> AsyncGenerator[None]:
    """Hold as many streams as the owner may have."""
    async with AsyncExitStack() as held:
        lines: list[AsyncIterator[str]] = []  # closed with the last reference to it
        for _ in range(MOST):
            response = await held.enter_async_context(gateway.http.stream(**call))
            lines.append(response.aiter_lines())
            await anext(lines[-1])
        yield


@pytest.mark.parametrize("binding", RAW_BINDINGS, ids=str)
async def test_a_stream_too_many_is_refused(
    small: RunningGateway, views: TaskViews, binding: RawBinding
) -> None:
    """By 429 and when to come again; those that were closed make room."""
    task = await working_task(views)
    call = changed(binding.subscribe(task.id), headers={"A2A-Version": binding.version})
    for _ in range(2):
        async with full(small, call):
            refused = await small.http.request(**call)

        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        assert f"{MOST} streams" in refused.text
    await task.complete()


async def test_a_message_whose_stream_is_refused_has_no_effect(
    small: RunningGateway, views: TaskViews
) -> None:
    """Nothing was started: the client sends it again."""
    task, binding, message_id = await working_task(views), RAW_BINDINGS[0], unique("m")
    async with full(small, binding.subscribe(task.id)):
        refused = await small.http.request(**binding.send("hi", message_id, stream=True))
        listed = await small.call("ListTasks", {})

    assert refused.status_code == 429
    assert task.id in listed.text
    assert message_id not in listed.text
    await task.complete()

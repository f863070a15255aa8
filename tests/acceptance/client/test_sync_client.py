"""The client without asyncio: the same methods and behaviour as the asynchronous one."""

import asyncio
import inspect

import pytest

from everloop.client import Client, NotFoundError, SyncClient, TaskState
from tests.acceptance.client.test_client import REPORT, said
from tests.support.rigs.deployment import Service


async def test_the_client_without_asyncio_does_the_same_where_a_loop_runs(service: Service) -> None:
    """As in a notebook: this test has a loop of its own.

    Streams that are left early, and clients that are not closed, end with it.
    """
    service.script([*REPORT, *REPORT])
    left_behind = list[asyncio.Task[None]]()

    def token() -> str:
        left_behind.append(asyncio.create_task(asyncio.sleep(3600)))
        return "any"

    def ask() -> None:
        with SyncClient(service.gateway.url, token=token) as client:
            events = list(client.stream("Report."))
            assert said(events) == client.send("Report.").text == "The answer."
            (task,) = client.tasks(limit=1)
            assert task.state is TaskState.COMPLETED
            for event in client.watch(task.id):
                assert event.task_id == task.id
                break
            with pytest.raises(NotFoundError):
                client.task("none")
        with pytest.raises(RuntimeError, match="closed"):
            client.task(task.id)

    await asyncio.to_thread(ask)
    assert left_behind
    assert all(task.cancelled() for task in left_behind)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_of_a_token_is_the_callers(raised: BaseException) -> None:
    """As without a thread in between; the client goes on."""

    def token() -> str:
        raise raised

    with SyncClient("http://127.0.0.1:1", token=token) as client:
        for _ in range(2):
            with pytest.raises(type(raised)):
                client.card()


def test_the_client_without_asyncio_has_all_methods_of_the_other() -> None:
    """With the same parameters."""
    methods = {name for name in dir(Client) if not name.startswith("_")}
    differing = {
        name: name
        for name in methods
        if inspect.signature(getattr(SyncClient, name)) != inspect.signature(getattr(Client, name))
    }

    assert methods == {name for name in dir(SyncClient) if not name.startswith("_")}
    assert differing == {}
    assert inspect.signature(SyncClient) == inspect.signature(Client)

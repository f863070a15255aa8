"""Deduplication of messages: by messageId, by Idempotency-Key, or disabled."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import pytest
import pytest_asyncio
from a2a.types import a2a_pb2 as pb
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.agents.agent import Agent
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import (
    PromptModel,
    RunningGateway,
    StoodIn,
    running_gateway,
    stand_in_worker,
    unique,
)
from tests.gateway.tasks.silent_tasks import delete
from tests.support.a2a_client import connected, request, send

REPEATING = Agent(id="repeating", name="Repeating", description="Takes all.", deduplicate=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def repeating(client: Client, views: TaskViews) -> AsyncGenerator[RunningGateway]:
    """A gateway whose agent does not deduplicate messages; its tasks have no activities."""
    queue = unique("repeating")
    async with (
        stand_in_worker(client, queue),
        running_gateway(client, views, queue=queue, agent=REPEATING) as gateway,
    ):
        yield gateway


def params(text: str, message_id: str, **message: str) -> dict[str, object]:
    """Return the parameters of a send that does not wait."""
    body = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **message}
    return {"message": body, "configuration": {"returnImmediately": True}}


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "key"}])
async def test_a_message_starts_no_second_task_when_temporal_has_forgotten_the_first(
    gateway: RunningGateway, model: PromptModel, client: Client, headers: dict[str, str]
) -> None:
    """Temporal's retention is shorter than ours: the task that has ended is the answer, with its content."""
    text = unique("once")
    keys = {name: f"{value}-{text}" for name, value in headers.items()}
    sent = params(text, "m")
    sent["configuration"] = {"returnImmediately": False}
    first = (await gateway.call("SendMessage", sent, **keys)).json()["result"]["task"]
    await delete(client, first["id"])
    again = (await gateway.call("SendMessage", sent, **keys)).json()["result"]["task"]
    assert (again["id"], again["artifacts"]) == (first["id"], first["artifacts"])
    assert [call.task.task_id for call in model.calls].count(first["id"]) == 1
    with pytest.raises(RPCError, match="not found"):
        await client.get_workflow_handle(first["id"]).describe()


async def test_without_deduplication_each_send_is_a_task(repeating: RunningGateway) -> None:
    """The same messageId and content, twice: two tasks; both show the id that the client gave."""
    sent = [await repeating.call("SendMessage", params("a", "same")) for _ in range(2)]
    tasks = [answer.json()["result"]["task"] for answer in sent]
    assert tasks[0]["id"] != tasks[1]["id"]
    assert all(task["id"].startswith("repeating-") for task in tasks)
    assert [task["history"][0]["messageId"] for task in tasks] == ["same", "same"]


async def test_without_deduplication_a_task_takes_each_message(
    repeating: RunningGateway, client: Client, views: TaskViews
) -> None:
    """One task takes in every message with the same messageId."""
    async with connected(repeating.url, streaming=False) as a2a:
        first = request("one", message_id="same", return_immediately=True)
        task = StoodIn(client, views, await send(a2a, first))
    await task.publish(State.INPUT_REQUIRED)
    for text in ("two", "three"):
        answer = await repeating.call("SendMessage", params(text, "same", taskId=task.id))
        assert answer.json()["result"]["task"]["id"] == task.id
    assert await task.texts() == ["one", "two", "three"]


async def test_a_key_makes_sends_the_same(repeating: RunningGateway) -> None:
    """With one Idempotency-Key there is one task, although the agent does not deduplicate by messageId."""
    key = {"Idempotency-Key": unique("key")}
    sent = await asyncio.gather(
        *(repeating.call("SendMessage", params("a", "same"), **key) for _ in range(5))
    )
    assert len({answer.json()["result"]["task"]["id"] for answer in sent}) == 1


async def test_a_key_holds_for_follow_ups(
    repeating: RunningGateway, client: Client, views: TaskViews
) -> None:
    """A message to a task that is sent again with its key is taken in once."""
    async with connected(repeating.url, streaming=False) as a2a:
        task = StoodIn(client, views, await send(a2a, request("one", return_immediately=True)))
    await task.publish(State.INPUT_REQUIRED)
    key = {"Idempotency-Key": unique("key")}
    for _ in range(3):
        await repeating.call("SendMessage", params("two", "same", taskId=task.id), **key)
    assert await task.texts() == ["one", "two"]


async def test_a_blocking_attempt_with_another_id_gets_the_reply(
    repeating: RunningGateway, client: Client, views: TaskViews
) -> None:
    """A client with a new messageId for each attempt waits for the task of its key."""
    key = {"Idempotency-Key": unique("key")}
    first = await repeating.call("SendMessage", params("a", "m1"), **key)
    task_id = first.json()["result"]["task"]["id"]
    await StoodIn(client, views, pb.Task(id=task_id)).publish(State.INPUT_REQUIRED)
    again = params("a", "m2")
    again["configuration"] = {"returnImmediately": False}
    reply = await repeating.call("SendMessage", again, **key)
    assert reply.json()["result"]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


async def test_a_key_is_for_one_message(repeating: RunningGateway) -> None:
    """Another message with a used key is refused."""
    key = {"Idempotency-Key": unique("key")}
    await repeating.call("SendMessage", params("a", "same"), **key)
    refused = await repeating.call("SendMessage", params("b", "same"), **key)
    check_refused(refused, "has come with another message")


async def test_keys_of_agents_that_deduplicate_hold_as_well(stand_in: RunningGateway) -> None:
    """A client with a new messageId for each attempt sends one message, because its key is the same."""
    key = {"Idempotency-Key": unique("key")}
    sent = [await stand_in.call("SendMessage", params("a", unique("m")), **key) for _ in range(2)]
    assert len({answer.json()["result"]["task"]["id"] for answer in sent}) == 1


def check_refused(answer: httpx.Response, words: str) -> None:
    error = answer.json()["error"]
    assert error["code"] == -32602
    assert words in error["message"]

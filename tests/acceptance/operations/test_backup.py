"""Backup and restore as in docs/operation/backup.md: copies are taken while all runs, one by one."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, SendMessageRequest, Task, TaskState
from a2a.utils.errors import TaskNotFoundError

from tests.support.a2a_client import connected, request, response_of, send
from tests.support.agents.artifacts import ARTIFACT_AGENT, big_content
from tests.support.rigs.backup import Backup
from tests.support.rigs.deployment import Deployment, Gateway, running_deployment
from tests.support.rigs.people import PEOPLE_AGENT, call, effects, say
from tests.support.servers.processes import run_everloop
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, ScriptedOpenAI

ASKS = TaskState.TASK_STATE_INPUT_REQUIRED
COMPLETED = TaskState.TASK_STATE_COMPLETED
MEGABYTES = 2


@dataclass
class Orders:
    """Replies of the model, by the first word of the user's last message: a call, and then an answer."""

    ledger: Path
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, received: ReceivedRequest) -> Reply:
        said = [message for message in received.conversation if message["role"] == "user"]
        word = str(said[-1]["content"]).split()[0]
        if received.conversation[-1]["role"] == "tool" or word in {"Remember", "Recall"}:
            return Reply([f"{word} is done."])
        ledger = str(self.ledger)
        if word == "Write":
            return Reply([call("write_big", {"artifact_id": "big", "megabytes": MEGABYTES, "gate": ""})])
        if word == "Ask":
            return Reply([call("book", {"kind": "selection", "ledger": ledger})])
        payment = call("pay", {"amount": 1, "to": word, "ledger": ledger})
        return Reply([self.go_on, payment] if word == "Wait" else [payment])


@dataclass
class House:
    """A deployment and its first gateway, with a client for each agent."""

    everloop: Deployment
    gateway: Gateway
    people: A2AClient
    artifacts: A2AClient

    async def got(self, task_id: str) -> Task:
        return await self.people.get_task(GetTaskRequest(id=task_id))

    async def knows(self, task: Task) -> bool:
        try:
            await self.got(task.id)
        except TaskNotFoundError:
            return False
        return True

    async def until(self, task_id: str, state: TaskState) -> Task:
        while (task := await self.got(task_id)).status.state != state:  # noqa: ASYNC110 -- asked over HTTP
            await asyncio.sleep(0.1)
        return task

    async def got_written(self, task: Task) -> Task:
        return await self.artifacts.get_task(GetTaskRequest(id=task.id))

    async def content(self, written: Task) -> bytes | int:
        """Return the content of a task's file, or the status of the answer if there is none."""
        (url,) = [part.url for artifact in written.artifacts for part in artifact.parts if part.url]
        async with httpx.AsyncClient(timeout=60) as http:
            answer = await http.get(f"{self.gateway.url}{urlsplit(url).path}")
        return answer.content if answer.is_success else answer.status_code


@asynccontextmanager
async def working(everloop: Deployment) -> AsyncGenerator[House]:
    """Add a worker and a gateway."""
    await everloop.add_worker()
    gateway = await everloop.add_gateway()
    async with AsyncExitStack() as opened:
        people, artifacts = [
            await opened.enter_async_context(connected(f"{gateway.url}/agents/{agent}", streaming=False))
            for agent in ("desk", "artifacts")
        ]
        yield House(everloop, gateway, people, artifacts)


@asynccontextmanager
async def deployed(directory: Path, orders: Orders) -> AsyncGenerator[tuple[ScriptedOpenAI, Backup]]:
    (directory / "copies").mkdir()
    agents = f"{PEOPLE_AGENT},{ARTIFACT_AGENT}"
    async with (
        ScriptedOpenAI(orders) as model,
        running_deployment(directory, model.base_url, agents=agents) as everloop,
    ):
        yield model, Backup(everloop, directory / "copies")


async def reindex(everloop: Deployment) -> str:
    code, told = await run_everloop(everloop.environment, "reindex")
    assert code == 0, told
    return told


@dataclass(frozen=True)
class Left:
    """The tasks of a day with a backup, by their state when Temporal was copied, and some views of them."""

    written: Task
    said: Task
    parked: Task
    answered: Task
    under_way: Task
    later: Task
    order: SendMessageRequest
    lost: Task
    shown: tuple[Task, Task]


async def a_day(house: House, backup: Backup, model: ScriptedOpenAI, orders: Orders) -> Left:
    """Take copies of Temporal, then Redis, then the blobs, while tasks go on between them."""
    written = await send(house.artifacts, request("Write a file."))
    said = await send(house.people, request("Remember this."))
    parked = await send(house.people, request("Ask me once."))
    answered = await send(house.people, request("Ask me again."))
    under_way = await send(house.people, request("Wait for it.", return_immediately=True))
    await model.request(6)
    await backup.copy_temporal()

    await send(house.people, say(answered.id, "20:00"))
    orders.go_on.set()
    await house.until(under_way.id, COMPLETED)
    order = request("Later but saved.")
    later = await send(house.people, order)
    await backup.copy_redis()
    shown = await house.got(said.id), await house.got_written(written)
    await backup.copy_blobs()

    lost = await send(house.people, request("Lost in the end."))
    return Left(written, said, parked, answered, under_way, later, order, lost, shown)


@pytest.mark.one_server  # it replaces one with a copy
async def test_all_is_lost_and_restored(tmp_path: Path, ledger: Path) -> None:
    """Ended tasks are unchanged, open ones end, and effects between the copies happen once.

    A task that went on between the copies of Temporal and of Redis does so again, without asking the model or
    repeating an effect; one that began there is unknown until it is sent again.
    """
    orders = Orders(ledger)
    async with deployed(tmp_path, orders) as (model, backup):
        async with working(backup.everloop) as house:
            left = await a_day(house, backup, model, orders)
        done, asked = effects(ledger), len(model.requests)
        backup.lose_everything()
        await backup.restore_temporal()
        backup.restore_blobs()
        await backup.restore_redis()

        async with working(backup.everloop) as house:
            await reindex(backup.everloop)
            shown = await house.got(left.said.id), await house.got_written(left.written)
            content = await house.content(left.written)
            open_again = [(await house.got(task.id)).status.state for task in (left.parked, left.answered)]
            gone_on = await house.until(left.under_way.id, COMPLETED)
            assert (effects(ledger), len(model.requests)) == (done, asked)
            listed = await house.people.list_tasks(ListTasksRequest())
            known = {name for name in ("later", "lost") if await house.knows(getattr(left, name))}
            sent_again = await send(house.people, left.order)
            ends = [await send(house.people, say(task.id, "20:00")) for task in (left.parked, left.answered)]
            await send(house.people, request("Recall it.", context_id=left.said.context_id))

    assert content == b"".join(big_content(MEGABYTES))
    assert [strip(task) for task in shown] == [strip(task) for task in left.shown]
    assert open_again == [ASKS, ASKS]
    assert response_of(gone_on) == "Wait is done."
    assert known == set()
    tasks = (left.said, left.parked, left.answered, left.under_way)
    assert {task.id for task in listed.tasks} == {task.id for task in tasks}
    assert (sent_again.id, response_of(sent_again)) == (left.later.id, "Later is done.")
    assert [response_of(task) for task in ends] == ["Ask is done."] * 2
    assert effects(ledger) == [*done, ["20:00", "user"]]
    recalled = [message["content"] for message in model.requests[-1].conversation]
    assert recalled[1:] == ["Remember this.", "Remember is done.", "Recall it."]


@pytest.mark.one_server  # it replaces one with a copy
@pytest.mark.slow
async def test_redis_is_lost_and_an_older_copy_restored(tmp_path: Path, ledger: Path) -> None:
    """Tasks are as Temporal has them; artifacts and conversations, as the copy has them."""
    orders = Orders(ledger)
    async with deployed(tmp_path, orders) as (model, backup):
        async with working(backup.everloop) as house:
            written = await send(house.artifacts, request("Write a file."))
            said = await send(house.people, request("Remember this."))
            parked, answered = [await send(house.people, request("Ask me.")) for _ in range(2)]
            await backup.copy_redis()
            await send(house.people, say(answered.id, "18:00"))
            later = await send(house.artifacts, request("Write another file."))
            told = await send(house.people, request("Remember that too.", context_id=said.context_id))
        for process in backup.everloop.started:
            process.stop()
        backup.everloop.valkey.kill()
        await backup.restore_redis()

        async with working(backup.everloop) as house:
            await reindex(backup.everloop)
            states = [(await house.got(task.id)).status.state for task in (parked, answered, told)]
            contents = [await house.content(task) for task in (written, later)]
            shown = await house.got_written(later)
            end = await send(house.people, say(parked.id, "20:00"))
            await send(house.people, request("Recall it.", context_id=said.context_id))

    assert states == [ASKS, COMPLETED, COMPLETED]
    assert contents == [b"".join(big_content(MEGABYTES)), httpx.codes.NOT_FOUND]
    assert response_of(shown) == "Write is done."
    assert response_of(end) == "Ask is done."
    assert "Remember that too." not in json.dumps([m["content"] for m in model.requests[-1].conversation])
    assert model.requests[-1].conversation[1]["content"] == "Remember this."


def strip(task: Task) -> Task:
    """Return a task without the addresses of its parts, which contain that of the gateway."""
    for artifact in task.artifacts:
        for part in artifact.parts:
            part.ClearField("url")
    return task

"""An Everloop asks another one: each has its own servers, and knows of the other what A2A tells."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, ListTasksRequest, Task, TaskState
from pydantic import JsonValue

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.agents.peers import PEER_URL
from tests.support.rigs.deployment import Deployment, Gateway, running_deployment
from tests.support.rigs.people import PEOPLE_AGENT, asked_for, call, effects, question, say
from tests.support.servers.processes import ServerProcess
from tests.support.servers.scripted_openai import CallFragment, Reply, ScriptedOpenAI

ASKER_AGENT = "tests.support.agents.peers:agent"


@dataclass
class Side:
    """One of the two: its model, its gateway, and the worker that is alive."""

    model: ScriptedOpenAI
    everloop: Deployment
    gateway: Gateway
    worker: ServerProcess

    async def lose_worker(self) -> None:
        """Kill the worker and start another one."""
        self.worker.kill()
        self.worker = await self.everloop.add_worker()

    async def tasks(self) -> list[Task]:
        """Return all tasks of the gateway."""
        async with connected(self.gateway.url) as client:
            return list((await client.list_tasks(ListTasksRequest())).tasks)


@dataclass(frozen=True)
class Pair:
    """The one that asks and the one that is asked."""

    asker: Side
    asked: Side

    def expect(self, *replies: Reply) -> None:
        """Let the asker ask once and then answer; the one that is asked replies so."""
        self.asker.model.script = [Reply([_asking()]), Reply(["Done."])]
        self.asked.model.script = replies
        for side in (self.asker, self.asked):
            side.model.requests.clear()

    @property
    def result(self) -> str:
        """What the asker's model read of its call, without the context."""
        (content,) = self.asker.model.requests[-1].tool_results
        return content.partition("\n\n(context: ")[0]


def _asking() -> CallFragment:
    return call("colleague", {"request": "Help me."})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def _pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Pair]:
    here, there = tmp_path_factory.mktemp("asker"), tmp_path_factory.mktemp("asked")
    async with (
        ScriptedOpenAI() as model,
        ScriptedOpenAI() as other_model,
        running_deployment(there, other_model.base_url, agents=PEOPLE_AGENT) as other,
    ):
        asked = Side(other_model, other, await other.add_gateway(), await other.add_worker())
        variables = {PEER_URL: asked.gateway.url}
        async with running_deployment(here, model.base_url, agents=ASKER_AGENT, **variables) as everloop:
            asker = Side(model, everloop, await everloop.add_gateway(), await everloop.add_worker())
            yield Pair(asker, asked)


@pytest_asyncio.fixture
async def pair(_pair: Pair) -> Pair:
    return _pair


async def test_a_worker_killed_while_the_peer_works(pair: Pair) -> None:
    """The next worker goes on with the peer's one task; its answer arrives once."""
    more = asyncio.Event()
    pair.expect(Reply(["Half an ", more, "answer."]))
    before = len(await pair.asked.tasks())

    async with connected(pair.asker.gateway.url) as client:
        reading = asyncio.create_task(Answer().read(client.send_message(request("Ask."))))
        await pair.asked.model.request(1)
        await pair.asker.lose_worker()
        more.set()
        answer = await reading

    assert (answer.text, answer.finals) == ("Done.", 1)
    assert answer.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert pair.result == "Half an answer."
    assert len(pair.asked.model.requests) == 1
    assert len(await pair.asked.tasks()) == before + 1


async def test_a_question_of_the_peer(pair: Pair, ledger: Path) -> None:
    """The asker's client sees it as it is meant, and gives the answer; both workers may die in between."""
    pair.expect(Reply([call("book", {"kind": "selection", "ledger": str(ledger)})]), Reply(["Booked."]))

    async with connected(pair.asker.gateway.url, streaming=False) as client:
        parked = await send(client, request("Ask."))
        await pair.asker.lose_worker()
        await pair.asked.lose_worker()
        task = await send(client, say(parked.id, "20:00"))

    asked = question(parked)
    assert parked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert (asked["text"], asked["options"]) == ("At what time?", ["18:00", "20:00"])
    assert response_of(task) == "Done."
    assert pair.result == "Booked."
    assert effects(ledger) == [["20:00", "user"]]


async def test_several_questions_of_the_peer(pair: Pair, ledger: Path) -> None:
    """They are asked as they come up, one after the other and once each; each answer reaches its question."""
    booked = {"ledger": str(ledger)}
    pair.expect(
        Reply(
            [
                call("book", {"kind": "confirmation", **booked}, 0),
                call("book", {"kind": "clarification", **booked}, 1),
            ]
        ),
        Reply(["Booked."]),
    )
    answers: dict[JsonValue, str] = {"Is it a birthday?": "no", "Under which name?": "Ann"}
    booked_as: dict[JsonValue, JsonValue] = {"Is it a birthday?": False, "Under which name?": "Ann"}

    known = {task.id for task in await pair.asked.tasks()}
    async with connected(pair.asker.gateway.url, streaming=False) as client:
        first = await send(client, request("Ask."))
        await _until_both_are_open(pair.asked, known)
        second = await send(client, say(first.id, answers[question(first)["text"]]))
        task = await send(client, say(first.id, answers[question(second)["text"]]))

    asked = [question(parked)["text"] for parked in (first, second)]
    assert set(asked) == set(answers)
    assert response_of(task) == "Done."
    assert effects(ledger) == [[booked_as[text], "user"] for text in asked]


async def _until_both_are_open(asked: Side, known: set[str]) -> None:
    """Wait until the one new task there asks both."""
    (new,) = (task for task in await asked.tasks() if task.id not in known)
    async with connected(asked.gateway.url) as client:
        await asked_for(client, new, 2)


async def test_a_canceled_task_cancels_that_of_the_peer(pair: Pair) -> None:
    """The peer's task ends before the asker's does."""
    pair.expect(Reply(["Half an ", asyncio.Event()]))
    known = {task.id for task in await pair.asked.tasks()}

    async with connected(pair.asker.gateway.url) as client:
        answer = Answer()
        reading = asyncio.create_task(answer.read(client.send_message(request("Ask."))))
        await pair.asked.model.request(1)
        canceled = await client.cancel_task(CancelTaskRequest(id=answer.task_id))
        await reading
    async with connected(pair.asked.gateway.url) as client:
        (new,) = {task.id for task in await pair.asked.tasks()} - known
        there = await client.get_task(GetTaskRequest(id=new))

    assert canceled.status.state == there.status.state == TaskState.TASK_STATE_CANCELED

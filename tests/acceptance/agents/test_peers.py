"""An Everloop calls another one: each has its own servers, and reads from the other only by A2A."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, ListTasksRequest, TaskState

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.agents.peers import PEER_URL
from tests.support.rigs.deployment import Service, running_service
from tests.support.rigs.people import PEOPLE_AGENT, call, effects, question, say
from tests.support.servers.scripted_openai import Reply

ASKER_AGENT = "tests.support.agents.peers:agent"


@dataclass(frozen=True)
class Pair:
    """The calling and the called deployment."""

    asker: Service
    asked: Service

    def expect(self, *replies: Reply) -> None:
        """Script the caller to ask once and then answer, and the peer to reply like this."""
        self.asker.script([Reply([call("colleague", {"request": "Help me."})]), Reply(["Done."])])
        self.asked.script(replies)

    @property
    def result(self) -> str:
        """Return the result of the call that the caller's model read, without the context."""
        (content,) = self.asker.model.requests[-1].tool_results
        return content.partition("\n\n(context: ")[0]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Pair]:
    here, there = tmp_path_factory.mktemp("asker"), tmp_path_factory.mktemp("asked")
    async with (
        running_service(there, PEOPLE_AGENT) as asked,
        running_service(here, ASKER_AGENT, **{PEER_URL: asked.gateway.url}) as asker,
    ):
        yield Pair(asker, asked)


async def _tasks(service: Service) -> set[str]:
    """Return the ids of all tasks of a gateway."""
    async with connected(service.gateway.url) as client:
        return {task.id for task in (await client.list_tasks(ListTasksRequest())).tasks}


async def test_a_worker_killed_while_the_peer_works(pair: Pair) -> None:
    """The next worker goes on with the peer's one task; its answer arrives once."""
    more = asyncio.Event()
    pair.expect(Reply(["Half an ", more, "answer."]))
    before = len(await _tasks(pair.asked))

    async with connected(pair.asker.gateway.url) as client:
        reading = asyncio.create_task(Answer().read(client.send_message(request("Ask."))))
        await pair.asked.model.request(1)
        await pair.asker.replace_worker()
        more.set()
        answer = await reading

    assert (answer.text, answer.finals) == ("Done.", 1)
    assert answer.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert pair.result == "Half an answer."
    assert len(pair.asked.model.requests) == 1
    assert len(await _tasks(pair.asked)) == before + 1


async def test_a_question_of_the_peer(pair: Pair, ledger: Path) -> None:
    """The caller's client gets the same question, and answers it; both workers may die in between."""
    pair.expect(Reply([call("book", {"kind": "selection", "ledger": str(ledger)})]), Reply(["Booked."]))

    async with connected(pair.asker.gateway.url, streaming=False) as client:
        parked = await send(client, request("Ask."))
        await pair.asker.replace_worker()
        await pair.asked.replace_worker()
        task = await send(client, say(parked.id, "20:00"))

    asked = question(parked)
    assert parked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert (asked["text"], asked["options"]) == ("At what time?", ["18:00", "20:00"])
    assert response_of(task) == "Done."
    assert pair.result == "Booked."
    assert effects(ledger) == [["20:00", "user"]]


@pytest.mark.parametrize("peer", ["works", "waits for an answer"])
async def test_a_canceled_task_cancels_that_of_the_peer(pair: Pair, peer: str, ledger: Path) -> None:
    """The peer's task ends before the caller's does."""
    asks = Reply([call("book", {"kind": "selection", "ledger": str(ledger)})])
    pair.expect(Reply(["Half an ", asyncio.Event()]) if peer == "works" else asks)
    known = await _tasks(pair.asked)

    async with connected(pair.asker.gateway.url) as client:
        answer = Answer()
        reading = asyncio.create_task(answer.read(client.send_message(request("Ask."))))
        await pair.asked.model.request(1)
        if peer != "works":
            await reading  # until the peer is called
        canceled = await client.cancel_task(CancelTaskRequest(id=answer.task_id))
        await reading
    async with connected(pair.asked.gateway.url) as client:
        (new,) = await _tasks(pair.asked) - known
        there = await client.get_task(GetTaskRequest(id=new))

    assert canceled.status.state == there.status.state == TaskState.TASK_STATE_CANCELED

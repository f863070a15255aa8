"""With keys, no server stores plain content of a task; keys change while tasks are under way."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, Task, TaskState
from temporalio.client import Client

from tests.support.a2a_client import connected, request, response_of, send
from tests.support.agents.secrets import LARGE, SECRET_AGENT
from tests.support.encryption import write_keys
from tests.support.rigs.deployment import Deployment, Gateway, running_deployment
from tests.support.rigs.people import question, say
from tests.support.secret_search import files_with, redis_keys_with
from tests.support.servers.processes import ServerProcess, until
from tests.support.servers.scripted_openai import Reasoning, Reply, ScriptedOpenAI, tool_call

KEYS = "EVERLOOP_ENCRYPTION_KEYS_FILE"
COMPLETED = TaskState.TASK_STATE_COMPLETED


@dataclass
class Vault:
    """A deployment with its keys, and a secret word. `gate` lets its tool end."""

    everloop: Deployment
    model: ScriptedOpenAI
    folder: Path
    word: str

    @property
    def gate(self) -> Path:
        return self.folder / "gate"

    def use_keys(self, *key_ids: str) -> None:
        """Set the keys of processes that start from now on."""
        path = write_keys(self.folder / f"keys-{uuid4()}", *key_ids)
        self.everloop.environment[KEYS] = str(path)

    async def start(self) -> tuple[ServerProcess, Gateway]:
        """Start a worker and a gateway."""
        return await asyncio.gather(self.everloop.add_worker(), self.everloop.add_gateway())

    def script(self) -> None:
        arguments = json.dumps({"word": self.word, "folder": str(self.folder)})
        self.model.script = [
            Reply([Reasoning(f"{self.word}?"), f"I say {self.word}.", tool_call("spread", arguments)]),
            Reply([tool_call("stumble", json.dumps({"word": self.word})), tool_call("log_in", index=1)]),
            Reply([f"The word is {self.word}."]),
        ]

    async def places_with(self, text: str) -> set[str]:
        """Return the places of a text: keys of Redis, and files of processes below our directory."""
        keys = await redis_keys_with(self.everloop.redis_url, text)
        return keys | await asyncio.to_thread(files_with, self.everloop.directory, text)

    async def key_ids(self, task_id: str) -> set[bytes]:
        """Return the ids of the keys that encrypt the history of a task; b"": some of it is plain."""
        client = await Client.connect(self.everloop.temporal_address)
        history = await client.get_workflow_handle(task_id).fetch_history()
        inputs = [e.workflow_execution_started_event_attributes.input.payloads for e in history.events]
        results = [e.activity_task_completed_event_attributes.result.payloads for e in history.events]
        held = [payload for payloads in [*inputs, *results] for payload in payloads]
        kept = [payload for payload in held if not payload.external_payloads]  # references to blobs are plain
        return {payload.metadata.get("encryption-key-id", b"") for payload in kept}


@pytest_asyncio.fixture
async def vault(tmp_path: Path, model: ScriptedOpenAI) -> AsyncGenerator[Vault]:
    folder, directory = tmp_path / "folder", tmp_path / "everloop"
    folder.mkdir()
    directory.mkdir()
    async with running_deployment(directory, model.base_url, agents=SECRET_AGENT) as everloop:
        vault = Vault(everloop, model, folder, f"plain-{uuid4()}")
        vault.script()
        yield vault


async def _begin(vault: Vault, gateway: Gateway) -> Task:
    """Start the task, and return it while its tool waits."""
    async with connected(gateway.url, streaming=False) as client:
        message = request(f"Spread {vault.word}! {'.' * LARGE}", return_immediately=True)
        task = await send(client, message)
        await until(lambda: any(vault.folder.glob("attempt-*")))
    return task


async def _end(vault: Vault, gateway: Gateway, task: Task) -> Task:
    """End the tool, give the requested password, and return the task after its end."""
    vault.gate.touch()
    async with connected(gateway.url, streaming=False) as client:
        while not _asks(task):
            task = await client.get_task(GetTaskRequest(id=task.id))
            await asyncio.sleep(0.02)
        return await send(client, say(task.id, vault.word, question=str(question(task)["id"])))


def _asks(task: Task) -> bool:
    return task.status.state == TaskState.TASK_STATE_AUTH_REQUIRED


async def test_no_server_keeps_a_word_in_plain(vault: Vault) -> None:
    """Not Temporal, not Redis, not the blobs: also when a worker is killed and the key is changed meanwhile.

    Clients see all of it, and the task goes on with the next key although it began with the first.
    """
    vault.use_keys("k1")
    worker, gateway = await vault.start()
    task = await _begin(vault, gateway)
    during = await vault.places_with(vault.word)
    worker.kill()
    gateway.process.stop()
    vault.use_keys("k2", "k1")
    _, gateway = await vault.start()
    ended = await _end(vault, gateway, task)
    async with httpx.AsyncClient() as http:
        parts = [f"{gateway.url}/artifacts/{ended.context_id}/{name}/parts/0" for name in ("notes", "book")]
        notes, book = [(await http.get(part)).text for part in parts]

    assert ended.status.state == COMPLETED
    assert response_of(ended) == f"The word is {vault.word}."
    assert notes == vault.word
    assert book == f"{vault.word} " * 50_000
    assert {a.artifact_id: a.description for a in ended.artifacts}["notes"] == vault.word
    results = vault.model.requests[-1].tool_results
    assert [vault.word in result for result in results] == [True, True, False]
    assert during | await vault.places_with(vault.word) == set()
    assert await vault.places_with(task.id) >= {
        "temporal",
        "valkey",
    }  # the search finds plain ids, so it works
    assert await vault.key_ids(task.id) == {b"k1", b"k2"}

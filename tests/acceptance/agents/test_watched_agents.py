"""Hooks in a worker that is killed, required artifacts of a task, and claims of callers in tools."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, Task, TaskState
from temporalio.client import Client

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.agents.watched import DECIDING_HOOKS, FOLDER, WATCHED_AGENTS, agent_of
from tests.support.rigs.deployment import Service, running_service
from tests.support.secret_search import contains, files_with, redis_keys_with
from tests.support.seeded_secrets import seed_secret, seed_text
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, tool_call
from tests.support.servers.tokens import AUDIENCE, ISSUER, SigningKey

COMPLETED = TaskState.TASK_STATE_COMPLETED


@dataclass(frozen=True)
class Watched:
    """The watched agents, and the folder for marks of their hooks and tools."""

    service: Service
    folder: Path

    def marks(self, task_id: str) -> list[str]:
        """Return the marks of a task's hooks and tools."""
        marks = self.folder / task_id
        return marks.read_text("utf-8").splitlines() if marks.exists() else []

    async def until_left(self, task_id: str, mark: str) -> None:
        await until(lambda: mark in self.marks(task_id))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Watched]:
    directory, folder = tmp_path_factory.mktemp("everloop"), tmp_path_factory.mktemp("marks")
    async with running_service(directory, WATCHED_AGENTS, **{FOLDER: str(folder)}) as service:
        yield Watched(service, folder)


async def test_hooks_survive_a_worker(watched: Watched) -> None:
    """A hook whose worker was killed runs again, and the effect of each counts once.

    If the worker dies in `after_tool`, the end of the call is lost with it: the tool, which is not
    idempotent, does not run again. If it dies in `after_model_call`, the reply is still there: the model is
    not called again.
    """
    calls = Reply([tool_call("note", '{"text": "plain"}')])

    def script(received: ReceivedRequest) -> Reply:
        return Reply(["Done."]) if received.tool_results else calls

    watched.service.script(script)
    tasks: dict[str, Task] = {}
    for hook in DECIDING_HOOKS:
        async with connected(watched.service.at(agent_of(hook)), streaming=False) as client:
            tasks[hook] = await send(client, request(f"Note it, {hook}.", return_immediately=True))
    for hook, task in tasks.items():
        await watched.until_left(task.id, f"begin {hook}")
    await watched.service.replace_worker()
    (watched.folder / "gate").touch()
    temporal = await Client.connect(watched.service.everloop.temporal_address)
    for task in tasks.values():
        await temporal.get_workflow_handle(task.id).result()
        await watched.until_left(task.id, "outcome completed Done. (watched)")

    for hook, task in tasks.items():
        begun = [mark for mark in watched.marks(task.id) if mark.startswith("begin")]
        received = watched.service.model.requests_of(hook)
        assert begun == [f"begin {each}" for each in _ways(hook)], hook
        assert watched.marks(task.id).count("note watched") == 1
        assert [mark for mark in watched.marks(task.id) if "outcome" in mark] == [
            "outcome completed Done. (watched)"
        ]
        assert [each.body["temperature"] for each in received] == [0.25] * len(received)
        assert "(watched)" in str(received[-1].conversation[0]["content"])
        (result,) = received[-1].tool_results
        if hook == "after_tool":
            assert "It may or may not have taken effect" in result
        else:
            assert result == "noted: watched (watched)"
        assert len(received) == 2, hook


def _ways(killed: str) -> list[str]:
    """Return the hooks in the order in which they run; the worker of the task is killed in one of them."""
    model, tool_ = ["before_model_call", "after_model_call"], ["before_tool", "after_tool"]
    ways = ["before_request", *model, *tool_, *model, "after_completion"]
    at = ways.index(killed)
    match killed:
        case "after_tool":
            again = ["before_tool"]
        case _:
            again = [killed]
    return [*ways[: at + 1], *again, *ways[at + 1 :]]


async def test_a_task_leaves_the_artifact_that_it_has_to(watched: Watched) -> None:
    """One more model call has to write it before the answer, also when a worker dies meanwhile."""
    parts = [{"text": "All is well."}]
    written = {"append": False, "last_chunk": True, "artifact": {"artifact_id": "report", "parts": parts}}
    watched.service.script(
        [
            Reply(["Here you are."]),
            Reply([asyncio.Event()]),
            Reply([tool_call("artifact_update", json.dumps(written))]),
        ]
    )

    async with connected(watched.service.at("leaving")) as client:
        reading = asyncio.create_task(Answer().read(client.send_message(request("Write a report."))))
        forced = await watched.service.model.request(2)
        await watched.service.replace_worker()
        answer = await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert [received.body.get("tool_choice") for received in watched.service.model.requests] == [
        None,
        forced.body["tool_choice"],
        forced.body["tool_choice"],
    ]
    assert forced.body["tool_choice"] == {"type": "function", "function": {"name": "artifact_update"}}
    assert task.status.state == answer.states[-1] == COMPLETED
    assert {each.artifact_id: each.parts[0].text for each in task.artifacts} == {
        "report": "All is well.",
        "response": "Here you are.",
    }


async def test_a_tool_learns_who_called_and_nobody_keeps_how_they_proved_it(
    watched: Watched, ledger: Path, tmp_path: Path
) -> None:
    """The claims that settings name reach the tool by way of the history.

    The token and other claims are in no history, nor in Redis, nor on the disk of a server, nor in logs.
    """
    signing, private, word = SigningKey(), f"ann-{uuid4()}@example.org", seed_text(f"public-{uuid4()}")
    token = signing.token(sub="ann", tenant="blue", email=private, scope="tasks:read tasks:write")
    secrets = [seed_secret(each) for each in (private, token, *token.split(".")[1:])]
    gateway = await watched.service.everloop.add_gateway(
        EVERLOOP_AUTH="jwt",
        EVERLOOP_JWT_PUBLIC_KEY_FILE=str(signing.write(tmp_path / "public.pem")),
        EVERLOOP_JWT_ISSUER=ISSUER,
        EVERLOOP_JWT_AUDIENCE=AUDIENCE,
        EVERLOOP_JWT_CLAIMS="sub,tenant",
        EVERLOOP_LOG_LEVEL="debug",
    )
    watched.service.script([Reply([tool_call("who", json.dumps({"ledger": str(ledger)}))]), Reply(["Done."])])

    url, headers = f"{gateway.url}/agents/acquainted", {"Authorization": f"Bearer {token}"}
    async with connected(url, streaming=False, headers=headers) as client:
        task = await send(client, request(f"Who am I? {word}"))
    temporal = await Client.connect(watched.service.everloop.temporal_address)
    history = await temporal.get_workflow_handle(task.id).fetch_history()
    recorded = b"".join(event.SerializeToString() for event in history.events)

    owner, identity = ledger.read_text("utf-8").splitlines()
    assert (response_of(task), owner) == ("Done.", "ann")
    assert json.loads(identity) == {
        "scheme": "bearer",
        "subject": "ann",
        "scopes": ["tasks:read", "tasks:write"],
        "claims": {"sub": "ann", "tenant": "blue"},
    }
    assert contains(recorded, word)
    assert await redis_keys_with(watched.service.everloop.redis_url, word)
    assert "temporal" in files_with(watched.service.everloop.directory, word)
    for secret in secrets:
        assert not contains(recorded, secret)
        assert await redis_keys_with(watched.service.everloop.redis_url, secret) == set()
        assert files_with(watched.service.everloop.directory, secret) == set()

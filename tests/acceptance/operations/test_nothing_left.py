"""No byte of deleted content is left in Redis, in the blobs, or in any answer of Temporal."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import TaskPushNotificationConfig
from temporalio.client import Client as TemporalClient

from everloop.client import Client, Deletion, Part, Result
from everloop.gateway.auth.api_keys import add_key, new_key
from everloop.gateway.auth.scopes import ADMIN, READ, WRITE
from tests.support.a2a_client import connected
from tests.support.agents.forgotten import LARGE
from tests.support.rigs.deployment import Service, running_deployment
from tests.support.secret_search import redis_keys_with, temporal_with, tree_with
from tests.support.seeded_secrets import seed_secret
from tests.support.servers.scripted_openai import (
    Answer,
    CallFragment,
    ReceivedRequest,
    Reply,
    ScriptedOpenAI,
    tool_call,
)
from tests.support.servers.webhook import Webhook, running_webhook

AGENTS = "tests.support.agents.forgotten:agents"

SHORT_HISTORIES = ("limit.historyCount.suggestContinueAsNew=12",)
"""Temporal asks for a new run after so few events that runs begin parked, and that deletions take several."""

BEGIN = "Begin"
"""In the first message of each task."""


@dataclass(frozen=True)
class Place:
    """A deployment whose tasks write a word to every store, and the questions that they ask."""

    service: Service
    temporal: TemporalClient
    keys: dict[str, str]

    def client(self, owner: str, agent: str = "keeper") -> Client:
        return Client(self.service.at(agent), api_key=self.keys[owner])

    async def left_of(self, *words: str) -> set[str]:
        """Return the places of any of these words."""
        found = set[str]()
        blobs = Path(self.service.everloop.environment["EVERLOOP_BLOB_DIRECTORY"])
        for word in words:
            found |= {f"redis {key}" for key in await redis_keys_with(self.service.everloop.redis_url, word)}
            found |= {f"blobs {path}" for path in await asyncio.to_thread(tree_with, blobs, word)}
            found |= {f"temporal {name}" for name in await temporal_with(self.temporal, word)}
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    directory = tmp_path_factory.mktemp("place")
    path, keys = directory / "keys", dict[str, str]()
    for owner, scopes in {"ann": (READ, WRITE), "gone": (READ, WRITE), "law": (READ, WRITE, ADMIN)}.items():
        key, line = new_key(f"owner-{owner}", scopes, None)
        add_key(path, line)
        keys[owner] = seed_secret(key)
    settings = {"EVERLOOP_AUTH": "api-key", "EVERLOOP_API_KEYS_FILE": str(path)}
    async with (
        ScriptedOpenAI() as model,
        running_deployment(
            directory, model.base_url, agents=AGENTS, temporal_settings=SHORT_HISTORIES, **settings
        ) as everloop,
    ):
        worker = await everloop.add_worker(EVERLOOP_PUSH_ALLOW="127.0.0.0/8")
        gateway = await everloop.add_gateway(EVERLOOP_PUSH_ALLOW="127.0.0.0/8")
        temporal = await TemporalClient.connect(everloop.temporal_address)
        yield Place(Service(model, everloop, gateway, worker), temporal, keys)


def _script(word: str) -> Callable[[ReceivedRequest], Answer]:
    """Script models to call every tool, one after the other; each reply contains the word."""
    arguments = json.dumps({"word": word})
    of_keeper: list[list[CallFragment]] = [
        [tool_call("spread", arguments), tool_call("look_up", arguments, index=1)],
        [tool_call("approve", arguments), tool_call("log_in", index=1)],
        [tool_call("request_input", json.dumps({"question": f"And {word}?"}))],
        [tool_call("helper", json.dumps({"request": f"{BEGIN} with {word}."}))],
    ]
    scripts = {"keeper": of_keeper, "helper": of_keeper[:2]}

    def answer(received: ReceivedRequest) -> Answer:
        calls = scripts.get(str(received.body["model"]), [])
        replies = sum(message["role"] == "assistant" for message in _since_begin(received.conversation))
        if replies < len(calls):
            return Reply([f"I say {word}.", *calls[replies]])
        return Reply([f"It was {word}."])

    return answer


def _since_begin(conversation: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the messages since the last one that begins a task."""
    begins = [
        n for n, each in enumerate(conversation) if each["role"] == "user" and BEGIN in str(each["content"])
    ]
    return conversation[begins[-1] :] if begins else ()


async def _work(place: Place, owner: str, word: str, context: str, hook: Webhook) -> Result:
    """Run a task through everything, and answer all its questions."""
    place.service.script(_script(word))
    async with place.client(owner) as client:
        message = f"{BEGIN} with {word}. {'.' * LARGE}"
        result = await client.send(message, context_id=context, metadata={"about": word}, detach=True)
        await _notify(place, owner, result.id, word, hook)
        while not result.is_done:
            for question in result.questions:
                if question.purpose == "approval":
                    await client.approve(result.id, question.id, note=word, detach=True)
                else:
                    await client.answer(result.id, word, question_id=question.id, detach=True)
            result = await client.task(result.id)
            await asyncio.sleep(0.1)
    assert result.text == f"It was {word}."
    return result


async def _notify(place: Place, owner: str, task_id: str, token: str, hook: Webhook) -> None:
    url, headers = place.service.at("keeper"), {"X-API-Key": place.keys[owner]}
    async with connected(url, headers=headers) as client:
        config = TaskPushNotificationConfig(task_id=task_id, url=f"{hook.url}?{token}", token=token)
        await client.create_task_push_notification_config(config)


async def _ended(client: Client, deletion: Deletion, *, owner: str = "") -> Deletion:
    """Wait until a deletion is no longer running."""
    while deletion.state == "running":
        await asyncio.sleep(0.3)
        deletion = await client.deletion(deletion.id, owner=owner)
    return deletion


async def test_nothing_is_left_of_a_task(place: Place) -> None:
    """Nor of its sub-agent; its runs began parked, and another task is unchanged."""
    word, other, context = _word(), _word(), _word()
    async with running_webhook() as hook, place.client("ann") as client:
        kept = await _work(place, "ann", other, _word(), hook)
        task = await _work(place, "ann", word, context, hook)
        before = await place.left_of(word, task.id, context)
        runs = {run.run_id async for run in place.temporal.list_workflows(f"WorkflowId = '{task.id}'")}
        deletion = await _ended(client, await client.delete_task(task.id))
        still = await client.task(kept.id)

    assert len(runs) > 1
    assert {each.split(" ")[0] for each in before} == {"redis", "blobs", "temporal"}
    assert (deletion.state, deletion.removed.tasks) == ("done", 1)
    assert await place.left_of(word, task.id) == set()
    assert (still.text, {each.id for each in still.artifacts}) == (
        f"It was {other}.",
        {f"notes-{other}", "book"},
    )


@pytest.mark.slow
async def test_nothing_is_left_of_a_context(place: Place) -> None:
    """Nor of its tasks, their summary, and messages that were answered at once."""
    words, context, ids = [_word() for _ in range(3)], _word(), list[str]()
    async with (
        running_webhook() as hook,
        place.client("ann") as client,
        place.client("ann", "porter") as porter,
    ):
        for word in words[:2]:
            ids.append((await _work(place, "ann", word, context, hook)).id)
        place.service.script(_script(words[2]))
        answered = await porter.send(f"Say {words[2]}.", context_id=context)
        deletion = await _ended(client, await client.delete_context(context))

    assert answered.id == ""
    assert (deletion.state, deletion.removed.tasks) == ("done", 3)
    assert await place.left_of(context, *words, *ids) == set()


@pytest.mark.slow
async def test_nothing_is_left_of_an_owner(place: Place) -> None:
    """Nor of schedules, with their files and webhooks, and of notes that tools stored for them."""
    word, context = _word(), _word()
    file = Part(raw=word.encode(), filename=f"{word}.txt", media_type="text/plain")
    async with running_webhook() as hook, place.client("gone") as client, place.client("law") as admin:
        task = await _work(place, "gone", word, context, hook)
        push = {"url": f"{hook.url}?{word}", "token": word}
        await client.create_schedule(
            f"Say {word}", file, id=f"yearly-{word}", cron="0 0 1 1 *", push_config=push
        )
        before = await place.left_of("owner-gone")
        begun = await admin.delete_owner(owner="owner-gone")
        deletion = await _ended(admin, begun, owner="owner-gone")

    assert {each.split(" ")[0] for each in before} == {"redis", "blobs", "temporal"}
    assert (deletion.state, deletion.removed.tasks) == ("done", 1)
    assert await place.left_of("owner-gone", word, context, task.id) == set()


def _word() -> str:
    """Return a unique word."""
    return f"w{uuid4().hex}"

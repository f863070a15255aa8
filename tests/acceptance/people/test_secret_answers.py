"""A client's secret answer reaches the tool that asked for it, and no other place."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from a2a.client import Client
from a2a.types.a2a_pb2 import GetTaskRequest, Task, TaskState
from pydantic import JsonValue

from everloop.stores.keys import log_key, secrets_key, snapshot_key
from tests.support.a2a_client import connected, request, response_of, send
from tests.support.agents.people import fingerprint
from tests.support.rigs.deployment import running_deployment
from tests.support.rigs.people import PEOPLE_AGENT, Harness, call, effects, question, questions, say, shown
from tests.support.secret_search import contains, files_with, redis_keys_with
from tests.support.seeded_secrets import seed_secret, seed_text
from tests.support.servers.otlp_receiver import OtlpReceiver, running_otlp_receiver
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import ScriptedOpenAI

LARGE = 300_000
"""Bytes of a message that goes to the blob store."""

SUPPLIED = "(a secret was supplied)"


@pytest.fixture
def word() -> str:
    """A word that is not secret."""
    return seed_text(f"public-{uuid4()}")


@pytest.fixture
def secret() -> str:
    return seed_secret(f"secret-{uuid4()}")


@pytest_asyncio.fixture
async def receiver() -> AsyncGenerator[OtlpReceiver]:
    async with running_otlp_receiver() as running:
        yield running


@pytest_asyncio.fixture
async def talkative(
    tmp_path: Path, model: ScriptedOpenAI, receiver: OtlpReceiver, ledger: Path
) -> AsyncGenerator[Harness]:
    """A harness with full logs and traces, content included, whose model opens the vault."""
    (tmp_path / "everloop").mkdir()
    settings = {
        "EVERLOOP_LOG_LEVEL": "debug",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    }
    async with running_deployment(
        tmp_path / "everloop", model.base_url, agents=PEOPLE_AGENT, **settings
    ) as everloop:
        await everloop.add_worker()
        harness = Harness(model, everloop, await everloop.add_gateway())
        harness.expect(call("open_vault", {"ledger": str(ledger)}))
        yield harness


async def _supply(client: Client, ledger: Path, word: str, answer: JsonValue) -> Task:
    """Start a task, answer its question, and return it as it was while it asked; its tool now runs."""
    asked = await send(client, request(f"Open the vault. {word} {'x' * LARGE}"))
    message = say(asked.id, answer, question=next(iter(questions(asked))))
    message.configuration.return_immediately = True
    await send(client, message)
    await until(ledger.with_name("ledger.reached").exists)
    return asked


async def test_a_secret_reaches_its_tool_and_nobody_else(
    talkative: Harness, receiver: OtlpReceiver, ledger: Path, word: str, secret: str
) -> None:
    """It is in one Redis hash until the task ends, so a worker that dies does not lose it."""
    everloop = talkative.everloop
    async with connected(talkative.gateway.url, streaming=False) as client:
        asked = await _supply(client, ledger, word, secret)
        everloop.started[0].kill()
        kept = await redis_keys_with(everloop.redis_url, secret)
        ledger.with_name("ledger.gate").touch()
        await everloop.add_worker()
        await (await talkative.workflow(asked.id)).result()
        task = await client.get_task(GetTaskRequest(id=asked.id))

    assert asked.status.state == TaskState.TASK_STATE_AUTH_REQUIRED
    assert "Please give the token of the vault.\n(send the secret in a message whose metadata" in shown(asked)
    assert question(asked)["kind"] == "auth"
    assert effects(ledger) == [fingerprint(secret)]
    assert response_of(task) == "Done."
    assert talkative.tool_results == ["opened with [secret]"]
    assert [part.text for message in task.history for part in message.parts].count(SUPPLIED) == 1
    assert kept == {secrets_key(task.id)}
    await _check_places(talkative, receiver, task, word, secret)


async def _check_places(harness: Harness, receiver: OtlpReceiver, task: Task, word: str, secret: str) -> None:
    """Search all places; the public word is found, so the secret would be found, too."""
    everloop = harness.everloop
    history = await (await harness.workflow(task.id)).fetch_history()
    recorded = b"".join(event.SerializeToString() for event in history.events)
    keys = await redis_keys_with(everloop.redis_url, secret)
    public_keys = await redis_keys_with(everloop.redis_url, word)
    for process in everloop.started:
        await asyncio.to_thread(process.stop)  # it now sends unsent spans, and we receive them
    told = [
        str(receiver.spans),
        str(receiver.metrics),
        str(task),
        str([r.body for r in harness.model.requests]),
    ]

    assert keys == set()
    assert {snapshot_key(task.id), log_key(task.id)} - public_keys == set()
    assert contains(recorded, SUPPLIED)
    assert not contains(recorded, secret)
    assert files_with(everloop.directory, secret) <= {"valkey"}
    assert files_with(everloop.directory, word) >= {"temporal", "blobs"}
    assert any(line.get("level") == "debug" for line in everloop.logs())
    assert {span.name for span in receiver.spans} >= {"a2a SendMessage", "execute_tool open_vault"}
    assert word in str(receiver.spans)
    assert [text for text in told if contains(text.encode(), secret)] == []

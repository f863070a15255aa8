"""A secret that a client supplies reaches the tool that asked for it, and no other place."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from a2a.client import Client
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, Task, TaskState
from pydantic import JsonValue

from tests.support.a2a_client import connected, request, response_of, send
from tests.support.deployment import running_deployment
from tests.support.otlp_receiver import OtlpReceiver, running_otlp_receiver
from tests.support.people import PEOPLE_AGENT, Desk, call, effects, questions, say, shown
from tests.support.people_agents import fingerprint
from tests.support.scripted_openai import ScriptedOpenAI
from tests.support.secret_search import contains, files_with, redis_keys_with
from workflows.contract.names import history_key, secrets_key, stream_key

LARGE = 300_000
"""Bytes of a message that goes to the blob store."""

SUPPLIED = "(a secret was supplied)"


@pytest.fixture
def word() -> str:
    """A word that the client may say to everybody."""
    return f"public-{uuid4()}"


@pytest.fixture
def secret() -> str:
    return f"secret-{uuid4()}"


@pytest_asyncio.fixture
async def receiver() -> AsyncGenerator[OtlpReceiver]:
    async with running_otlp_receiver() as running:
        yield running


@pytest_asyncio.fixture
async def talkative(
    tmp_path: Path, model: ScriptedOpenAI, receiver: OtlpReceiver, ledger: Path
) -> AsyncGenerator[Desk]:
    """A desk that logs and traces all it can, and whose model opens the vault."""
    (tmp_path / "everloop").mkdir()
    settings = {
        "EVERLOOP_LOG_LEVEL": "debug",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    async with running_deployment(
        tmp_path / "everloop", model.base_url, agents=PEOPLE_AGENT, **settings
    ) as everloop:
        await everloop.add_worker()
        desk = Desk(model, everloop, await everloop.add_gateway())
        desk.expect(call("open_vault", {"ledger": str(ledger)}))
        yield desk


async def _supply(client: Client, ledger: Path, word: str, answer: JsonValue) -> Task:
    """Start a task, answer what it asks for, and return it as it was while it asked; its tool now runs."""
    asked = await send(client, request(f"Open the vault. {word} {'x' * LARGE}"))
    message = say(asked.id, answer)
    message.configuration.return_immediately = True
    await send(client, message)
    while not ledger.with_name("ledger.reached").exists():  # noqa: ASYNC110 -- another process makes it
        await asyncio.sleep(0.02)
    return asked


async def test_a_secret_reaches_its_tool_and_nobody_else(
    talkative: Desk, receiver: OtlpReceiver, ledger: Path, word: str, secret: str
) -> None:
    """It stands in one Redis hash until the task ends, so a worker that dies does not lose it."""
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
    assert "Please give the token of the vault.\n(send the secret as a text or data part;" in shown(asked)
    assert questions(asked)["call_1"]["kind"] == "auth"
    assert effects(ledger) == [fingerprint(secret)]
    assert response_of(task) == "Done."
    assert talkative.tool_results == ["opened with [secret]"]
    assert [part.text for message in task.history for part in message.parts].count(SUPPLIED) == 1
    assert kept == {secrets_key(task.id)}
    await _check_places(talkative, receiver, task, word, secret)


async def test_the_secret_of_a_canceled_task_is_forgotten(
    talkative: Desk, receiver: OtlpReceiver, ledger: Path, word: str, secret: str
) -> None:
    """Although the tool, which has it, never came to use it."""
    url = talkative.everloop.redis_url
    async with connected(talkative.gateway.url, streaming=False) as client:
        asked = await _supply(client, ledger, word, {"token": secret})
        kept = await redis_keys_with(url, secret)
        task = await client.cancel_task(CancelTaskRequest(id=asked.id))

    assert kept == {secrets_key(task.id)}
    assert task.status.state == TaskState.TASK_STATE_CANCELED
    assert effects(ledger) == []
    await _check_places(talkative, receiver, task, word, secret)


async def _check_places(desk: Desk, receiver: OtlpReceiver, task: Task, word: str, secret: str) -> None:
    """Look everywhere; that the public word is found shows that the secret would be found, too."""
    everloop = desk.everloop
    history = await (await desk.workflow(task.id)).fetch_history()
    recorded = b"".join(event.SerializeToString() for event in history.events)
    keys = await redis_keys_with(everloop.redis_url, secret)
    public_keys = await redis_keys_with(everloop.redis_url, word)
    for process in everloop.started:
        await asyncio.to_thread(process.stop)  # what it has not sent yet, it sends now, and we receive it
    told = [str(receiver.spans), str(receiver.metrics), str(task), str([r.body for r in desk.model.requests])]

    assert keys == set()
    assert {history_key(task.id), stream_key(task.id)} - public_keys == set()
    assert contains(recorded, SUPPLIED)
    assert not contains(recorded, secret)
    assert files_with(everloop.directory, secret) <= {"valkey"}
    assert files_with(everloop.directory, word) >= {"temporal", "blobs"}
    assert any(line.get("level") == "debug" for line in everloop.logs())
    assert {span.name for span in receiver.spans} >= {"a2a SendMessage", "execute_tool open_vault"}
    assert [text for text in told if contains(text.encode(), secret)] == []

"""Answers at once survive what tasks survive, and are remembered."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio
from a2a.client import A2AClientError, Client
from a2a.types import a2a_pb2 as pb

from tests.support.a2a_client import connected, request
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI


@pytest_asyncio.fixture
async def deciding(tmp_path: Path, model: ScriptedOpenAI) -> AsyncGenerator[Deployment]:
    agents = "tests.support.agents.deciding:agent"
    async with running_deployment(tmp_path, model.base_url, agents=agents) as running:
        yield running


async def ask(client: Client, message: pb.SendMessageRequest) -> pb.StreamResponse:
    """Return the only response to a message."""
    (response,) = [response async for response in client.send_message(message)]
    return response


async def test_a_worker_and_a_gateway_killed_while_the_model_decides(
    model: ScriptedOpenAI, deciding: Deployment
) -> None:
    """The client sends its message again, to another gateway, and gets the one answer; so does everybody."""
    model.script = [Reply(["Fo", asyncio.Event()]), Reply(["Four."])]
    worker, gateway = await deciding.add_worker(), await deciding.add_gateway()
    message = request("2 + 2")
    async with connected(gateway.url, streaming=False) as client:
        asking = asyncio.create_task(ask(client, message))
        while not model.requests:  # noqa: ASYNC110 -- another process makes them
            await asyncio.sleep(0.02)
        gateway.process.kill()
        worker.kill()
        await asyncio.wait({asking})
    assert isinstance(asking.exception(), A2AClientError)

    await deciding.add_worker()
    other = await deciding.add_gateway()
    async with connected(other.url, streaming=False) as client:
        first, again = await ask(client, message), await ask(client, message)

    assert [part.text for part in first.message.parts] == ["Four."]
    assert again == first
    assert len(model.requests) == 2

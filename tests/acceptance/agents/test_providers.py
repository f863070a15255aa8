"""Whole tasks on the APIs of providers, on a model class of an author, and during an outage of a provider."""

import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, TaskState
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from everloop.local.servers import LOOPBACK
from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from tests.stores.examples import let_pass
from tests.support.a2a_client import Answer, Binding, connected, request, response_of, send
from tests.support.rigs.deployment import Service, running_service
from tests.support.rigs.provider_rig import RESPONSES, Zoo, running_zoo
from tests.support.secret_search import redis_keys_with
from tests.support.seeded_secrets import MODEL_KEY, seed_secret
from tests.support.servers.processes import free_port
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI
from tests.support.servers.webhook import running_webhook
from tests.support.servers.zoo.all import ANSWERING, ASKING
from tests.support.servers.zoo.gemini import Gemini
from tests.support.servers.zoo.openrouter import OpenRouter
from tests.support.servers.zoo.provider import Provider
from tests.support.servers.zoo.responses import OpenAIResponses

KINDS: dict[str, type[Provider]] = {
    "gemini": Gemini,
    "openrouter": OpenRouter,
    RESPONSES: OpenAIResponses,
}
KEYS = ("GEMINI_API_KEY", "OPENROUTER_API_KEY")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def zoo(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Zoo]:
    agents, directory = "tests.support.agents.providers:of_the_zoo", tmp_path_factory.mktemp("zoo")
    settings = {
        **dict.fromkeys(KEYS, MODEL_KEY),
        "EVERLOOP_LOG_LEVEL": "debug",
        "EVERLOOP_PUSH_ALLOW": "127.0.0.0/8",
    }
    async with running_zoo(directory, agents, *KINDS, **settings) as running:
        yield running


async def test_a_model_of_an_author_is_asked(zoo: Zoo) -> None:
    """A model without an API of OpenAI is a class that models.toml names."""
    async with connected(zoo.at("parrot"), streaming=False) as client:
        task = await send(client, request("Which of the two is a city?"))

    assert (task.status.state, response_of(task)) == (TaskState.TASK_STATE_COMPLETED, "Köln is a city")


OPAQUE = {"gemini": "EjQKMgEMOdbH0", "openrouter": "Et0BCkgIChACGAIq0", RESPONSES: "gAAAAABrs_00"}
"""The fields of its first reply that each provider requires in the next request."""


@pytest.mark.parametrize("name", OPAQUE)
async def test_what_a_provider_wants_back_nobody_else_reads(zoo: Zoo, name: str) -> None:
    """They are in no stream, task, list, notification or log, nor in the data in Redis behind them."""
    secret = seed_secret(OPAQUE[name])
    wires: list[Message] = []
    bindings: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")
    async with running_webhook() as hook:
        for binding in bindings:
            zoo.play(**{name: KINDS[name](ASKING, ANSWERING)})
            asked = request("Which of the two is a city?")
            asked.configuration.task_push_notification_config.url = hook.url
            async with connected(zoo.at(name), binding=binding) as client:
                streamed = await Answer().read(client.send_message(asked))
                task = await client.get_task(GetTaskRequest(id=streamed.task_id, history_length=100))
                listed = await client.list_tasks(ListTasksRequest(include_artifacts=True))
            wires += [*streamed.responses, task, listed]
            assert secret in str(zoo.servers[name].requests[1].body)
        await hook.until_delivered("TASK_STATE_COMPLETED")
        told = [each.content.decode() for each in (*hook.taken, *hook.refused)]

    assert [wire for wire in (*map(MessageToJson, wires), *told) if secret in wire] == []
    kept = await redis_keys_with(zoo.everloop.redis_url, secret)
    assert {":transcript:" in key for key in kept} == {True}


MODELS = """
[providers.office]
base_url = "http://{host}:{port}/v1"
"""


async def answer_of(service: Service) -> str:
    async with connected(service.gateway.url, streaming=False) as client:
        return response_of(await send(client, request("Hi.")))


async def test_another_provider_answers_until_the_first_is_back(tmp_path: Path) -> None:
    """Tasks go on after two attempts, and without any once the provider is marked as down."""
    port, file = free_port(), tmp_path / "models.toml"
    file.write_text(MODELS.format(host=LOOPBACK, port=port))
    agents = "tests.support.agents.two_providers:agent"
    async with running_service(tmp_path, agents, EVERLOOP_MODELS_FILE=str(file)) as service:
        service.script(lambda _: Reply(["From OpenAI."]))
        assert [await answer_of(service) for _ in range(4)] == ["From OpenAI."] * 4
        assert service.worker.output.count("provider is down: its calls are paused") == 1

        listener = socket.create_server((LOOPBACK, port))
        async with ScriptedOpenAI([Reply(["From the office."])] * 2, listener) as office:
            assert await answer_of(service) == "From OpenAI."
            assert not office.requests
            async with connect_redis(service.everloop.redis_url, NO_CIPHER) as redis:
                await let_pass(redis, "office", 60)
            assert [await answer_of(service) for _ in range(2)] == ["From the office."] * 2

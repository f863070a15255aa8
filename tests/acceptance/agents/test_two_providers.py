"""A provider that goes away, and comes back, while an agent has a model of another one."""

import socket
from pathlib import Path

from everloop.deploy.local.servers import LOOPBACK
from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from tests.stores.examples import let_pass
from tests.support.a2a_client import connected, request, response_of, send
from tests.support.rigs.deployment import Service, running_service
from tests.support.servers.processes import free_port
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI

MODELS = """
[providers.office]
base_url = "http://{host}:{port}/v1"
"""


async def answer_of(service: Service) -> str:
    async with connected(service.gateway.url, streaming=False) as client:
        return response_of(await send(client, request("Hi.")))


async def test_another_provider_answers_until_the_first_is_back(tmp_path: Path) -> None:
    """Tasks go on after two tries, and without any once the provider is known to be down."""
    port, file = free_port(), tmp_path / "models.toml"
    file.write_text(MODELS.format(host=LOOPBACK, port=port))
    agents = "tests.support.agents.two_providers:agent"
    async with running_service(tmp_path, agents, EVERLOOP_MODELS_FILE=str(file)) as service:
        service.script(lambda _: Reply(["From OpenAI."]))
        assert [await answer_of(service) for _ in range(4)] == ["From OpenAI."] * 4
        assert service.worker.output.count("provider is down: it is not asked for a while") == 1

        listener = socket.create_server((LOOPBACK, port))
        async with ScriptedOpenAI([Reply(["From the office."])] * 2, listener) as office:
            assert await answer_of(service) == "From OpenAI."
            assert not office.requests
            async with connect_redis(service.everloop.redis_url, NO_CIPHER) as redis:
                await let_pass(redis, "office", 60)
            assert [await answer_of(service) for _ in range(2)] == ["From the office."] * 2

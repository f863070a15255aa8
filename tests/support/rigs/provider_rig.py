"""A complete Everloop whose agents ask several providers of models."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from everloop.local.servers import LOOPBACK
from tests.support.rigs.deployment import Deployment, Gateway, running_deployment
from tests.support.servers.scripted_openai import ScriptedOpenAI
from tests.support.servers.zoo.provider import Provider

NOWHERE = f"http://{LOOPBACK}:9/v1"
"""The address of the provider that no agent here asks."""

RESPONSES = "reasoner"
"""A provider that does not ship, and speaks the Responses API."""


@dataclass
class Zoo:
    """A deployment, and its servers by the names of their providers."""

    servers: Mapping[str, ScriptedOpenAI]
    everloop: Deployment
    gateway: Gateway

    def play(self, **providers: Provider) -> None:
        """Make servers play these providers from now on; the others refuse all requests."""
        for name, server in self.servers.items():
            server.script = providers.get(name, ())
            server.requests.clear()

    def at(self, agent_id: str) -> str:
        """Return the address of an agent."""
        return f"{self.gateway.url}/agents/{agent_id}"


@asynccontextmanager
async def running_zoo(directory: Path, agents: str, *names: str, **variables: str) -> AsyncGenerator[Zoo]:
    """Start a deployment of agents that ask shipped providers of these names, each at a test server."""
    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(ScriptedOpenAI()) for name in names}
        addresses = {name: {"base_url": server.base_url} for name, server in servers.items()}
        addresses.get(RESPONSES, {}).update(kind="responses")
        addresses["parrot"] = {"base_url": NOWHERE, "kind": "tests.support.agents.providers:make_parrot"}
        everloop, gateway = await stack.enter_async_context(
            running_providers(directory, agents, addresses, **variables)
        )
        yield Zoo(servers, everloop, gateway)


@asynccontextmanager
async def running_providers(
    directory: Path, agents: str, providers: Mapping[str, Mapping[str, str]], **variables: str
) -> AsyncGenerator[tuple[Deployment, Gateway]]:
    """Start a deployment whose models.toml has these fields of providers."""
    lines = [
        line
        for name, fields in providers.items()
        for line in (f"[providers.{name}]", *(f'{field} = "{value}"' for field, value in fields.items()))
    ]
    file = directory / "models.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    variables = {"EVERLOOP_MODELS_FILE": str(file), **variables}
    async with running_deployment(directory, NOWHERE, agents=agents, **variables) as everloop:
        await everloop.add_worker()
        yield everloop, await everloop.add_gateway()

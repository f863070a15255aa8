"""The official A2A client, unmodified, with helpers that most tests need."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, get_args
from uuid import uuid4

import grpc
import httpx
from a2a.client import Client, ClientConfig
from a2a.client.card_resolver import parse_agent_card
from a2a.client.client import ClientCallContext
from a2a.client.client_factory import ClientFactory
from a2a.client.interceptors import AfterArgs, BeforeArgs, ClientCallInterceptor
from a2a.types.a2a_pb2 import (
    AgentCard,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
)

from tests.support.seeded_secrets import seed_text

Binding = Literal["JSONRPC", "HTTP+JSON", "GRPC"]
Version = Literal["1.0", "0.3"]

BINDINGS: tuple[Binding, ...] = get_args(Binding)


@asynccontextmanager
async def connected(
    url: str,
    *,
    binding: Binding = "JSONRPC",
    version: Version = "1.0",
    streaming: bool = True,
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[Client]:
    """Yield a client of the agent whose card is under `url`; each call has `headers` (or metadata).

    It uses the card's interfaces; a client of 0.3 reads the fields of 0.3 alone.
    """
    async with httpx.AsyncClient(timeout=60, headers=headers) as http:
        card = await read_card(http, url, version)
        offered = [one for one in card.supported_interfaces if one.protocol_binding == binding]
        assert offered, f"the card of {url} offers no {binding} for A2A {version}"
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(offered)
        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=[binding],
        )
        interceptors: list[ClientCallInterceptor] = [_Sending(headers)] if headers else []
        async with ClientFactory(config).create(card, interceptors) as client:
            yield client


async def read_card(http: httpx.AsyncClient, url: str, version: Version = "1.0") -> AgentCard:
    """Return the card as a client of that version reads it, with the interfaces of that version alone."""
    response = await http.get(f"{url.rstrip('/')}/.well-known/agent-card.json")
    fields: dict[str, Any] = response.raise_for_status().json()
    if version == "0.3":
        fields.pop("supportedInterfaces", None)
    card = parse_agent_card(fields)
    spoken = [one for one in card.supported_interfaces if one.protocol_version.startswith(version)]
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(spoken)
    return card


class _Sending(ClientCallInterceptor):
    """Sends the same headers, or metadata, with each call."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    async def before(self, args: BeforeArgs) -> None:
        context = args.context or ClientCallContext()
        parameters = {**self._headers, **(context.service_parameters or {})}
        args.context = context.model_copy(update={"service_parameters": parameters})

    async def after(self, args: AfterArgs) -> None:
        pass


def request(
    text: str,
    *,
    message_id: str = "",
    task_id: str = "",
    context_id: str = "",
    return_immediately: bool = False,
) -> SendMessageRequest:
    """Return a request with one text part; each message has an id of its own by default."""
    return SendMessageRequest(
        message=Message(
            message_id=message_id or str(uuid4()),
            role=Role.ROLE_USER,
            task_id=task_id,
            context_id=context_id,
            parts=[Part(text=seed_text(text))],
        ),
        configuration=SendMessageConfiguration(return_immediately=return_immediately),
    )


async def send(client: Client, message: SendMessageRequest) -> Task:
    """Send without streaming and return the task."""
    async for response in client.send_message(message):
        return response.task
    raise AssertionError("the gateway answered nothing")


class Answer:
    """The fold of a streaming client: the text of `response`, the states, the task."""

    def __init__(self) -> None:
        self.responses: list[StreamResponse] = []
        self.text = ""
        self.finals = 0
        self.states: list[int] = []
        self.task_id = ""

    def add(self, response: StreamResponse) -> None:
        """Fold in one event (A2A 1.0 §4.2.2): `append` adds to the artifact, otherwise it is replaced."""
        self.responses.append(response)
        if response.HasField("task"):
            self.task_id = response.task.id
            self.states.append(response.task.status.state)
            self.text = response_of(response.task)
        elif response.HasField("status_update"):
            self.states.append(response.status_update.status.state)
        elif response.HasField("artifact_update"):
            update = response.artifact_update
            text = "".join(part.text for part in update.artifact.parts)
            self.text = self.text + text if update.append else text
            self.finals += update.last_chunk

    async def read(self, responses: AsyncIterator[StreamResponse]) -> "Answer":
        """Fold in all events of a stream."""
        async for response in responses:
            self.add(response)
        return self


def response_of(task: Task) -> str:
    """Return the text of the artifact `response`, empty if there is none."""
    artifacts = [artifact for artifact in task.artifacts if artifact.artifact_id == "response"]
    return "".join(part.text for artifact in artifacts for part in artifact.parts)

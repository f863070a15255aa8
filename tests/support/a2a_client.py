"""The official A2A client, unmodified, with the few lines that every test would repeat."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import httpx
from a2a.client import Client, ClientConfig
from a2a.client.client_factory import create_client
from a2a.types.a2a_pb2 import (
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
)


@asynccontextmanager
async def connected(url: str, *, streaming: bool = True) -> AsyncGenerator[Client]:
    """Yield a client of the agent whose card the gateway serves."""
    async with httpx.AsyncClient(timeout=60) as http:
        config = ClientConfig(streaming=streaming, httpx_client=http)
        async with await create_client(url, client_config=config) as client:
            yield client


def request(
    text: str, *, message_id: str = "", task_id: str = "", return_immediately: bool = False
) -> SendMessageRequest:
    """Return a request with one text part; each message has an id of its own unless one is given."""
    return SendMessageRequest(
        message=Message(
            message_id=message_id or str(uuid4()),
            role=Role.ROLE_USER,
            task_id=task_id,
            parts=[Part(text=text)],
        ),
        configuration=SendMessageConfiguration(return_immediately=return_immediately),
    )


async def send(client: Client, message: SendMessageRequest) -> Task:
    """Send without streaming and return the task."""
    async for response in client.send_message(message):
        return response.task
    raise AssertionError("the gateway answered nothing")


class Answer:
    """What a streaming client makes of its events: the text of `response`, the states, the task."""

    def __init__(self) -> None:
        self.responses: list[StreamResponse] = []
        self.text = ""
        self.finals = 0
        self.states: list[int] = []
        self.task_id = ""

    def add(self, response: StreamResponse) -> None:
        """Fold one event in (A2A 1.0 §4.2.2): `append` adds to the artifact, otherwise it is replaced."""
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
        """Fold all events of a stream in."""
        async for response in responses:
            self.add(response)
        return self


def response_of(task: Task) -> str:
    """Return the text of the artifact `response`, empty if there is none."""
    artifacts = [artifact for artifact in task.artifacts if artifact.artifact_id == "response"]
    return "".join(part.text for artifact in artifacts for part in artifact.parts)

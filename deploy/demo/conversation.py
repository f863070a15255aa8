"""Talking to the gateway as any A2A client does: the official client, streaming, over HTTP."""

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types.a2a_pb2 import ROLE_USER, Message, Part, SendMessageRequest, StreamResponse, TaskState
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict
from pydantic import ValidationError

from everloop.workflows.contract.events import EVENT_ADAPTER, TaskEvent


class DemoError(Exception):
    """The demo did not show what it should; the message is for the person who watches."""


EVENTS_EXTENSION = "https://everloop.dev/extensions/events/v1"
SILENCE = 60.0
"""Seconds without any event after which the demo gives up; a killed worker is noticed after 10."""


@dataclass(frozen=True)
class TaskAccepted:
    """The gateway answered with a task."""

    task_id: str


@dataclass(frozen=True)
class StatusArrived:
    """A new status; `state` without its prefix, in lower case."""

    state: str
    message: str


@dataclass(frozen=True)
class TextArrived:
    """A piece of the answer; with `append` false it replaces what came before."""

    text: str
    append: bool


Arrival = TaskAccepted | StatusArrived | TextArrived | TaskEvent


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Client]:
    """Yield a client that was set up from the agent card at this address."""
    timeout = httpx.Timeout(10, read=SILENCE)
    # Without the proxies of the environment: the gateway is on this machine.
    async with httpx.AsyncClient(timeout=timeout, trust_env=False) as http:
        factory = ClientFactory(ClientConfig(streaming=True, httpx_client=http))
        async with await factory.create_from_url(url) as client:
            yield client


async def converse(client: Client, text: str) -> AsyncGenerator[Arrival]:
    """Send a message that starts a task, and yield what arrives until the task has ended.

    Raises:
        DemoError: the gateway refused, or the stream broke.
    """
    message = Message(message_id=str(uuid.uuid4()), role=ROLE_USER, parts=[Part(text=text)])
    extensions = ServiceParametersFactory.create([with_a2a_extensions([EVENTS_EXTENSION])])
    context = ClientCallContext(service_parameters=extensions)
    try:
        async for response in client.send_message(SendMessageRequest(message=message), context=context):
            if arrival := _read(response):
                yield arrival
    except (A2AClientError, A2AError, httpx.HTTPError) as error:
        raise DemoError(
            f"the gateway did not answer as it should: {type(error).__name__}: {error}"
        ) from error


def _read(response: StreamResponse) -> Arrival | None:
    match response.WhichOneof("payload"):
        case "task":
            return TaskAccepted(response.task.id)
        case "artifact_update":
            update = response.artifact_update
            return TextArrived("".join(part.text for part in update.artifact.parts), update.append)
        case "status_update":
            return _read_status(response)
        case _:
            return None


def _read_status(response: StreamResponse) -> Arrival | None:
    update = response.status_update
    metadata = MessageToDict(update.metadata)
    if EVENTS_EXTENSION in metadata:
        try:
            return EVENT_ADAPTER.validate_python(metadata[EVENTS_EXTENSION])
        except ValidationError:  # a kind of event that this demo does not know
            return None
    state = TaskState.Name(update.status.state).removeprefix("TASK_STATE_").lower()
    return StatusArrived(state, "".join(part.text for part in update.status.message.parts))

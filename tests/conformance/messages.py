"""Messages to the conformance agent, which acts by the prefix of their id."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

COMPLETES = "tck-complete-task"
ASKS = "tck-input-required"
WRITES_TEXT = "tck-artifact-text"
WRITES_FILE = "tck-artifact-file"
WRITES_FILE_URL = "tck-artifact-file-url"
WRITES_DATA = "tck-artifact-data"
REJECTS = "tck-reject-task"
ANSWERS_DIRECTLY = "tck-message-response"
STREAMS = "tck-stream-001"
LASTS = "test-resubscribe-message-id"

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
"""All bindings of the gateway."""

VERSION = {"A2A-Version": "1.0"}

TERMINAL = frozenset(
    {pb.TASK_STATE_COMPLETED, pb.TASK_STATE_FAILED, pb.TASK_STATE_CANCELED, pb.TASK_STATE_REJECTED}
)
INTERRUPTED = frozenset({pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_AUTH_REQUIRED})


def fresh(word: str) -> str:
    """Return a unique id that begins with a word."""
    return f"{word}-{uuid4()}"


def content(behaviour: str, **fields: object) -> dict[str, Any]:
    """Return a message in JSON that makes the agent behave like that."""
    return {"messageId": fresh(behaviour), "role": "ROLE_USER", "parts": [{"text": "Please."}], **fields}


def message(
    behaviour: str, *, configuration: dict[str, Any] | None = None, **fields: object
) -> pb.SendMessageRequest:
    """Return a request; `fields` are those of the message, by their JSON names."""
    request = {"message": content(behaviour, **fields), "configuration": configuration or {}}
    return ParseDict(request, pb.SendMessageRequest())


async def all_of(events: AsyncGenerator[pb.StreamResponse]) -> list[pb.StreamResponse]:
    """Read a stream to its end."""
    async with aclosing(events):
        return [event async for event in events]


async def until(
    events: AsyncIterator[pb.StreamResponse], is_it: Callable[[pb.StreamResponse], bool]
) -> list[pb.StreamResponse]:
    """Read a stream up to an event and leave it open; fail if it ends without one."""
    seen: list[pb.StreamResponse] = []
    async for event in events:
        seen.append(event)
        if is_it(event):
            return seen
    raise AssertionError(f"the stream ended without that event: {seen}")


def state_of(event: pb.StreamResponse) -> int | None:
    """Return the state in an event, or None."""
    match event.WhichOneof("payload"):
        case "task":
            return event.task.status.state
        case "status_update":
            return event.status_update.status.state
        case _:
            return None


def ids_of(event: pb.StreamResponse) -> tuple[str, str]:
    """Return the ids of the task and the context of an event."""
    match event.WhichOneof("payload"):
        case "task":
            return event.task.id, event.task.context_id
        case "status_update":
            return event.status_update.task_id, event.status_update.context_id
        case "artifact_update":
            return event.artifact_update.task_id, event.artifact_update.context_id
        case _:
            return event.message.task_id, event.message.context_id

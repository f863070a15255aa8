"""Large messages: the parts that their task gets, and processes in one thread."""

import asyncio
import json
from typing import Any

import pytest
from a2a.types.a2a_pb2 import GetTaskRequest, Part, SendMessageRequest
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value
from pydantic import JsonValue
from temporalio.client import Client

from everloop.gateway.context import ANONYMOUS
from everloop.gateway.requests.incoming_parts import (
    MAX_FILES,
    MAX_INLINE_BYTES,
    read_parts,
    size_of,
    with_files,
)
from everloop.runtime.temporal.blob_payloads import data_converter
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.messages import FilePart, StoredPartRef, TaskReference, UserMessage
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.parts import is_text
from everloop.workflows.task_limits import MAX_UNREAD_BYTES
from tests.gateway.harness import PromptModel, RunningGateway, StoodIn, running_gateway, unique, working
from tests.support.a2a_client import connected, request, send
from tests.support.stores import redis_of

ESCAPED = '"\n' * 900_000
"""Of 1.8 MB, of which JSON makes 3.6."""


LARGE = "ä" * 600_000


def data_of(value: JsonValue, media_type: str = "") -> Part:
    read: Any = value
    return Part(data=ParseDict(read, Value()), media_type=media_type)


def dumped(value: JsonValue) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def message_of(*parts: Part, message_id: str = "", task_id: str = "") -> SendMessageRequest:
    sent = request(unique("large"), message_id=message_id, task_id=task_id, return_immediately=True)
    sent.message.parts.extend(parts)
    return sent


def inline_bytes(message: UserMessage) -> int:
    return len(message.model_dump_json().encode())


async def _content(gateway: RunningGateway, context_id: str, part: FilePart) -> bytes:
    assert part.stored
    context = context_key(ANONYMOUS, context_id)
    return b"".join([each async for each in gateway.artifacts.read_part(context, part.stored.artifact_id)])


async def test_a_task_gets_large_parts_as_files(
    stand_in: RunningGateway, client: Client, views: TaskViews
) -> None:
    """The largest first, until what is left is small; nothing is lost, and a repeated one is the same."""
    data = data_of({"texts": [*["x" * 2_000] * 1_000]})
    parts = (Part(text="Read."), Part(text=ESCAPED, filename="a.md"), data, Part(text="x" * 9_000))
    message = message_of(*parts, message_id=unique("m"))
    async with connected(stand_in.url, streaming=False) as a2a:
        task = await send(a2a, message)
        again = await send(a2a, message)
        shown = await a2a.get_task(GetTaskRequest(id=task.id))
    (taken,) = await StoodIn(client, views, task).messages()
    _, _, text, texts, small = taken.parts
    assert isinstance(text, FilePart)
    assert isinstance(texts, FilePart)
    assert (text.media_type, text.filename, text.size) == ("text/plain", "a.md", len(ESCAPED))
    assert texts.media_type == "application/json"
    assert not isinstance(small, FilePart)
    assert inline_bytes(taken) <= MAX_INLINE_BYTES
    assert await _content(stand_in, task.context_id, text) == ESCAPED.encode()
    assert (await _content(stand_in, task.context_id, texts)).startswith(b'{"texts":["xxx')
    assert again.id == task.id
    assert shown.history[0].parts[2].url
    await StoodIn(client, views, task).end()


MANY_VALUES: list[JsonValue] = [[]] * 60_000
"""Few bytes, and much work."""


@pytest.mark.parametrize(
    ("part", "media_type", "content"),
    [
        pytest.param(Part(text=ESCAPED), "text/plain", ESCAPED, id="text"),
        pytest.param(
            Part(text=LARGE, media_type="text/html; charset=iso-8859-1"), "text/html", LARGE, id="charset"
        ),
        pytest.param(
            Part(text=LARGE, media_type="application/x-tex"), "text/plain", LARGE, id="no_text_type"
        ),
        pytest.param(data_of(MANY_VALUES), "application/json", dumped(MANY_VALUES), id="values"),
        pytest.param(
            data_of({"b": LARGE, "a": 1}, media_type="application/ld+json"),
            "application/ld+json",
            dumped({"a": 1, "b": LARGE}),
            id="order_of_members",
        ),
    ],
)
def test_a_large_part_is_a_file_that_models_read_as_text(part: Part, media_type: str, content: str) -> None:
    """In UTF-8, whatever its type says of other bytes; data are JSON, the same for the same data."""
    read, _ = read_parts([part])
    message, (file,) = with_files(UserMessage(message_id="m", parts=read))
    assert message.parts == (
        FilePart(
            media_type=media_type,
            size=len(content.encode()),
            stored=StoredPartRef(artifact_id=file.artifact_id),
        ),
    )
    assert is_text(media_type)
    assert file.part.content == content.encode()


def test_what_a_message_refers_to_counts() -> None:
    """The task processes referenced results too."""
    message = UserMessage(message_id="m", parts=())
    reference = TaskReference(task_id="t", state="completed", text=LARGE)
    assert size_of(message.model_copy(update={"references": (reference,)})) > size_of(message) + len(LARGE)


async def test_what_is_not_large_stays_as_it_is(
    stand_in: RunningGateway, client: Client, views: TaskViews
) -> None:
    """The model reads all of a small message at once."""
    text = "x" * (MAX_INLINE_BYTES - 1_000)
    async with connected(stand_in.url, streaming=False) as a2a:
        task = await send(a2a, message_of(Part(text=text)))
    (taken,) = await StoodIn(client, views, task).messages()
    assert taken.parts[-1] == taken.parts[-1].model_copy(update={"kind": "text", "text": text})
    await StoodIn(client, views, task).end()


async def test_what_cannot_be_a_file_is_refused(stand_in: RunningGateway) -> None:
    """Metadata, and many small texts: the error says what to do."""
    named = message_of()
    named.message.metadata.update({"x": "y" * MAX_INLINE_BYTES})
    many = message_of(*(Part(text="x" * 9_000) for _ in range(300)))
    async with connected(stand_in.url, streaming=False) as a2a:
        with pytest.raises(InvalidParamsError, match="metadata"):
            await send(a2a, named)
        with pytest.raises(InvalidParamsError, match=f"more than {MAX_FILES} files"):
            await send(a2a, many)


async def test_a_task_that_reads_nothing_takes_no_more_than_it_can_hold(
    temporal_address: str, views: TaskViews
) -> None:
    """Of many messages at once only those that fit are taken.

    The others may be sent again after the model has read these.
    """
    prompt, queue, held, model = unique("busy"), unique("busy"), asyncio.Event(), PromptModel(views)
    model.scripts[prompt] = [held, "done"]
    client = await Client.connect(
        temporal_address, data_converter=data_converter(RedisBlobs(redis_of(views)))
    )
    async with (
        working(client, views, queue, model),
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = await send(a2a, request(prompt, return_immediately=True))
        large = [message_of(Part(text="x" * 900_000), task_id=task.id) for _ in range(12)]
        answers = await asyncio.gather(*(gateway.call("SendMessage", MessageToDict(each)) for each in large))
        more = [MessageToDict(message_of(Part(text="x" * 900_000), task_id=task.id)) for _ in range(3)]
        refused = [
            await gateway.call("SendStreamingMessage", more[0]),
            await gateway.http.post("/message:send", json=more[1]),
            await gateway.http.post("/message:stream", json=more[2]),
        ]
        held.set()
        await client.get_workflow_handle(task.id).result()
    refused += [each for each in answers if each.status_code != 200]
    assert len(answers) + 3 - len(refused) == MAX_UNREAD_BYTES // 900_000
    for each in refused:
        assert (each.status_code, "Retry-After" in each.headers) == (503, True)
        assert "at most 4 MB of unread" in each.json()["error"]["message"]

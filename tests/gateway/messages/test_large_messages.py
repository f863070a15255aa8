"""Messages larger than what Temporal keeps in a history."""

from pathlib import Path

from a2a.types.a2a_pb2 import GetTaskRequest
from temporalio.client import Client

from everloop.runtime.temporal.payloads import data_converter
from everloop.stores.blobs.local import LocalBlobs
from everloop.stores.views.interface import TaskViews
from tests.gateway.harness import running_gateway, scripted_worker, unique
from tests.support.a2a_client import Answer, connected, request, response_of, send

SIZE = 5_000_000


async def test_a_message_of_megabytes_passes_through(
    temporal_address: str, views: TaskViews, tmp_path: Path
) -> None:
    """Started, streamed, read and repeated: a message of 5 MB is like any other, and so is its answer."""
    client = await Client.connect(temporal_address, data_converter=data_converter(LocalBlobs(tmp_path)))
    queue, prompt = unique("large"), unique("large") + "é" * (SIZE // 2)
    message = request(prompt)
    async with (
        scripted_worker(client, views, queue) as model,
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url) as streaming,
        connected(gateway.url, streaming=False) as blocking,
    ):
        streamed = await Answer().read(streaming.send_message(message))
        got = await blocking.get_task(GetTaskRequest(id=streamed.task_id))
        repeated = await send(blocking, message)
    assert len(model.calls) == 1
    assert streamed.text == response_of(got) == response_of(repeated) == prompt
    assert got.history[0].parts[0].text == prompt
    assert repeated.id == streamed.task_id

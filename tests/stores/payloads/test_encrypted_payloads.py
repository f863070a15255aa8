"""Encrypted workflows on a real Temporal, and the effect of a missing key."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, Worker

from everloop.runtime.blobs import Blobs
from everloop.runtime.encryption.cipher import NO_CIPHER, Cipher
from everloop.runtime.temporal.blob_payloads import data_converter, payload_folder
from everloop.stores.blobs.local_blobs import LocalBlobs
from tests.stores.payloads.payload_workflow import Echo, Parcels, fail_once, make, repeat
from tests.stores.payloads.talkative_workflow import Listener, Talker, speak
from tests.support.encryption import keyring
from tests.support.secret_search import contains

LARGE = 400_000


async def connect(address: str, cipher: Cipher, blobs: Blobs | None = None) -> Client:
    return await Client.connect(address, data_converter=data_converter(blobs, cipher=cipher))


def talking(client: Client, queue: str) -> Worker:
    return Worker(client, task_queue=queue, build_id="test", workflows=[Talker, Listener], activities=[speak])


def parcelling(client: Client, queue: str) -> Worker:
    return Worker(client, task_queue=queue, build_id="test", workflows=[Parcels, Echo], activities=[repeat])


async def recorded(client: Client, workflow_id: str) -> bytes:
    """Return all records that Temporal has of a workflow and its child."""
    told: list[bytes] = []
    for each in map(client.get_workflow_handle, (workflow_id, f"{workflow_id}/child")):
        history, described = await each.fetch_history(), await each.describe()
        told += [event.SerializeToString() for event in history.events]
        told.append(described.raw_description.SerializeToString())
    return b"\n".join(told)


@pytest.mark.parametrize("cipher", [keyring("k1"), NO_CIPHER], ids=["encrypted", "plain"])
async def test_temporal_sees_no_word(temporal_address: str, cipher: Cipher) -> None:
    """Arguments, results, heartbeats, failures, summaries, memos and messages are encrypted and read back."""
    client, queue, word = await connect(temporal_address, cipher), str(uuid4()), f"word-{uuid4()}"
    async with talking(client, queue):
        handle = await client.start_workflow(
            Talker.run,
            word,
            id=str(uuid4()),
            task_queue=queue,
            memo={"memo": word},
            static_summary=f"static: {word}",
            static_details=word,
        )
        assert await handle.execute_update(Talker.said, word) == f"child: {word}"
        assert await handle.query(Talker.word, "!") == f"child: {word}!"
        metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        await handle.signal(Talker.end, word)
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
    described = await handle.describe()

    assert metadata.current_details == f"details: {word}"
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.message == f"end: {word}"
    assert caught.value.cause.details == (word,)
    assert caught.value.cause.failure
    stack = caught.value.cause.failure.stack_trace.splitlines()
    assert re.fullmatch(r"(.*/)?talkative_workflow\.py:\d+ run", stack[-1])
    assert not any(Path(line).is_absolute() for line in stack)
    assert await described.static_summary() == f"static: {word}"
    assert (await described.memo())["memo"] == word
    assert contains(await recorded(client, handle.id), word) == (not cipher.is_on)
    replayer = Replayer(workflows=[Talker], data_converter=data_converter(None, cipher=cipher))
    await replayer.replay_workflow(await handle.fetch_history())


async def test_a_missing_key_ends_no_workflow(temporal_address: str) -> None:
    """A worker without the key fails the workflow task, which is retried, and names the key."""
    queue, word = str(uuid4()), f"word-{uuid4()}"
    client = await connect(temporal_address, keyring("k2", "k1"))
    handle = await client.start_workflow(Talker.run, word, id=str(uuid4()), task_queue=queue)
    async with talking(await connect(temporal_address, keyring("k1")), queue):
        failure = await first_failure(handle)
        described = await handle.describe()
        while described.raw_description.pending_workflow_task.attempt < 2:
            described = await handle.describe()

    assert described.status is WorkflowExecutionStatus.RUNNING
    assert not failure.message.startswith("this was")  # it is encrypted, too, by the present key
    assert "'k2', which is not known here" in str(await client.data_converter.decode_failure(failure))


async def test_switching_on_loses_no_message(temporal_address: str) -> None:
    """A worker without keys waits with encrypted signals and updates; with keys, it handles them."""
    queue = str(uuid4())
    plain = await connect(temporal_address, NO_CIPHER)
    sealed = await connect(temporal_address, keyring("k1"))
    handle = await plain.start_workflow(
        Parcels.run, args=("a", 0), id=str(uuid4()), task_queue=queue, task_timeout=timedelta(seconds=1)
    )
    sender = sealed.get_workflow_handle(handle.id)
    async with parcelling(plain, queue):
        await sender.signal(Parcels.replace, "b")
        update = asyncio.create_task(sender.execute_update(Parcels.swap, "c"))
        failing = asyncio.create_task(first_failure(handle))
        await asyncio.wait({update, failing}, return_when=asyncio.FIRST_COMPLETED)
    assert not update.done()
    assert "'k1', which is not known here" in failing.result().message
    async with parcelling(sealed, queue):
        assert await update == "b"


async def first_failure(handle: WorkflowHandle[Any, str]) -> Failure:
    """Wait for a workflow task that fails."""
    while True:
        for event in (await handle.fetch_history()).events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                return event.workflow_task_failed_event_attributes.failure
        await asyncio.sleep(0.02)


async def test_large_payloads_are_encrypted_once(temporal_address: str, tmp_path: Path) -> None:
    """Equal large payloads of a task are one encrypted blob, also after replays."""
    queue, blobs = str(uuid4()), LocalBlobs(tmp_path)
    client = await connect(temporal_address, keyring("k1"), blobs)
    handle = await client.start_workflow(
        Parcels.run, args=("secret " * LARGE, 0), id=str(uuid4()), task_queue=queue
    )
    async with Worker(
        client,
        task_queue=queue,
        build_id="test",
        workflows=[Parcels, Echo],
        activities=[repeat, make, fail_once],
        max_cached_workflows=0,
    ):
        for errand in ("repeat", "repeat", "end"):
            await handle.signal(Parcels.do, errand)
        assert await handle.result() == "secret " * LARGE
    blobs.close()
    (blob,) = (tmp_path / payload_folder(handle.id)).iterdir()

    assert not contains(blob.read_bytes(), "secret secret")

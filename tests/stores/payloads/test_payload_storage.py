"""Large payloads on a real Temporal: each path, small histories, and lost payloads."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import (
    Client,
    WorkflowContinuedAsNewError,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
)
from temporalio.converter import ActivitySerializationContext, DataConverter, WorkflowSerializationContext
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TerminatedError
from temporalio.service import RPCError
from temporalio.worker import Worker

from everloop.runtime.blobs import BlobMissingError, Blobs, BlobsUnavailableError
from everloop.runtime.temporal.blob_payloads import (
    MOST_BOUND,
    MissingPayloads,
    data_converter,
    payload_folder,
)
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.workflows.contract.failures import BLOB_MISSING
from tests.stores.payloads.payload_workflow import Echo, Parcels, fail_once, make, repeat
from tests.support.stores import database

pytestmark = pytest.mark.usefixtures("redis")

LARGE = 3 * 1024 * 1024
SMALL_HISTORY = 50_000

Handle = WorkflowHandle[Parcels, str]


class FaultyBlobs(RedisBlobs):
    """Blobs that lose content with the word `loses` or a chosen key, and refuse a number of reads."""

    loses = b""
    refusals = 0

    def __init__(self) -> None:
        super().__init__(database())
        self._held: dict[str, bytes] = {}

    def lose_all(self) -> None:
        self._held.clear()

    def lose(self, word: bytes) -> None:
        for key in self.keys_of(word):
            del self._held[key]

    def keys_of(self, word: bytes) -> list[str]:
        return [key for key, content in self._held.items() if word in content]

    async def put(self, key: str, content: bytes) -> None:
        if not self.loses or self.loses not in content:
            self._held[key] = content
            await super().put(key, content)

    async def get(self, key: str) -> bytes:
        if self.refusals:
            self.refusals -= 1
            raise BlobsUnavailableError(self.location, "it is away")
        if key not in self._held:
            raise BlobMissingError(key)
        return await super().get(key)


@dataclass(frozen=True)
class Harness:
    """A client, and a task queue with a way to run workers on it."""

    client: Client
    worker_client: Client
    queue: str
    max_cached: int

    async def start(self, letter: str = "a", *, runs: int = 0) -> Handle:
        text = letter * LARGE
        return await self.client.start_workflow(
            Parcels.run, args=(text, runs), id=str(uuid4()), task_queue=self.queue
        )

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[None]:
        async with Worker(
            self.worker_client,
            task_queue=self.queue,
            build_id="test",
            workflows=[Parcels, Echo],
            activities=[repeat, make, fail_once],
            max_cached_workflows=self.max_cached,
        ):
            yield


MakeHarness = Callable[[Blobs], Awaitable[Harness]]


@pytest.fixture(params=[1000, 0], ids=["cached", "always_replayed"])
def make_harness(request: pytest.FixtureRequest, temporal_address: str) -> MakeHarness:
    async def make_it(blobs: Blobs) -> Harness:
        lost = MissingPayloads()
        lost.client = await Client.connect(temporal_address, data_converter=data_converter(blobs, lost))
        client = await Client.connect(temporal_address, data_converter=data_converter(blobs))
        return Harness(client, lost.client, f"payloads-{uuid4()}", int(request.param))

    return make_it


def size(history: WorkflowHistory) -> int:
    """Return the bytes of all events."""
    return sum(event.ByteSize() for event in history.events)


@pytest.mark.parametrize("errand", ["repeat", "make", "heartbeat", "child"])
async def test_activities_and_children_take_and_return_large_payloads(
    make_harness: MakeHarness, tmp_path: Path, errand: str
) -> None:
    """3 MB go into an activity or child, through a heartbeat and back; the history has references only."""
    harness = await make_harness(LocalBlobs(tmp_path))
    handle = await harness.start()
    async with harness.worker():
        await handle.signal(Parcels.do, errand)
        await handle.signal(Parcels.do, "end")
        result = await handle.result()
    assert len(result) == LARGE
    assert size(await handle.fetch_history()) < SMALL_HISTORY
    assert {path.name for path in (tmp_path / "payloads").iterdir()} == {handle.id}  # also the child's


async def test_messages_of_a_workflow_carry_large_payloads(make_harness: MakeHarness) -> None:
    """3 MB go through updates, queries and a signal, and into the next run."""
    harness = await make_harness(FaultyBlobs())
    handle = await harness.start("a", runs=1)
    async with harness.worker():
        with pytest.raises(WorkflowContinuedAsNewError):
            await handle.result(follow_runs=False)
        assert await handle.execute_update(Parcels.swap, "b" * LARGE) == "a" * LARGE
        assert await handle.query(Parcels.text) == "b" * LARGE
        await handle.signal(Parcels.replace, "c" * LARGE)
        assert await handle.query(Parcels.has, "c" * LARGE)
        await handle.signal(Parcels.do, "end")
        assert await handle.result() == "c" * LARGE
    first = harness.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
    for run in (first, handle):
        assert size(await run.fetch_history()) < SMALL_HISTORY


async def test_activity_whose_input_is_lost_fails_at_once(make_harness: MakeHarness) -> None:
    """An activity whose input is lost fails without a retry, and names the blob."""
    blobs = FaultyBlobs()
    blobs.loses = b"A" * 100
    harness = await make_harness(blobs)
    handle = await harness.start("a")
    async with harness.worker():
        await handle.signal(Parcels.do, "shout")
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
    activity = raised.value.cause
    assert isinstance(activity, ActivityError)
    assert activity.retry_state is RetryState.NON_RETRYABLE_FAILURE
    assert_says_what_is_missing(activity.cause, handle)


async def send_nothing(handle: Handle) -> None:
    """Send nothing: the start input is already lost."""


async def send_signal(handle: Handle) -> None:
    await handle.signal(Parcels.replace, "x" * LARGE)


async def send_update(handle: Handle) -> None:
    with pytest.raises(RPCError, match="closing workflow"):
        await handle.execute_update(Parcels.swap, "x" * LARGE)


async def send_errand(handle: Handle) -> None:
    await handle.signal(Parcels.do, "make")


@pytest.mark.parametrize(
    ("letter", "send"),
    [("x", send_nothing), ("a", send_signal), ("a", send_update), ("a", send_errand)],
    ids=["start input", "signal", "update", "activity result"],
)
async def test_workflow_whose_new_payload_is_lost_fails(
    make_harness: MakeHarness, letter: str, send: Callable[[Handle], Awaitable[None]]
) -> None:
    """A workflow whose new payload is lost fails with the blob's name; its workflow task is not retried."""
    blobs = FaultyBlobs()
    blobs.loses = b"x" * 100
    harness = await make_harness(blobs)
    handle = await harness.start(letter)
    async with harness.worker():
        if letter == "a":
            await handle.query(Parcels.text)
        await send(handle)
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
    assert_says_what_is_missing(raised.value.cause, handle)


async def test_workflow_whose_old_payload_is_lost_is_terminated(make_harness: MakeHarness) -> None:
    """A workflow whose history has a lost payload is terminated on replay, with the key in the reason."""
    blobs = FaultyBlobs()
    harness = await make_harness(blobs)
    handle = await harness.start()
    async with harness.worker():
        await handle.execute_update(Parcels.swap, "b" * LARGE)
    blobs.lose_all()
    await handle.signal(Parcels.do, "end")
    async with harness.worker():
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
    assert isinstance(raised.value.cause, TerminatedError)
    assert payload_folder(handle.id) in str(raised.value.cause)


async def test_only_a_workflow_that_reads_the_lost_payload_is_terminated(
    temporal_address: str, make_harness: MakeHarness
) -> None:
    """A workflow that does not read the lost payload, or sent it itself, is retried, not terminated."""
    blobs = FaultyBlobs()
    harness = await make_harness(blobs)
    handle = await harness.start("a")
    lost = MissingPayloads()
    lost.client = await Client.connect(temporal_address)
    async with harness.worker():
        await handle.signal(Parcels.do, "cut")
        while not await handle.query(Parcels.done):
            pass
    blobs.refusals = 1000
    await handle.signal(Parcels.do, "cut")
    async with harness.worker():
        while (await handle.describe()).raw_description.pending_workflow_task.attempt < 2:
            pass
    (read,), (sent,) = blobs.keys_of(b"a" * 100), blobs.keys_of(b"A" * 100)
    for key in (f"{payload_folder(handle.id)}/of-an-older-run", sent):
        await lost.report(handle.id, key, "lost")
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
    await lost.report(handle.id, read, "lost")
    assert (await handle.describe()).status is WorkflowExecutionStatus.TERMINATED


async def test_store_that_comes_back_is_waited_for(make_harness: MakeHarness) -> None:
    """A refused read costs an attempt of a workflow task or an activity, never the task."""
    blobs = FaultyBlobs()
    harness = await make_harness(blobs)
    handle = await harness.start()
    blobs.refusals = 1
    async with harness.worker():
        await handle.signal(Parcels.do, "repeat")
        await handle.signal(Parcels.do, "end")
        assert await handle.result() == "a" * LARGE
    assert not blobs.refusals
    status = (await handle.describe()).status
    assert status is WorkflowExecutionStatus.COMPLETED


def assert_says_what_is_missing(failure: BaseException | None, handle: Handle) -> None:
    """Check that the failure has the contract's type, is not retried, and names the blob."""
    assert isinstance(failure, ApplicationError)
    assert failure.type == BLOB_MISSING
    assert failure.non_retryable
    assert payload_folder(handle.id) in failure.message
    assert FaultyBlobs().location not in failure.message


def test_a_converter_is_built_once_for_each_workflow() -> None:
    """A converter is built once for each workflow, as the SDK asks repeatedly, and old ones are evicted."""
    converter = data_converter(FaultyBlobs())

    def of(workflow_id: str) -> DataConverter:
        return converter.with_context(WorkflowSerializationContext("default", workflow_id))

    first = of("a")
    activity = ActivitySerializationContext("default", "1", "run_tool", "q", "a", "AgentTask", is_local=False)
    assert converter.with_context(activity) is first is of("a")
    assert of("b") is not first
    for number in range(MOST_BOUND):
        of(str(number))
    assert of("a") is not first

"""A narrator beside a workflow: it ends with it, and outlives its worker."""

import asyncio

from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Worker

from everloop.worker import WorkerSettings, build_workers
from everloop.workflows.contract.calls import NarrateInput
from everloop.workflows.contract.names import NARRATOR_QUEUE, task_queue_of
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from everloop.workflows.contract.ports import NarratorPort
from everloop.workflows.contract.tasks import TaskState
from everloop.workflows.scope import narration
from tests.gateway.harness import unique
from tests.support.fakes.ports import FakePorts, ScriptedModel
from tests.support.rigs.narrator_rig import NarratorRig, narrator_rig
from tests.support.servers.scripted_openai import Reply


@workflow.defn(sandboxed=False)
class ToldTask:
    """Starts a narrator as a task does, and ends when it is told to."""

    def __init__(self) -> None:
        self._is_over = False

    @workflow.run
    async def run(self, call: NarrateInput) -> None:
        queue = task_queue_of(NARRATOR_QUEUE, workflow.info().task_queue)
        workflow.start_activity_method(NarratorPort.narrate, call, **narration(queue))
        await workflow.wait_condition(lambda: self._is_over)

    @workflow.signal
    def end(self) -> None:
        """Close the workflow; its view says nothing of it."""
        self._is_over = True


class Watched(NarratorPort):
    """Tells the test when an attempt is over."""

    def __init__(self, rig: NarratorRig) -> None:
        self._port = rig.port
        self.ended = asyncio.Event()

    @activity.defn
    async def narrate(self, call: NarrateInput) -> None:
        try:
            await self._port.narrate(call)
        finally:
            self.ended.set()


def _narrating(client: Client, narrator: NarratorPort, settings: WorkerSettings) -> Worker:
    ports = FakePorts(ScriptedModel())
    ports.narrator = narrator
    (worker,) = build_workers(client, ports.wired(), settings, [NARRATOR_QUEUE])
    return worker


async def test_a_narrator_ends_with_its_workflow(temporal_address: str) -> None:
    """Also when the view never says that the task is over."""
    client = await Client.connect(temporal_address, data_converter=WIRE_DATA_CONVERTER)
    queue = unique("told")
    async with (
        narrator_rig([Reply(["Searching"])]) as rig,
        Worker(client, task_queue=queue, workflows=[ToldTask]),
    ):
        watched = Watched(rig)
        async with _narrating(client, watched, WorkerSettings(task_queue=queue)):
            handle = await client.start_workflow(
                ToldTask.run, rig.call, id=rig.task.task_id, task_queue=queue
            )
            await rig.call_tool("search")
            await rig.until_told(1)
            await handle.signal(ToldTask.end)
            await watched.ended.wait()


async def test_another_worker_goes_on_where_one_stopped(temporal_address: str) -> None:
    """It neither repeats what was told nor begins its count anew, and adds nothing to the history."""
    client = await Client.connect(temporal_address, data_converter=WIRE_DATA_CONVERTER)
    queue = unique("told")
    settings = WorkerSettings(task_queue=queue)
    script = [Reply([text]) for text in ("Searching", "searching", "Painting")]
    async with (
        narrator_rig(script) as rig,
        Worker(client, task_queue=queue, workflows=[ToldTask]),
    ):
        handle = await client.start_workflow(ToldTask.run, rig.call, id=rig.task.task_id, task_queue=queue)
        async with _narrating(client, rig.port, settings):
            await rig.call_tool("search")
            await rig.until_told(1)
        watched = Watched(rig)
        async with _narrating(client, watched, settings):
            for number in (2, 3):
                await rig.call_tool("search")
                await rig.provider.request(number)
            told = await rig.until_told(2)
            await rig.change(TaskState.COMPLETED)
            await watched.ended.wait()
        await handle.signal(ToldTask.end)
        await handle.result()

    events = [event async for event in handle.fetch_history_events()]
    assert told == ["Searching", "Painting"]
    names = [EventType.Name(event.event_type) for event in events]
    assert len([name for name in names if "ACTIVITY" in name]) == 3

"""A narrator beside a task: begun once its agent is known, never waited for; it outlives its worker."""

import asyncio

from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from everloop.worker import WorkerSettings, build_workers
from everloop.workflows.contract.calls import CallModelInput, NarrateInput
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.names import NARRATOR_QUEUE, task_queue_of
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from everloop.workflows.contract.ports import NarratorPort
from everloop.workflows.contract.tasks import AgentSpec, NarratorSpec, TaskState, ToolSpec
from everloop.workflows.scope import narration
from tests.gateway.harness import unique
from tests.support.fakes.ports import FakePorts, ScriptedModel, answer, asks
from tests.support.rigs.narrator_rig import NarratorRig, narrator_rig
from tests.support.servers.scripted_openai import Reply
from tests.workflows.conftest import StartTask, run

AGENT = AgentSpec(id="agent", model="big", narrator=NarratorSpec(interval=2, model="small"))


class WaitingNarrator(NarratorPort):
    """Goes on until it is let go."""

    def __init__(self) -> None:
        self.calls: list[NarrateInput] = []
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def narrate(self, call: NarrateInput) -> None:
        self.calls.append(call)
        self.begun.set()
        await self.let_go.wait()

    async def answer(self, _call: CallModelInput) -> AssistantMessage:
        """Reply once the narrator has begun, and let it go."""
        await self.begun.wait()
        self.let_go.set()
        return answer("done")


async def test_each_run_of_a_long_task_has_one_narrator(
    start_long_task: StartTask, impatient_client: Client
) -> None:
    """That of the run before is neither waited for nor in the way."""
    ports = FakePorts(ScriptedModel(*(asks((f"c{n}", "x")) for n in range(10)), answer("done")))
    ports.narrator = WaitingNarrator()
    result = await run(start_long_task(ports, AGENT))
    runs = list(dict.fromkeys(call.task.run_id for call in ports.model.calls))
    histories = [
        await impatient_client.get_workflow_handle(
            ports.model.calls[0].task.task_id, run_id=run
        ).fetch_history()
        for run in runs
    ]
    assert result.excerpt == "done"
    assert len(runs) > 2
    assert [_narrators(history) for history in histories] == [1] * len(runs)


def _narrators(history: WorkflowHistory) -> int:
    """Return how many a run has begun."""
    scheduled = (event.activity_task_scheduled_event_attributes for event in history.events)
    return sum(one.activity_type.name == "narrate" for one in scheduled)


async def test_nobody_waits_for_the_narrator(start_task: StartTask) -> None:
    """Nor is it missed: without a worker for it the task ends as it would."""
    async with start_task(FakePorts(ScriptedModel(answer("done"))), AGENT) as handle:
        assert (await handle.result()).excerpt == "done"


async def test_sub_agents_are_not_narrated(start_task: StartTask) -> None:
    """Their client is the task that asks them, whose narrator sees what they do."""
    narrator = WaitingNarrator()
    writer = asks(("w", "writer"))
    call = writer.tool_calls[0].model_copy(update={"arguments": '{"request": "Write."}'})
    writer = writer.model_copy(update={"tool_calls": (call,)})
    ports = FakePorts(ScriptedModel(writer, answer("A poem."), narrator.answer))
    ports.narrator, ports.agents.spec = narrator, AGENT
    agent = AGENT.model_copy(update={"tools": {"writer": ToolSpec(agent="writer")}})
    await run(start_task(ports, agent))
    assert [call.task.task_id for call in narrator.calls] == [ports.model.calls[0].task.task_id]


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

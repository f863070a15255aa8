"""The narrator beside a task: begun once its agent is known, never waited for, for clients' tasks only."""

import asyncio

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from tests.support.fake_ports import FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import start_workflow, unique_queue
from worker import WorkerSettings, running_workers
from workflows.contract.calls import CallModelInput, NarrateInput
from workflows.contract.messages import AssistantMessage
from workflows.contract.ports import NarratorPort
from workflows.contract.tasks import AgentSpec, NarratorSpec, ToolSpec

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


async def test_a_task_begins_its_narrator_once(client: Client) -> None:
    """However long it is, and without ever cancelling it."""
    narrator, queue = WaitingNarrator(), unique_queue()
    ports = FakePorts(ScriptedModel(*(asks((f"c{n}", "x")) for n in range(4)), narrator.answer))
    ports.narrator = narrator
    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=queue)):
        handle = await start_workflow(client, queue, AGENT)
        await handle.result()
        history = await handle.fetch_history()

    (call,) = narrator.calls
    assert (call.model, call.narrator) == ("big", AGENT.narrator)
    scheduled = [
        event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events
    ]
    assert scheduled.count("narrate") == 1
    kinds = [event.event_type for event in history.events]
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED not in kinds


async def test_a_scheduled_task_is_narrated(client: Client) -> None:
    """Once its agent is known: the schedule has named no more than its id."""
    narrator, queue = WaitingNarrator(), unique_queue()
    ports = FakePorts(ScriptedModel(narrator.answer))
    ports.narrator, ports.agents.spec = narrator, AGENT
    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=queue)):
        handle = await start_workflow(client, queue, AgentSpec(id="agent"), changes={"scheduled": True})
        await handle.result()

    assert [call.narrator for call in narrator.calls] == [AGENT.narrator]


async def test_nobody_waits_for_the_narrator(client: Client) -> None:
    """Nor is it missed: without a worker for it the task ends as it would."""
    ports, queue = FakePorts(ScriptedModel(answer("done"))), unique_queue()
    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=queue)):
        handle = await start_workflow(client, queue, AGENT)
        assert (await handle.result()).excerpt == "done"


async def test_sub_agents_are_not_narrated(client: Client) -> None:
    """Their client is the task that asks them, whose narrator sees what they do."""
    narrator, queue = WaitingNarrator(), unique_queue()
    writer = asks(("w", "writer"))
    call = writer.tool_calls[0].model_copy(update={"arguments": '{"request": "Write."}'})
    writer = writer.model_copy(update={"tool_calls": (call,)})
    ports = FakePorts(ScriptedModel(writer, answer("A poem."), narrator.answer))
    ports.narrator, ports.agents.spec = narrator, AGENT
    agent = AGENT.model_copy(update={"tools": {"writer": ToolSpec(agent="writer")}})
    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=queue)):
        handle = await start_workflow(client, queue, agent)
        await handle.result()

    assert [call.task.task_id for call in narrator.calls] == [handle.id]

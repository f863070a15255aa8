"""A narrator beside a task: started once for each run, never waited for, and not for sub-agents."""

import asyncio

from temporalio import activity
from temporalio.client import Client, WorkflowHistory

from everloop.workflows.contract.calls import CallModelInput, NarrateInput
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.ports import NarratorPort
from everloop.workflows.contract.tasks import AgentSpec, NarratorSpec, ToolSpec
from tests.support.fakes.ports import FakePorts, ScriptedModel, answer, asks, asks_writer
from tests.workflows.conftest import StartTask, run

AGENT = AgentSpec(id="agent", model="big", narrator=NarratorSpec(interval=2, model="small"))


class WaitingNarrator(NarratorPort):
    """Runs until it is released."""

    def __init__(self) -> None:
        self.calls: list[NarrateInput] = []
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def narrate(self, call: NarrateInput) -> None:
        self.calls.append(call)
        self.begun.set()
        await self.let_go.wait()

    async def answer(self, _call: CallModelInput) -> AssistantMessage:
        """Reply once the narrator has begun, and release it."""
        await self.begun.wait()
        self.let_go.set()
        return answer("done")


async def test_each_run_of_a_long_task_has_one_narrator(
    start_long_task: StartTask, impatient_client: Client
) -> None:
    """The narrator of the run before neither delays nor blocks it."""
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
    """Return the number of narrators that a run has started."""
    scheduled = (event.activity_task_scheduled_event_attributes for event in history.events)
    return sum(one.activity_type.name == "narrate" for one in scheduled)


async def test_nobody_waits_for_the_narrator(start_task: StartTask) -> None:
    """Nor is it required: without a worker for it the task ends as usual."""
    async with start_task(FakePorts(ScriptedModel(answer("done"))), AGENT) as handle:
        assert (await handle.result()).excerpt == "done"


async def test_sub_agents_are_not_narrated(start_task: StartTask) -> None:
    """Their client is the task that calls them, whose narrator reads their events."""
    narrator = WaitingNarrator()
    ports = FakePorts(ScriptedModel(asks_writer("w"), answer("A poem."), narrator.answer))
    ports.narrator, ports.agents.spec = narrator, AGENT
    agent = AGENT.model_copy(update={"tools": {"writer": ToolSpec(agent="writer")}})
    await run(start_task(ports, agent))
    assert [call.task.task_id for call in narrator.calls] == [ports.model.calls[0].task.task_id]

"""Tasks that a schedule began: nobody has shown them yet, nor looked their agent up."""

from datetime import UTC, datetime

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import names
from everloop.workflows.contract.tasks import AgentSpec, MemorySpec, TaskState
from tests.support.fakes.ports import FakePorts, ScriptedModel, answer
from tests.workflows.conftest import StartTask

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def test_a_scheduled_task_shows_itself_and_pins_its_agent(start_task: StartTask) -> None:
    """It begins when it runs, in a context of its own, as the agent is defined now."""
    ports = FakePorts(ScriptedModel(answer("done")))
    ports.agents.spec = AgentSpec(id="any", model="newest", version="2", memory=MemorySpec())
    begun = AgentSpec(id="reporter")
    changes = {"scheduled": True, "context_id": "", "created_at": LONG_AGO}

    async with start_task(ports, begun, changes) as handle:
        result = await handle.result()
        view = await handle.query(AgentTask.view)

    assert result.state is TaskState.COMPLETED
    (opened,) = ports.publish.opened
    assert opened.context_id == names.derive_context_id(handle.id)
    assert opened.created_at > LONG_AGO
    assert [message.message_id for message in opened.history] == [handle.id]
    (call,) = ports.model.calls
    assert (call.model, call.task.agent_version, call.task.context_id) == ("newest", "2", opened.context_id)
    assert view.agent_id == "reporter"
    assert [(p.loads_agent, p.lists_tools) for p in ports.agents.prepared] == [(True, False)]


async def test_a_scheduled_task_may_belong_to_a_context(start_task: StartTask) -> None:
    """It then recalls what was said there."""
    ports = FakePorts(ScriptedModel(answer("done")))
    ports.agents.spec = AgentSpec(id="any", memory=MemorySpec())
    changes = {"scheduled": True, "context_id": "daily"}
    async with start_task(ports, AgentSpec(id="reporter"), changes) as handle:
        await handle.result()
    assert [loaded.task.context_id for loaded in ports.context.loaded] == ["daily"]

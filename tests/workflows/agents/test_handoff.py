"""A task that one agent hands over to another."""

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.calls import PreparedTask
from everloop.workflows.contract.messages import ToolsMessage
from everloop.workflows.contract.tasks import AgentSpec, ToolSpec
from tests.support.fakes.ports import FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import StartTask, run
from tests.workflows.test_plugins import LISTED, LISTING

FIRST = AgentSpec(id="first", tools={"go": ToolSpec(handoff="second"), "stop": ToolSpec(handoff="third")})
SECOND = AgentSpec(id="second", model="other", version="7", tools={"x": ToolSpec(timeout=9)})


def handing_over() -> FakePorts:
    ports = FakePorts(ScriptedModel(asks(("h", "go")), asks(("a", "x")), answer("done")))
    ports.agents.spec = SECOND
    return ports


async def test_the_other_agent_goes_on_with_the_transcript(start_task: StartTask) -> None:
    """Its model, tools and version count from then on; clients read the first agent's task."""
    ports = handing_over()
    async with start_task(ports, FIRST) as handle:
        result = await handle.result()
        view = await handle.query(AgentTask.view)
        page = await handle.query(AgentTask.transcript)
    assert result.excerpt == "done"
    agents = [(call.task.agent_id, call.task.agent_version, call.model) for call in ports.model.calls]
    assert agents == [("first", "", None), ("second", "7", "other"), ("second", "7", "other")]
    assert [call.length for call in ports.model.calls] == [1, 3, 5]
    (tool,) = ports.tools.calls
    assert (tool.task.agent_id, tool.timeout) == ("second", 9)
    assert view.agent_id == "first"
    (loaded,) = ports.agents.loaded
    assert (loaded.agent_id, loaded.child) == ("second", handle.id)
    handed = page.messages[2]
    assert (handed.role, getattr(handed, "outcome", "")) == ("tool", "ok")


async def test_a_task_goes_to_one_agent_only(start_task: StartTask) -> None:
    """Of two handoffs in one reply the first counts; the model reads that the other was refused."""
    ports = FakePorts(ScriptedModel(asks(("h", "go"), ("i", "stop")), answer("done")))
    await run(start_task(ports, FIRST))
    outcomes = sorted((stored.result.name, stored.result.outcome) for stored in ports.tools.results)
    assert [outcome for _, outcome in outcomes].count("ok") == 1
    winner = next(name for name, outcome in outcomes if outcome == "ok")
    assert ports.model.calls[1].task.agent_id == {"go": "second", "stop": "third"}[winner]


async def test_listed_tools_of_the_first_agent_are_not_offered_to_the_next(start_task: StartTask) -> None:
    """The next agent lists none, so an empty list stands in the transcript behind theirs."""
    ports = handing_over()
    ports.agents.listing = LISTING
    async with start_task(ports, FIRST.model_copy(update={"lists_tools": True})) as handle:
        await ports.model.until_asked(1)
        ports.agents.listing = PreparedTask(listed=ToolsMessage(tools=()))
        await handle.result()
        page = await handle.query(AgentTask.transcript)
    lists = [message for message in page.messages if isinstance(message, ToolsMessage)]
    assert lists == [LISTED, ToolsMessage(tools=())]
    assert [prepared.task.agent_id for prepared in ports.agents.prepared] == ["first", "second"]
    assert page.messages[4] == ports.agents.listing.listed

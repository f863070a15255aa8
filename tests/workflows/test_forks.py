"""A task that continues from the past of another."""

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.agent_settings import Compaction, Memory
from everloop.workflows.contract.calls import PreparedTask
from everloop.workflows.contract.messages import (
    AssistantMessage,
    ListedTool,
    TextPart,
    ToolMessage,
    ToolsMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.tasks import AgentSpec, Fork, ForkOrigin, TaskState
from tests.support.fakes.ports import FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import StartTask, user

FIRST = UserMessage(message_id="first", parts=(TextPart(text="Compare them."),))
LISTED = ToolsMessage(tools=(ListedTool(name="old", description="", parameters={}),))
PAST: tuple[TranscriptMessage, ...] = (
    LISTED,
    FIRST,
    AssistantMessage(
        tool_calls=asks(("r00002c01", "search")).tool_calls, usage=Usage(input_tokens=900, output_tokens=100)
    ),
    ToolMessage(call_id="r00002c01", name="search", content="two offers"),
)
FORK = Fork(task_id="origin", iteration=1, messages=PAST, first=1)
AGENT = AgentSpec(id="agent", memory=Memory())


def ports_of(*replies: AssistantMessage) -> FakePorts:
    """The agent's plugins list no tools any more."""
    ports = FakePorts(ScriptedModel(*replies))
    ports.agents.listing = PreparedTask(listed=ToolsMessage(tools=()))
    return ports


async def test_a_fork_goes_on_from_the_past_and_repeats_nothing_of_it(start_task: StartTask) -> None:
    """The model reads the past and the new message; no call of the past runs, no message is stored twice."""
    ports, message = ports_of(asks(("a", "look")), answer("Done.")), user("Only the first one.")
    async with start_task(ports, AGENT, {"fork": FORK, "message": message}) as handle:
        result = await handle.result()
        page, view = await handle.query(AgentTask.transcript), await handle.query(AgentTask.view)
    assert page.messages[:4] == PAST
    assert [each.role for each in page.messages[4:]] == ["tools", "user", "assistant", "tool", "assistant"]
    assert [(stored.start, stored.messages) for stored in ports.transcript.stored] == [(0, PAST)]
    assert [run.call.name for run in ports.tools.calls] == ["look"]
    assert view.fork == ForkOrigin(task_id="origin", iteration=1)
    assert [each.message_id for each in view.history] == [message.message_id]
    assert ports.context.loaded == []
    (saved,) = ports.publish.remembered
    assert (saved.first, saved.length) == (5, 9)
    assert result.iterations == 2


async def test_a_fork_without_a_message_of_its_own_goes_on_where_the_past_ends(start_task: StartTask) -> None:
    """The conversation is in its history, and its first call carries the working status."""
    ports = ports_of(answer("Done."))
    async with start_task(ports, AGENT, {"fork": FORK, "message": FIRST}) as handle:
        await handle.result()
        page, view = await handle.query(AgentTask.transcript), await handle.query(AgentTask.view)
    assert [each.role for each in page.messages[4:]] == ["tools", "assistant"]
    (call,) = ports.model.calls
    assert [(status.state, status.received) for status in call.statuses] == [(TaskState.WORKING, (FIRST,))]
    assert [each.message_id for each in view.history] == ["first"]


async def test_the_past_of_a_fork_may_make_room(start_task: StartTask) -> None:
    """It is not a recalled conversation: all but the first message may be summed up."""
    ports = ports_of(answer("Done."))
    agent = AGENT.model_copy(update={"compaction": Compaction(prompt_tokens=1000)})
    long = Fork(task_id="origin", iteration=2, first=1, messages=(*PAST, *PAST[2:]))
    async with start_task(ports, agent, {"fork": long, "message": user("And now?")}) as handle:
        await handle.result()
    (compacted,) = ports.model.compactions
    assert (compacted.first, compacted.end) == (1, 4)


async def test_a_long_fork_is_given_its_past_once(start_long_task: StartTask) -> None:
    """A later run carries it, and still has its origin."""
    ports = ports_of(*(asks((f"c{n}", "x")) for n in range(12)), answer("Done."))
    async with start_long_task(ports, AGENT, {"fork": FORK, "message": user("More.")}) as handle:
        await handle.result()
        page, view = await handle.query(AgentTask.transcript), await handle.query(AgentTask.view)
    assert page.messages[:4] == PAST
    assert sum(message == FIRST for message in page.messages) == 1
    assert view.fork == FORK.origin
    assert len({call.task.run_id for call in ports.model.calls}) > 1

"""Guards bind the agents below; an approved call stays one that needs approval."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import Client

from everloop import Agent, Plugin, guard, handoff, mcp, sub_agent, tool, tools
from everloop.agents.tool import Tool
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage
from everloop.workflows.contract.questions import ApproverAnswer, Question
from everloop.workflows.contract.tasks import TaskState
from tests.support.fakes.ports import Script, ScriptedModel, answer, asks, task_of
from tests.support.fakes.real_tools import RealTools, an_agent
from tests.support.rigs.mcp_rig import SMALL_STDIO, Caller, asker
from tests.workflows.conftest import Handle, StartTask, asked_of_client, refusal_of, say, user

pytestmark = pytest.mark.usefixtures("redis")

SCOPE = "tasks:approve"
DENIED = "the tool 'send' is not allowed here (allowed: all others)"


class ModelOfEach(ScriptedModel):
    """Plays the replies of each agent."""

    def __init__(self, **scripts: list[Script]) -> None:
        super().__init__()
        self._models = {agent: ScriptedModel(*script) for agent, script in scripts.items()}

    @activity.defn
    async def call_model(self, call: CallModelInput) -> AssistantMessage:
        self.calls.append(call)
        return await self._models[call.task.agent_id].call_model(call)


def ask(agent: str) -> AssistantMessage:
    """A reply that calls a sub-agent; the call has the agent's name as its id."""
    call = ToolCall(id=agent, name=agent, arguments='{"request": "Go."}')
    return AssistantMessage(tool_calls=(call,))


def send_tool(sent: list[str], name: str = "send", **settings: str) -> Tool:
    """Return a tool that records its run."""

    @tool(name=name, fallback=settings.get("fallback"))
    def send() -> str:
        """Send it."""
        sent.append(name)
        return f"{name} done"

    return send


def below(handle: Handle, *agents: str) -> str:
    """Return the task of the sub-agent below these calls."""
    task_id = handle.id
    for agent in agents:
        task_id = task_of(task_id, *ask(agent).tool_calls)
    return task_id


async def read_by_model(client: Client, task_id: str) -> list[ToolMessage]:
    """Return the results of its calls that the model of a task read."""
    page = await client.get_workflow_handle_for(AgentTask.run, task_id).query(AgentTask.transcript)
    return [message for message in page.messages if isinstance(message, ToolMessage)]


async def approve_with_scope(handle: Handle, question: Question) -> None:
    """Answer as a caller who has the scope does."""
    who = {"approver": "ann", "owner": "supervisors", "scheme": "apiKey", "subject": "k1"}
    said = {"question_id": question.id, "scope": question.approvers, "approved": True, **who}
    await handle.execute_update(AgentTask.take_approvers_answer, ApproverAnswer.model_validate(said))


def three_levels(sent: list[str], lead: Plugin, writer: Plugin | None = None) -> tuple[Agent, ...]:
    """Return a lead, who calls a writer, who calls a printer; those two can send."""
    sends = tools(send_tool(sent), send_tool(sent, "fax"), send_tool(sent, "mail"))
    own = [writer] if writer else []
    return (
        an_agent("lead", sub_agent("writer"), lead),
        an_agent("writer", sub_agent("printer"), sends, *own),
        an_agent("printer", sends),
    )


async def test_what_agents_deny_adds_up_on_the_way_down(start_task: StartTask, client: Client) -> None:
    """An agent's permission does not override a denial of another one, above it or below."""
    sent: list[str] = []
    model = ModelOfEach(
        lead=[ask("writer"), answer("done")],
        writer=[ask("printer"), answer("written")],
        printer=[asks(("s", "send"), ("f", "fax"), ("m", "mail")), answer("printed")],
    )
    lead, *others = three_levels(
        sent,
        guard(allow=["writer", "printer", "send", "mail"], default="deny"),
        guard(allow=["printer", "fax", "mail"], default="deny"),
    )

    async with start_task(RealTools(model, lead, *others), lead.spec) as handle:
        await handle.result()
        read = await read_by_model(client, below(handle, "writer", "printer"))

    assert [(each.name, each.outcome) for each in read] == [
        ("send", "rejected"),
        ("fax", "rejected"),
        ("mail", "ok"),
    ]
    assert "allowed: printer, fax, mail" in read[0].content
    assert "allowed: writer, printer, send, mail" in read[1].content
    assert sent == ["mail"]


async def test_reading_on_is_nobodys_to_forbid(start_task: StartTask, client: Client) -> None:
    """Not above, not below; the example reads the rest of a sub-agent's long answer."""
    model = ModelOfEach(
        lead=[ask("writer"), asks(("r", "read_result")), answer("done")],
        writer=[asks(("r", "read_result")), answer("x" * 70_000)],
    )
    lead = an_agent("lead", sub_agent("writer"), guard(allow=["writer"], default="deny"))
    writer = an_agent("writer", guard(approve=["*"]))

    async with start_task(RealTools(model, lead, writer), lead.spec) as handle:
        await handle.result()
        above, below_ = (
            await read_by_model(client, handle.id),
            await read_by_model(client, below(handle, "writer")),
        )

    assert [(each.name, each.outcome, each.whole) for each in above] == [
        ("writer", "ok", 70_000),
        ("read_result", "invalid", 0),
    ]
    assert above[0].content.startswith("x" * 65_536 + "\n[65,536 of 70,000 characters; read on with")
    assert [(each.name, each.outcome) for each in below_] == [("read_result", "invalid")]


@pytest.mark.parametrize(
    ("of_lead", "of_writer"), [("owner", None), (SCOPE, None), (SCOPE, "owner"), ("owner", SCOPE)]
)
async def test_an_approval_that_an_agent_wants_is_asked_for_below(
    start_task: StartTask, client: Client, of_lead: str, of_writer: str | None
) -> None:
    """The client's task asks it, with a guard's scope if one names a scope. The call then runs, once."""
    sent: list[str] = []
    model = ModelOfEach(
        lead=[ask("writer"), answer("done")],
        writer=[ask("printer"), answer("written")],
        printer=[asks(("s", "send")), answer("printed")],
    )
    lead, *others = three_levels(
        sent,
        guard(approve=["send"], approvers=of_lead),
        guard(approve=["send"], approvers=of_writer) if of_writer else None,
    )
    ports = RealTools(model, lead, *others)

    async with start_task(ports, lead.spec) as handle:
        (question,) = await asked_of_client(ports, handle)
        before = [*sent]
        if question.is_for_owner:
            await say(handle, user("yes"))
        else:
            await refusal_of(say(handle, user("yes")))
            await approve_with_scope(handle, question)
        await handle.result()
        (read,) = await read_by_model(client, below(handle, "writer", "printer"))

    assert (question.purpose, question.call.name) == ("approval", "send")
    assert question.approvers == (SCOPE if SCOPE in {of_lead, of_writer} else "owner")
    assert (before, sent, read.content) == ([], ["send"], "send done")
    asked = [len(status.questions) for task, status in ports.publish.by_task if task == handle.id]
    assert asked == [1, 0, 0]


async def test_a_guard_above_decides_which_agents_are_asked_below(
    start_task: StartTask, client: Client
) -> None:
    """Calls of agents are tool calls, too: here one needs an approval, and the other one is denied."""
    model = ModelOfEach(
        lead=[ask("writer"), answer("done")],
        writer=[ask("printer"), asks(("h", "hand_over_to_lead")), answer("written")],
        printer=[answer("printed")],
    )
    lead = an_agent("lead", sub_agent("writer"), guard(approve=["printer"], deny=["hand_over_*"]))
    writer = an_agent("writer", sub_agent("printer"), handoff("lead"))
    ports = RealTools(model, lead, writer, an_agent("printer"))

    async with start_task(ports, lead.spec) as handle:
        (question,) = await asked_of_client(ports, handle)
        before = [call.task.agent_id for call in model.calls]
        await say(handle, user("yes"))
        await handle.result()
        read = await read_by_model(client, below(handle, "writer"))

    assert (question.call.name, before) == ("printer", ["lead", "writer"])
    assert [(each.name, each.outcome) for each in read] == [
        ("printer", "ok"),
        ("hand_over_to_lead", "rejected"),
    ]


async def test_a_tool_that_stands_in_is_guarded_by_its_own_name(
    start_task: StartTask, client: Client
) -> None:
    """By guards above as well as by its own agent's."""
    sent: list[str] = []

    @tool(fallback="send")
    def fails() -> str:
        """Fail."""
        raise OSError("down")

    model = ModelOfEach(
        lead=[ask("writer"), answer("done")], writer=[asks(("f", "fails")), answer("written")]
    )
    lead = an_agent("lead", sub_agent("writer"), guard(deny=["send"]))
    ports = RealTools(model, lead, an_agent("writer", tools(fails, send_tool(sent))))
    async with start_task(ports, lead.spec) as handle:
        await handle.result()
        (read,) = await read_by_model(client, below(handle, "writer"))
    assert (read.outcome, read.content, sent) == ("rejected", DENIED, [])


async def test_guards_above_hold_after_a_handoff(start_task: StartTask, client: Client) -> None:
    """The agent that takes over has its own guards in place of those of the one that handed over."""
    sent: list[str] = []
    model = ModelOfEach(
        lead=[ask("writer"), answer("done")],
        writer=[asks(("h", "hand_over_to_closer"))],
        closer=[asks(("s", "send"), ("f", "fax"), ("m", "mail")), answer("closed")],
    )
    sends = tools(send_tool(sent), send_tool(sent, "fax"), send_tool(sent, "mail"))
    lead = an_agent("lead", sub_agent("writer"), guard(deny=["send"]))
    writer = an_agent("writer", handoff("closer"), guard(deny=["fax"]))
    closer = an_agent("closer", sends, guard(deny=["mail"]))

    async with start_task(RealTools(model, lead, writer, closer), lead.spec) as handle:
        await handle.result()
        read = await read_by_model(client, below(handle, "writer"))

    assert {each.name: each.outcome for each in read[1:]} == {
        "send": "rejected",
        "fax": "ok",
        "mail": "rejected",
    }


DESTROYS, READS = '{"destructiveHint": true}', '{"readOnlyHint": true}'


@dataclass
class ChangingServer:
    """An MCP server whose annotations of its tool `erase` a test sets, and a model that calls it."""

    folder: Path

    def says(self, hints: str) -> None:
        """Set the annotations for the next list."""
        (self.folder / "hints").write_text(hints)

    def plugin(self) -> Plugin:
        """Return the server for one worker process, which starts it for itself."""
        return mcp(command=SMALL_STDIO, name="small", env={"HINTS": str(self.folder / "hints")})

    @property
    def erased(self) -> list[str]:
        ledger = self.folder / "ledger"
        return ledger.read_text().splitlines() if ledger.exists() else []

    def model(self, before: Callable[[], Awaitable[None]]) -> ScriptedModel:
        """Return a model that calls the tool after a step that follows the listing."""
        arguments = json.dumps({"ledger": str(self.folder / "ledger")})

        async def erase(_call: CallModelInput) -> AssistantMessage:
            await before()
            return AssistantMessage(tool_calls=(ToolCall(id="e", name="erase", arguments=arguments),))

        return ScriptedModel(erase, answer("done"))


@pytest.mark.parametrize(
    ("listed", "called", "asks_people"),
    [(DESTROYS, READS, True), (READS, DESTROYS, True), (READS, READS, False)],
    ids=["taken_back", "added", "never"],
)
async def test_an_approval_outlives_the_hint_that_it_came_from(
    start_task: StartTask, tmp_path: Path, listed: str, called: str, *, asks_people: bool
) -> None:
    """Annotations at the time of the listing count, and those at the time of the call."""

    async def change() -> None:
        server.says(called)
        while (tool := await plugin.get_tool("erase", asker())) and tool.needs_approval != (
            called == DESTROYS
        ):
            await Caller(plugin).call("change")

    server = ChangingServer(tmp_path)
    server.says(listed)
    plugin = server.plugin()
    agent = an_agent("agent", plugin)
    ports = RealTools(server.model(change), agent)

    async with start_task(ports, agent.spec) as handle:
        if asks_people:
            (question,) = await asked_of_client(ports, handle)
            assert (question.call.name, question.approvers, server.erased) == ("erase", "owner", [])
            await say(handle, user("yes"))
        await handle.result()
    await plugin.close()

    asked = [status for status in ports.publish.statuses if status.state is TaskState.INPUT_REQUIRED]
    assert (len(asked), server.erased) == (int(asks_people), ["erased"])

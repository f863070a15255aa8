"""Tasks with recorded histories: each takes another path through the workflow code."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import Compaction, Memory
from everloop.workflows.contract.calls import (
    CREATE_TASK,
    CallModelInput,
    PreparedTask,
    RunToolInput,
    SaveContextInput,
    SaveContextResult,
    ToolReply,
)
from everloop.workflows.contract.messages import (
    AssistantMessage,
    ListedTool,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolsMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.questions import ApproveInput, Question, QuestionKind
from everloop.workflows.contract.tasks import AgentSpec, NarratorSpec, TaskResult, ToolSpec
from everloop.workflows.turns.model_turn import COME_BACK
from tests.support.fakes.ports import (
    CountingTools,
    FakePorts,
    RecordingContext,
    Script,
    ScriptedModel,
    answer,
    asks,
)

LONG_EVENTS = 100
"""Number of events after which a history counts as long while scenarios are recorded."""

AGENT = AgentSpec(id="agent", max_iterations=3)
FULL_AGENT = AgentSpec(
    id="agent",
    fallback_models=("second",),
    on_model_failure="wait",
    compaction=Compaction(),
    wall_clock=3600,
    max_tool_failures=3,
    tools={"a": ToolSpec(fallback="b"), "writer": ToolSpec(agent="writer")},
)
"""An agent that uses most of the fields that a task pins."""

ARTIFACT_AGENT = AgentSpec(id="agent", tools={"write": ToolSpec(serial=True)}, artifact_tool="write")

Handle = WorkflowHandle[AgentTask, TaskResult]


async def _watch(_handle: Handle) -> None:
    """Do nothing: the task runs by itself."""


@dataclass(frozen=True)
class Scenario:
    """The parts behind the ports, the client's actions, and the pinned definition.

    `changes` are fields of its input that differ from those of a task that a gateway starts.
    """

    ports: FakePorts
    act: Callable[[Handle], Awaitable[None]] = _watch
    agent: AgentSpec = AGENT
    changes: Mapping[str, object] = field(default_factory=dict[str, object])


def _fail(failure_type: str) -> ApplicationError:
    return ApplicationError("scripted failure", type=failure_type, non_retryable=True)


def _plays(*script: Script, agent: AgentSpec = AGENT) -> Callable[[], Scenario]:
    """Replies of the model alone."""
    return lambda: Scenario(FakePorts(ScriptedModel(*script)), agent=agent)


def _a_message_meanwhile(*after: Script) -> Callable[[], Scenario]:
    """The first reply comes after a second message of the client."""

    def make() -> Scenario:
        started, added = asyncio.Event(), asyncio.Event()

        async def slow(_call: CallModelInput) -> AssistantMessage:
            started.set()
            await added.wait()
            return answer("too early")

        async def act(handle: Handle) -> None:
            await started.wait()
            message = UserMessage(message_id="m2", parts=(TextPart(text="And this?"),))
            await handle.execute_update(AgentTask.add_message, message, id=message.message_id)
            added.set()

        return Scenario(FakePorts(ScriptedModel(slow, *after)), act)

    return make


async def _endless(_call: CallModelInput) -> AssistantMessage:
    while True:
        activity.heartbeat()
        await asyncio.sleep(0.05)


def _canceled() -> Scenario:
    """The client cancels while the model writes."""
    started = asyncio.Event()

    async def starting(call: CallModelInput) -> AssistantMessage:
        started.set()
        return await _endless(call)

    async def act(handle: Handle) -> None:
        await started.wait()
        await handle.cancel()

    return Scenario(FakePorts(ScriptedModel(starting)), act)


def _no_tool_works() -> Scenario:
    """Too many iterations in a row; a person's no does not count."""

    def reply(call: RunToolInput) -> ToolReply:
        outcome = "rejected" if call.call.id == "no" else "error"
        return ToolMessage(call_id=call.call.id, name=call.call.name, content="no", outcome=outcome)

    model = ScriptedModel(asks(("a", "x")), asks(("no", "x")), asks(("b", "x")))
    agent = AgentSpec(id="agent", max_tool_failures=2)
    return Scenario(FakePorts(model, CountingTools(reply=reply)), agent=agent)


def _failures_told() -> Scenario:
    """No tool works, neither before nor after the model reads so."""

    def reply(call: RunToolInput) -> ToolReply:
        return call.call.result("no", "error")

    model = ScriptedModel(*(asks((each, "x")) for each in "abc"))
    agent = AgentSpec(id="agent", max_tool_failures=2, last_call=True)
    return Scenario(FakePorts(model, CountingTools(reply=reply)), agent=agent)


async def _until_first_is_back(_call: CallModelInput) -> AssistantMessage:
    """Reply when the first model is due again."""
    for _ in range(int(COME_BACK.total_seconds()) + 1):
        activity.heartbeat()
        await asyncio.sleep(1)
    return asks(("a", "x"))


def _decides(*script: Script) -> Callable[[], Scenario]:
    """An agent that decides about a task, while a client waits for the decision."""

    async def act(handle: Handle) -> None:
        await handle.execute_update(AgentTask.wait_for_route)

    agent = AgentSpec(id="agent", routing="auto")
    return lambda: Scenario(FakePorts(ScriptedModel(*script)), act, agent)


def _asks(call: RunToolInput) -> ToolReply | None:
    if call.answers:
        return None
    return Question(id=call.call.id, kind=QuestionKind.CONFIRMATION, text="May I?", call=call.call)


def _questions() -> Scenario:
    """Two calls ask; the client answers one, an operator the other."""
    ports = FakePorts(ScriptedModel(asks(("a", "x"), ("b", "x")), answer("done")), CountingTools(reply=_asks))

    async def act(handle: Handle) -> None:
        await ports.publish.until_asked()
        yes = UserMessage(message_id="m2", parts=(TextPart(text="yes"),), answers="b")
        await handle.execute_update(AgentTask.add_message, yes, id=yes.message_id)
        await ports.publish.until_asked(2)
        await handle.signal(AgentTask.approve, ApproveInput(call_id="a", approved=False))

    return Scenario(ports, act)


def _no_answer() -> Scenario:
    """A question runs out of time."""

    def reply(call: RunToolInput) -> ToolReply | None:
        asked = _asks(call)
        return asked.model_copy(update={"timeout": 0.1}) if isinstance(asked, Question) else None

    return Scenario(FakePorts(ScriptedModel(asks(("a", "x")), answer("done")), CountingTools(reply=reply)))


def _operator_resumes() -> Scenario:
    """Both models refuse; the operator fixes it."""
    refused = [_fail(failures.MODEL_REFUSED) for _ in range(2)]
    ports = FakePorts(ScriptedModel(*refused, answer("done")))

    async def act(handle: Handle) -> None:
        await ports.publish.entered.wait()
        await handle.signal(AgentTask.resume)

    return Scenario(ports, act, FULL_AGENT)


def _fallback_tool() -> Scenario:
    """A fallback tool replaces another."""

    def reply(call: RunToolInput) -> ToolReply | None:
        if call.call.name == "b":
            return None
        return ToolMessage(call_id=call.call.id, name=call.call.name, content="down", outcome="error")

    tools = CountingTools(reply=reply)
    return Scenario(FakePorts(ScriptedModel(asks(("1", "a")), answer("done")), tools), agent=FULL_AGENT)


class _QuickTools(CountingTools):
    """Tools whose quick calls fail: `again` is retried, `slow` is not quick, `lost` just fails."""

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        if activity.info().is_local and call.call.id == "again":
            delay = timedelta(milliseconds=10)
            raise ApplicationError("again", type=failures.TOOL_FAILED, next_retry_delay=delay)
        if activity.info().is_local and call.call.id == "slow":
            raise ApplicationError("slow", type=failures.NOT_QUICK, non_retryable=True)
        if activity.info().is_local and call.call.id == "lost":
            raise ConnectionError
        return await super().run_tool(call)


def _quick_tools() -> Scenario:
    """Quick calls beside one that is not, and the handling of those that fail; then one after an answer."""
    calls = asks(("1", "a"), ("again", "a"), ("lost", "a"), ("slow", "b"), ("2", "c"), text="Let me look.")
    tools = _QuickTools(reply=lambda call: _asks(call) if call.call.id == "asks" else None)
    quick = {name: ToolSpec(quick=True) for name in "ab"}
    model = ScriptedModel(calls, asks(("3", "a"), ("4", "b")), asks(("asks", "a")), answer("done"))
    ports = FakePorts(model, tools)

    async def act(handle: Handle) -> None:
        await ports.publish.until_asked()
        await handle.signal("approve", ApproveInput(call_id="asks", approved=True))

    return Scenario(ports, act, AgentSpec(id="agent", tools=quick))


def _artifacts() -> Scenario:
    """Calls of serial tools, one of which asks; then an answer that waits for its artifact."""

    def reply(call: RunToolInput) -> ToolReply | None:
        if call.call.id == "w":
            return ToolMessage(call_id="w", name="write", content="written", artifacts=("report",))
        return _asks(call) if call.call.id == "b" else None

    calls = asks(("a", "write"), ("b", "write"), ("x", "look"), ("c", "write"))
    ports = FakePorts(ScriptedModel(calls, answer("done"), asks(("w", "write"))), CountingTools(reply=reply))

    async def act(handle: Handle) -> None:
        await ports.publish.until_asked()
        await handle.signal(AgentTask.approve, ApproveInput(call_id="b", approved=True))

    return Scenario(ports, act, ARTIFACT_AGENT)


_ASKS_WRITER = AssistantMessage(
    tool_calls=(ToolCall(id="w", name="writer", arguments='{"request": "Write."}'),)
)


def _remembers() -> Scenario:
    """A task recalls its context; its messages are lost from the cache, sent again, and summed up."""
    lost = [_fail(failures.TRANSCRIPT_MISSING)]

    def remember(_: SaveContextInput) -> SaveContextResult:
        if lost:
            raise lost.pop()
        return SaveContextResult(is_long=True)

    ports = FakePorts(ScriptedModel(answer("Four.")))
    earlier = UserMessage(message_id="m0", parts=(TextPart(text="2 + 1?"),))
    ports.context = RecordingContext(earlier, AssistantMessage(text="Three."))
    ports.publish.on_remember = remember
    return Scenario(ports, agent=AgentSpec(id="agent", memory=Memory(strategy="summary")))


def _plugins() -> Scenario:
    """Tools are listed, the message is checked, a reply is refused, and hooks run at the end."""
    agent = AgentSpec(
        id="agent",
        lists_tools=True,
        hooks=("before_request", "before_model_call", "after_completion"),
        has_output=True,
        narrator=NarratorSpec(),
    )
    refused = answer("no data").model_copy(update={"refused": "it is no JSON"})
    ports = FakePorts(ScriptedModel(asks(("a", "echo")), refused, answer('{"sum": 4}')))
    listed = ToolsMessage(tools=(ListedTool(name="echo", description="Echoes.", parameters={}),))
    ports.agents.listing = PreparedTask(listed=listed, tools={"echo": ToolSpec(plugin="server")})
    return Scenario(ports, agent=agent)


def _is_handed_over() -> Scenario:
    """Another agent, which lists tools, goes on."""
    ports = FakePorts(ScriptedModel(asks(("h", "go")), asks(("a", "x")), answer("done")))
    ports.agents.spec = AgentSpec(id="second", lists_tools=True)
    return Scenario(ports, agent=AgentSpec(id="first", tools={"go": ToolSpec(handoff="second")}))


def _sub_agent_asks() -> Scenario:
    """The call needs an approval, and then the sub-agent asks; both are answered at this task."""
    model = ScriptedModel(_ASKS_WRITER, asks(("q", "x")), answer("A poem."), answer("done"))
    ports = FakePorts(model, CountingTools(reply=_asks))
    approval = {"id": "w", "kind": QuestionKind.CONFIRMATION, "purpose": "approval", "text": "May I?"}
    ports.agents.before = lambda load: {} if load.answers else {"question": {**approval, "call": load.call}}

    async def act(handle: Handle) -> None:
        for number, question in enumerate(("w", "w/q"), start=2):
            await ports.publish.until(
                lambda asked=question: any(
                    asked in {q.id for q in status.questions}
                    for task_id, status in ports.publish.by_task
                    if task_id == handle.id
                )
            )
            yes = UserMessage(message_id=f"m{number}", parts=(TextPart(text="yes"),), answers=question)
            await handle.execute_update(AgentTask.add_message, yes, id=yes.message_id)

    return Scenario(ports, act, FULL_AGENT.model_copy(update={"max_sub_agents": 5, "max_tokens": 1000}))


def _scheduled() -> Scenario:
    """A schedule began the task."""
    ports = FakePorts(ScriptedModel(answer("done")))
    ports.agents.spec = AgentSpec(id="any", version="1", memory=Memory())
    return Scenario(ports, changes={"scheduled": True, "context_id": ""})


_USES_50 = asks(("a", "x")).model_copy(update={"usage": Usage(input_tokens=40, output_tokens=10)})

_INVALID = answer("four").model_copy(update={"refused": "it is no number", "is_invalid": True})

_LAST = AgentSpec(id="agent", max_iterations=1, last_call=True)

_CUT = answer("Half").model_copy(
    update={"reason": failures.REPLY_CUT, "fails": True, "closing": "the answer was cut off"}
)

SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "answer": _plays(answer("Hi.")),
    "answer_not_shown": _plays(answer("Hi.").model_copy(update={"is_published": False})),
    "tools": _plays(asks(("a", "x"), ("b", "y"), text="Let me look."), asks(("c", "x")), answer("done")),
    "many_tools": _plays(asks(*((f"c{n}", "x") for n in range(7))), answer("done")),
    "transcript_lost": _plays(asks(("a", "x")), _fail(failures.TRANSCRIPT_MISSING), answer("done")),
    "model_refused": _plays(_fail(failures.MODEL_REFUSED)),
    "iteration_limit": _plays(*(asks((f"c{n}", "x")) for n in range(3))),
    "message_meanwhile": _a_message_meanwhile(answer("both answered")),
    "message_to_a_failing_task": _a_message_meanwhile(_fail(failures.MODEL_REFUSED)),
    "canceled": _canceled,
    "questions": _questions,
    "no_answer": _no_answer,
    "operator_resumes": _operator_resumes,
    "second_model": _plays(
        _fail(failures.MODEL_UNAVAILABLE), asks(("1", "x")), answer("done"), agent=FULL_AGENT
    ),
    "compaction": _plays(
        asks(("1", "x")), asks(("2", "x")), _fail(failures.CONTEXT_TOO_LONG), answer("done"), agent=FULL_AGENT
    ),
    "fallback_tool": _fallback_tool,
    "quick_tools": _quick_tools,
    "batched_tools": _plays(
        asks(*((f"c{n}", "x") for n in range(7)), ("d", "y")),
        answer("done"),
        agent=AgentSpec(id="agent", tools={"x": ToolSpec(batch=True, fallback="y")}),
    ),
    "sub_agent": _plays(_ASKS_WRITER, answer("A poem."), answer("done"), agent=FULL_AGENT),
    "artifacts": _artifacts,
    "answers_at_once": _decides(answer("Hi.")),
    "decides_for_a_task": _decides(asks(("c", CREATE_TASK)), asks(("1", "x")), answer("done")),
    "remembers": _remembers,
    "plugins": _plugins,
    "is_handed_over": _is_handed_over,
    "sub_agent_asks": _sub_agent_asks,
    "scheduled": _scheduled,
    "fails_to_decide": _decides(_fail(failures.MODEL_REFUSED)),
    "wall_clock": _plays(asks(("a", "x")), _endless, agent=AgentSpec(id="agent", wall_clock=1)),
    "token_limit": _plays(_USES_50, answer("never asked"), agent=AgentSpec(id="agent", max_tokens=50)),
    "no_tool_works": _no_tool_works,
    "no_artifact": _plays(answer("done"), answer("No."), agent=ARTIFACT_AGENT),
    "invalid_answers": _plays(_INVALID, _INVALID, agent=AgentSpec(id="agent", has_output=True)),
    "invalid_answers_apart": _plays(
        _INVALID, asks(("a", "x")), _INVALID, answer("4"), agent=AgentSpec(id="agent", has_output=True)
    ),
    "reply_cut": _plays(_CUT),
    "last_call": _plays(asks(("a", "x")), answer("Half."), agent=_LAST),
    "last_call_refused": _plays(asks(("a", "x")), _INVALID, agent=_LAST),
    "failures_told": _failures_told,
    "returns_to_first_model": _plays(
        _fail(failures.MODEL_UNAVAILABLE), _until_first_is_back, answer("done"), agent=FULL_AGENT
    ),
    "plugin_veto": _plays(_fail(failures.PLUGIN_VETO), agent=AgentSpec(id="agent", hooks=("on_error",))),
    "continues_as_new": lambda: Scenario(
        FakePorts(ScriptedModel(*(asks((f"c{n}", "x")) for n in range(12)), answer("done"))), agent=FULL_AGENT
    ),
}

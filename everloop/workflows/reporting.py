"""Reports of a workflow to clients (statuses) and operators (summaries, details, search attributes)."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TypeVar

from opentelemetry import trace
from pydantic import BaseModel
from temporalio import workflow

from everloop.workflows import approvals
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.calls import PublishInput
from everloop.workflows.contract.events import REASON, ResumedAfter
from everloop.workflows.contract.messages import AgentMessage, Message, TextPart, ToolCall, text_of
from everloop.workflows.contract.parts import shorten
from everloop.workflows.contract.ports import PublishPort
from everloop.workflows.contract.questions import Answer, QuestionKind, expected
from everloop.workflows.contract.tasks import (
    AgentSpec,
    TaskInput,
    TaskRef,
    TaskState,
    TaskView,
    TranscriptPage,
)
from everloop.workflows.scope import TaskScope
from everloop.workflows.scope import publish as publishing
from everloop.workflows.state import Phase, TaskRunState

# Texts for operators in the Temporal UI.

SUMMARY_LENGTH = 120
"""Characters; Temporal cuts a summary at 400 bytes."""

SETTINGS_LENGTH = 80
"""Maximum characters of the settings of a model call."""

_NAME_LENGTH = 64
"""Maximum characters of the name of a model, or of a tool, which a model may have invented."""

REASON_LENGTH = 2_000
"""Maximum characters of the reason for a task's end in the details."""

_VALUES = (QuestionKind.SELECTION, QuestionKind.DATA)
"""Kinds whose possible values are shown to operators."""


def model_summary(state: TaskRunState, model: str | None, settings: ModelSettings) -> str:
    """Return a line such as `iteration 3 · deepseek/deepseek-v4-pro · effort high · 12 messages`."""
    count = len(state.transcript)
    parts = [
        f"iteration {state.iteration}",
        state.last_call and "last call",
        shorten(model or "default model", _NAME_LENGTH),
        shorten(settings.summary(), SETTINGS_LENGTH),
        f"{count} message{'s' if count > 1 else ''}",
    ]
    return " · ".join(filter(None, parts))


def tool_summary(call: ToolCall, *, asks: bool = False, answers: Sequence[Answer] = ()) -> str:
    """Return a line for a tool call, such as `tool search {"q": "…"}`.

    A call with questions is repeated with the answer: `check: refund …`, then `approved: refund …`.
    """
    word = _answered(answers[-1]) if answers else "check:" if asks else "tool"
    return shorten(f"{word} {call.name} {call.arguments}", SUMMARY_LENGTH)


def _answered(answer: Answer) -> str:
    if not answer.approved:
        return "rejected:"
    return "approved:" if answer.purpose == "approval" else "answered:"


def details(state: TaskRunState) -> str:
    """Return Markdown: state, open questions or the reason for the end, and usage."""
    usage = state.usage
    cost = ", cost unknown" if usage.cost is None else f", ${usage.cost:.4f}" if usage.cost else ""
    lines = [
        *_headline(state),
        "",
        f"- tokens: {usage.input_tokens} in, {usage.output_tokens} out{cost}",
        f"- messages: {len(state.transcript)} in the transcript, {len(state.inbox)} in the inbox",
    ]
    if state.agent:
        lines.append(f"- agent: `{state.agent.id}`")
    if state.artifact_ids:
        lines.append(f"- artifacts: {', '.join(f'`{artifact_id}`' for artifact_id in state.artifact_ids)}")
    if state.last_signal:
        lines.append(f"- last signal: {state.last_signal}")
    return "\n".join([*lines, *_signals(state)])


def _headline(state: TaskRunState) -> list[str]:
    """Return the state, then the pending questions, or how the task ended and the next step."""
    name, status = f"**{state.status.state.value}**", state.status
    if state.phase is not Phase.DONE:
        where = f"{state.phase.value}, iteration {state.iteration}"
        return [f"{name}: {where}", "", f"Waits for {_waits_for(state)}."]
    ended = f"{name} in iteration {state.iteration}"
    if status.message is None:
        return [ended]
    reason = str(status.metadata.get(REASON) or status.message.metadata.get(REASON) or "")
    text = _block(text_of(status.message.parts)[:REASON_LENGTH])
    steps = ["", f"Next: {_next_step(reason)}"] if status.state is TaskState.FAILED else []
    return [f"{ended}{reason and f' ({reason})'}:", *text, *steps]


def _next_step(reason: str) -> str:
    """Return an operator's next step for a failed task."""
    if reason in failures.LIMITS:
        return "raise the limit in the agent's definition and start a new task; a reset keeps the old one."
    return "mend the cause, then Reset the workflow to before the failure: it goes on from there."


def _waits_for(state: TaskRunState) -> str:
    match state.phase:
        case Phase.PREPARING:
            return "a worker"
        case Phase.MODEL:
            return "the model"
        case Phase.TOOLS:
            return ", ".join(f"`{call.name}`" for call in state.pending) or "tools"
        case Phase.WAITING:
            return "an operator" if state.waits_for_resume else "people"
        case Phase.DONE:
            return "nothing"


def _signals(state: TaskRunState) -> list[str]:
    """Return the signals that can be sent now, ready to be pasted, each with its purpose."""
    if state.waits_for_resume:
        return ["", f"{state.waits_for_resume}", "", "Signal `resume`, without input, to go on."]
    lines: list[str] = []
    for question in state.open_questions:
        heading = f"`{question.call.name}` asks ({question.kind.value}):"
        signal = approvals.approve_signal(question)
        how = f" ({expected(question)})" if question.kind in _VALUES else ""
        lines += ["", heading, *_block(question.text), "", f"Signal `approve`{how}:", *_block(signal, "json")]
    if state.pending and state.phase is not Phase.DONE:
        calls = [f"`{call.id}` ({shorten(call.name, _NAME_LENGTH)})" for call in state.pending]
        lines += ["", f"Signal `skip_call` ends a call that hangs: {', '.join(calls)}."]
        lines += _block(approvals.skip_signal(state.pending[0]), "json")
    return lines


def _block(text: str, language: str = "") -> list[str]:
    """Return a block of code, so that text of a model cannot look like a part of the page."""
    return ["", f"```{language}", text.replace("```", "'''"), "```"]


def queue_messages(state: TaskRunState, received: tuple[Message, ...] = ()) -> None:
    """Queue the interim text, and the received messages, if any, for the next call."""
    if state.interim or received:
        message = agent_message(state.interim)
        state.interim = ""
        working(state, message, received)


def working(
    state: TaskRunState,
    message: AgentMessage | None = None,
    received: tuple[Message, ...] = (),
    *,
    resumed: ResumedAfter | None = None,
) -> None:
    """Queue the working status for the next call; `resumed`: why the task goes on."""
    now = workflow.now()
    state.change_status(TaskState.WORKING, now, message=message, received=received, resumed=resumed)


async def publish(scope: TaskScope, summary: str) -> None:
    """Publish a status at once, with earlier ones that are not confirmed as published."""
    with scope.outbox.carried() as statuses:
        call = PublishInput(task=scope.ref, events=statuses)
        await workflow.execute_activity_method(PublishPort.publish, call, **publishing(summary))


def opening(ref: TaskRef, task: TaskInput) -> TaskView:
    """Return the first view of a task."""
    return TaskView(
        task_id=ref.task_id,
        context_id=ref.context_id,
        owner=ref.owner,
        agent_id=ref.agent_id,
        created_at=task.created_at,
        status=TaskRunState.begin(task.message, task.created_at).status,
        history=(task.message,),
    )


async def open_task(scope: TaskScope) -> None:
    """Make a hidden task visible to clients."""
    call = PublishInput(task=scope.ref, events=(), opening=opening(scope.ref, scope.task))
    await workflow.execute_activity_method(PublishPort.publish, call, **publishing("task created"))


def agent_message(text: str) -> AgentMessage | None:
    """Return a message of the agent, with an id of its own; None for no text."""
    return AgentMessage(message_id=str(workflow.uuid4()), parts=(TextPart(text=text),)) if text else None


def enter(state: TaskRunState, phase: Phase) -> None:
    """Begin a phase, and show it in the Temporal UI."""
    state.phase = phase
    update_details(state)


def update_details(state: TaskRunState) -> None:
    """Show the state of the task in the Temporal UI."""
    workflow.set_current_details(details(state))


def index(state: TaskRunState, task_state: TaskState) -> None:
    """Index the task's state and status version, so that a stale view can be detected."""
    workflow.upsert_search_attributes(
        [names.TASK_STATE.value_set(task_state), names.TASK_VERSION.value_set(state.version)]
    )


# Results of queries, limited in size.

VIEW_BYTES = 1_500_000
"""Size limit of the `view` query, which returns the newest messages: Temporal accepts payloads up to 2 MB."""

Fitting = TypeVar("Fitting", bound=BaseModel)


def transcript_page(state: TaskRunState, start: int) -> TranscriptPage:
    """Return the messages from a position on that fit into the answer of a query, at least one."""
    start = max(0, start)
    rest = state.transcript[start:]
    page = _that_fit(rest, VIEW_BYTES) or rest[:1]
    end = start + len(page)
    following = end if end < len(state.transcript) else None
    return TranscriptPage(start=start, messages=tuple(page), next=following)


def recent_history(state: TaskRunState) -> tuple[Message, ...]:
    """Return the newest messages of the history that fit into a view besides its status and answer."""
    room = VIEW_BYTES - _size(state.status) - sum(_size(artifact) for artifact in state.artifacts)
    return tuple(reversed(_that_fit(reversed(state.history), room)))


def _that_fit(messages: Iterable[Fitting], room: int) -> list[Fitting]:
    """Return as many of the first messages as fit into a number of bytes."""
    fitting: list[Fitting] = []
    for message in messages:
        room -= _size(message)
        if room < 0:
            break
        fitting.append(message)
    return fitting


def _size(part: BaseModel) -> int:
    return len(part.model_dump_json().encode())


# Spans of workflow code (OpenTelemetry semantic conventions for generative AI); a replay adds none.
#
# The tracer of a worker (`everloop.runtime.telemetry.traces`) takes ids from the workflow's own random
# numbers and time from its history, and sends a span when it ends for the first time. Without one these
# functions do nothing.

_tracer = trace.get_tracer("everloop.workflows")


def name_run(task: TaskRef, agent: AgentSpec) -> None:
    """Set the agent's name on the span of this run."""
    span = trace.get_current_span()
    span.update_name(f"invoke_agent {agent.id}")
    span.set_attributes({"gen_ai.operation.name": "invoke_agent", **task.span_attributes})
    if agent.version:
        span.set_attribute("gen_ai.agent.version", agent.version)


@contextmanager
def tool_call_span(task: TaskRef, call: ToolCall) -> Generator[None]:
    """Trace a call to another agent: the spans of that agent are below it."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.id,
        **task.span_attributes,
    }
    with _tracer.start_as_current_span(f"execute_tool {call.name}", attributes=attributes):
        yield

"""What an operator reads in the Temporal UI."""

from workflows import approvals
from workflows.contract.messages import ToolCall
from workflows.contract.questions import QuestionKind, expected
from workflows.state import Phase, TaskRunState

SUMMARY_LENGTH = 120
"""Characters; Temporal cuts a summary at 400 bytes."""

_VALUES = (QuestionKind.SELECTION, QuestionKind.DATA)
"""Kinds of which an operator has to know what values there are."""


def model_summary(state: TaskRunState) -> str:
    """One line for a model call, such as `iteration 3 · model · 12 messages`."""
    count = len(state.transcript)
    return f"iteration {state.iteration} · model · {count} message{'s' if count > 1 else ''}"


def tool_summary(call: ToolCall) -> str:
    """One line for a tool call, such as `tool search {"q": "…"}`."""
    return shorten(f"tool {call.name} {call.arguments}", SUMMARY_LENGTH)


def details(state: TaskRunState) -> str:
    """Markdown: phase, iteration, tokens, and what is waited for."""
    usage = state.usage
    cost = f", ${usage.cost:.4f}" if usage.cost else ""
    lines = [
        f"**{state.status.state.value}**: {state.phase.value}, iteration {state.iteration}",
        f"- waits for: {_waits_for(state)}",
        f"- tokens: {usage.input_tokens} in, {usage.output_tokens} out{cost}",
        f"- messages: {len(state.transcript)} in the transcript, {len(state.inbox)} in the inbox",
    ]
    if state.agent:
        lines.append(f"- agent: `{state.agent.id}`")
    if state.artifact_ids:
        lines.append(f"- artifacts: {', '.join(f'`{artifact_id}`' for artifact_id in state.artifact_ids)}")
    if state.refused_signal:
        lines.append(f"- the last signal was refused: {state.refused_signal}")
    return "\n".join([*lines, *_signals(state)])


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
    """Return what is asked, each with the signal that answers it, ready to be pasted."""
    if state.waits_for_resume:
        return ["", f"{state.waits_for_resume}", "", "Signal `resume`, without input, to go on."]
    lines: list[str] = []
    for question in state.open_questions:
        asked = f"`{question.call.name}` asks ({question.kind.value}):"
        signal = approvals.approve_signal(question)
        how = f" ({expected(question)})" if question.kind in _VALUES else ""
        lines += ["", asked, *_block(question.text), "", f"Signal `approve`{how}:", *_block(signal, "json")]
    return lines


def _block(text: str, language: str = "") -> list[str]:
    """Return a block of code: a text that a model wrote shall not look like a part of the page."""
    return ["", f"```{language}", text.replace("```", "'''"), "```"]


def shorten(text: str, length: int) -> str:
    """Return the text on one line, cut with an ellipsis to at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"

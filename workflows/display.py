"""What an operator reads in the Temporal UI."""

from workflows.contract.messages import ToolCall
from workflows.state import Phase, TaskRunState

SUMMARY_LENGTH = 120
"""Characters; Temporal cuts a summary at 400 bytes."""


def model_summary(state: TaskRunState) -> str:
    """One line for a model call, such as `iteration 3 · model · 12 messages`."""
    count = len(state.transcript)
    return f"iteration {state.iteration} · model · {count} message{'s' if count > 1 else ''}"


def tool_summary(call: ToolCall) -> str:
    """One line for a tool call, such as `tool search {"q": "…"}`."""
    return shorten(f"tool {call.name} {call.arguments}", SUMMARY_LENGTH)


def details(state: TaskRunState) -> str:
    """Markdown: phase, iteration, tokens, and what is waited for."""
    waits = {
        Phase.PREPARING: "a worker",
        Phase.MODEL: "the model",
        Phase.TOOLS: ", ".join(f"`{call.name}`" for call in state.pending) or "tools",
        Phase.DONE: "nothing",
    }[state.phase]
    lines = [
        f"**{state.status.state.value}**: {state.phase.value}, iteration {state.iteration}",
        f"- waits for: {waits}",
        f"- tokens: {state.usage.input_tokens} in, {state.usage.output_tokens} out",
        f"- messages: {len(state.transcript)} in the transcript, {len(state.inbox)} in the inbox",
    ]
    return "\n".join(lines)


def shorten(text: str, length: int) -> str:
    """Return the text on one line, cut with an ellipsis to at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"

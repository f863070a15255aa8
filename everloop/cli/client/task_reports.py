"""Output of `everloop tasks show`."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from everloop.cli.client.question_answering import answering_command
from everloop.cli.client.screen import clean, described, one_line, usage_line
from everloop.cli.output import NOTHING, cut, local_time, print_fields, print_json, print_line, print_table
from everloop.runtime.printable import printable

if TYPE_CHECKING:
    from pydantic import JsonValue

    from everloop.client import ModelUsage, Result, ToolCall, TranscriptMessage, UsageReport

LONGEST = 200


def print_task(task: "Result", usage: "UsageReport | None", profile: str) -> None:
    """Print the current state of a task."""
    print_fields(
        {
            "task": task.id,
            "state": task.state,
            "context": task.context_id,
            "updated": local_time(task.updated_at),
            "used": usage_line(task),
            "error": task.error or "",
            "reason": task.reason,
        }
    )
    for question in task.questions:
        _section(f"It asks: {question.text}")
        print_line(printable(f"  {answering_command(question, task.id, profile)}"))
    if task.tool_calls:
        _section("Tool calls")
        print_table(("TOOL", "OUTCOME", "RESULT"), [_call_row(call) for call in task.tool_calls])
    if usage and usage.models:
        _section("Models")
        print_table(
            ("MODEL", "CALLS", "TOKENS IN", "OUT", "COST"),
            [_model_row(each) for each in usage.models],
        )
    if task.artifacts:
        _section("Artifacts")
        for one in task.artifacts:
            print_line(printable(f"  {one.id}  {described(one)}"))
    if task.text:
        _section("Answer")
        _print_text(task.text)
    if task.data is not None:
        _section("Data")
        print_json(task.data)


def _section(title: str) -> None:
    print_line(f"\n{printable(title, lines=True)}")


def _print_text(text: str) -> None:
    """Print a text; on a terminal without control characters."""
    print_line(clean(text) if sys.stdout.isatty() else text)


def _call_row(call: "ToolCall") -> tuple[str, str, str]:
    result = one_line(call.result or "")
    return call.name, call.outcome or "runs", cut(result, LONGEST) or NOTHING


def _model_row(used: "ModelUsage") -> tuple[str, ...]:
    cost = NOTHING if used.cost is None else f"${used.cost:.4f}"
    return used.model, str(used.calls), f"{used.input_tokens:,}", f"{used.output_tokens:,}", cost


def print_transcript(messages: "Sequence[TranscriptMessage]") -> None:
    """Print the transcript, as the model saw it."""
    for message in messages:
        print_line(
            printable(f"{message.role} {message.name}".rstrip() + f"  {local_time(message.at)}".rstrip())
        )
        extra = message.model_extra or {}
        for call in cast("Sequence[dict[str, JsonValue]]", extra.get("toolCalls") or []):
            print_line(f"  → {one_line(str(call.get('name')))} {one_line(str(call.get('arguments')))}")
        for line in (_said(message.text, message.result, extra)).splitlines():
            _print_text(f"  {line}")
        print_line("")


def _said(text: str, result: str, extra: "dict[str, JsonValue]") -> str:
    """Return the text of a message of a transcript; messages of the user are A2A's."""
    if isinstance(message := extra.get("message"), dict):
        parts = cast("Sequence[dict[str, JsonValue]]", message.get("parts") or [])
        return "\n".join(str(part.get("text") or part.get("filename") or json.dumps(part)) for part in parts)
    return text or result

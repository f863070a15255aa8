"""What the person who watches the demo sees."""

import contextlib
import json

from rich.console import Console

from everloop.client import (
    Event,
    OtherEvent,
    StatusChanged,
    TaskState,
    TextDelta,
    ToolCallEnded,
    ToolCallStarted,
)

LONGEST_LINE = 100


class Screen:
    """Prints events; on a terminal with a little colour."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._draft = ""
        self._is_open = False
        self._is_interrupted = False

    def title(self, text: str) -> None:
        self._line(f"\n━━ {text}", "bold")

    def say(self, text: str) -> None:
        self._line(text, "")

    def supervisor(self, text: str) -> None:
        self._line(f"   [supervisor] {text}", "dim")

    def alarm(self, text: str) -> None:
        self._line(f"\n✗✗ {text}\n", "bold red")

    def show(self, event: Event) -> None:
        """Print one event; kinds that say nothing to a person are left out."""
        match event:
            case TextDelta():
                self._text(event)
            case StatusChanged():
                self._status(event)
            case ToolCallStarted():
                arguments = json.dumps(event.arguments, ensure_ascii=False)
                self._line(_cut(f"→ {event.name}({arguments})"), "cyan")
            case ToolCallEnded(call=call):
                self._line(_cut(f"← {call.name} {call.outcome}: {call.result!r}"), "green")
            case OtherEvent(kind="retry", data={"reason": reason}):
                self._line(f"↻ model call: {reason}", "yellow")
            case OtherEvent(kind="resumed", data={"attempt": int(attempt), "call_id": call_id}):
                what = "the tool runs" if call_id else "the model is asked"
                self._line(f"↻ {what} again, attempt {attempt}", "yellow")
            case OtherEvent(kind="iteration", data={"iteration": number, "model": model}):
                self._line(f"· iteration {number}, model {model}", "dim")
            case _:
                pass

    def _text(self, event: TextDelta) -> None:
        """Write on; text that replaces a draft starts a new line, an empty one only ends it."""
        if event.starts_over:
            self._end_line()
            self._draft = "" if event.text else self._draft
        elif self._is_interrupted:
            self._write(self._draft, "")
        self._write(event.text, "")
        self._draft += event.text
        self._is_interrupted = False

    def _status(self, event: StatusChanged) -> None:
        """Print the status; a remark of the model was already seen while it was written."""
        if event.text and event.text.strip() != self._draft.strip():
            self._line(f"[{event.state}] {event.text}", "dim")
        elif not event.text and event.state is not TaskState.SUBMITTED:
            self._line(f"[{event.state}]", "dim")
        if event.text or event.state is not TaskState.WORKING:
            self._draft = ""

    def _line(self, text: str, style: str) -> None:
        self._end_line()
        self._write(f"{text}\n", style)
        self._is_interrupted = True

    def _end_line(self) -> None:
        if self._is_open:
            self._write("\n", "")

    def _write(self, text: str, style: str) -> None:
        if text:
            with contextlib.suppress(OSError):  # a console that went away must not keep processes alive
                self._console.print(text, style=style, end="", markup=False)
            self._is_open = not text.endswith("\n")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"

"""What the person who watches the demo sees."""

import contextlib

from rich.console import Console

from everloop.deploy.demo.conversation import Arrival, StatusArrived, TextArrived
from everloop.workflows.contract.events import (
    IterationStarted,
    Resumed,
    RetryScheduled,
    ToolCalled,
    ToolCompleted,
)

LONGEST_LINE = 100


class Screen:
    """Prints arrivals; on a terminal with a little colour."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._draft = ""
        self._is_open = False

    def title(self, text: str) -> None:
        self._line(f"\n━━ {text}", "bold")

    def say(self, text: str) -> None:
        self._line(text, "")

    def supervisor(self, text: str) -> None:
        self._line(f"   [supervisor] {text}", "dim")

    def alarm(self, text: str) -> None:
        self._line(f"\n✗✗ {text}\n", "bold red")

    def show(self, arrival: Arrival) -> None:
        """Print one arrival; kinds that say nothing to a person are left out."""
        match arrival:
            case TextArrived():
                self._text(arrival)
            case StatusArrived():
                self._status(arrival)
            case ToolCalled():
                self._line(_cut(f"→ {arrival.name}({arrival.arguments})"), "cyan")
            case ToolCompleted():
                self._line(_cut(f"← {arrival.name} {arrival.outcome}: {arrival.result!r}"), "green")
            case RetryScheduled():
                self._line(f"↻ model call: {arrival.reason}", "yellow")
            case Resumed(attempt=int(attempt), call_id=call_id):
                what = "the tool runs" if call_id else "the model is asked"
                self._line(f"↻ {what} again, attempt {attempt}", "yellow")
                self._draft = ""
            case IterationStarted():
                self._line(f"· iteration {arrival.iteration}, model {arrival.model}", "dim")
            case _:
                pass

    def _text(self, arrival: TextArrived) -> None:
        """Write on; text that replaces a draft starts a new line, an empty one only ends it.

        The answer comes whole once more at its end; what was streamed of it stands there already.
        """
        if not arrival.append:
            self._end_line()
            if arrival.text == self._draft:
                return
            if arrival.text:
                self._draft = ""
        self._write(arrival.text, "")
        self._draft += arrival.text

    def _status(self, arrival: StatusArrived) -> None:
        """Print the status; a remark of the model was already seen while it was written."""
        if arrival.message and arrival.message.strip() != self._draft.strip():
            self._line(f"[{arrival.state}] {arrival.message}", "dim")
        elif not arrival.message:
            self._line(f"[{arrival.state}]", "dim")
        self._draft = ""

    def _line(self, text: str, style: str) -> None:
        self._end_line()
        self._write(f"{text}\n", style)

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

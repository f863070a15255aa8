"""Terminal view of a task: the answer as it streams, calls while they run.

The answer goes to stdout, all else to stderr. If stdout is not a terminal, it gets only the complete
answer: a draft may be withdrawn.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from everloop.cli.output import amount, cut, styled
from everloop.client import (
    Artifact,
    ArtifactChanged,
    Event,
    OtherEvent,
    Progress,
    Reconnecting,
    Result,
    StatusChanged,
    TaskState,
    TextDelta,
    Thought,
    ToolCallEnded,
    ToolCallStarted,
)
from everloop.runtime.printable import printable

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_A_SECOND = 8
MOST_RUNNING = 8
"""Limit of running calls that are shown; further ones are counted."""

LONGEST_ARGUMENT = 200

_KEY = tuple[str, ...]


@dataclass
class _Running:
    """A running call."""

    name: str
    since: float = field(default_factory=time.monotonic)
    progress: str = ""


class Screen:
    """View of a task. `shows_text`: includes the streaming answer (False: for --json)."""

    def __init__(self, *, shows_text: bool = True) -> None:
        self._aside = Console(stderr=True, highlight=False, soft_wrap=True)
        self._is_live = self._aside.is_terminal and not self._aside.is_dumb_terminal
        self._streams_text = shows_text and sys.stdout.isatty()
        self._text = _Paragraph(lambda: self._aside.width)
        self._draft = self._interim = ""
        self._is_interrupted = False
        """Whether the writer of the draft has been replaced by another process, which continues it."""
        self._running: dict[_KEY, _Running] = {}
        self._doing = ""
        self._live: Live | None = None
        self._began = time.monotonic()
        self._complete: set[str] = set()
        self._ended_calls: set[_KEY] = set()
        self._was_lost = False

    def show(self, event: Event) -> None:
        """Show an event, if it is meant for people."""
        if self._was_lost and not isinstance(event, Reconnecting):
            self._was_lost = False
            self.say("connected again", "yellow")
        if event.path and isinstance(event, TextDelta | Thought):
            return  # texts of sub-agents are not part of the answer
        shown: dict[type[Event], Callable[[Any], None]] = {
            TextDelta: self._write,
            Thought: self._thought,
            StatusChanged: self._status,
            ToolCallStarted: self._started,
            ToolCallEnded: self._ended,
            Progress: self._progress,
            ArtifactChanged: self._artifact,
            Reconnecting: self._lost,
            OtherEvent: self._other,
        }
        if show := shown.get(type(event)):
            show(event)

    def say(self, line: str, style: str = "", *, indent: int = 0, breaks: bool = True) -> None:
        """Write a line for people, above the live part; `breaks`: wrap long lines between words."""
        self._text.end()
        room = max(self._aside.width - indent, 1) if breaks and self._aside.is_terminal else sys.maxsize
        for part in line.split("\n"):
            text = styled(part, style)
            for piece in text.wrap(self._aside, room) if cell_len(text.plain) > room else [text]:
                self._aside.print(styled(" " * indent), piece, sep="")

    def pause(self) -> None:
        """Leave the terminal to another user of it, such as a prompt."""
        self._text.end()
        self._stop_live()

    def end(self, result: Result, *, shows_text: bool = True, is_brief: bool = False) -> None:
        """Show the result: the answer if it was not streamed, the state, the usage, and ids."""
        self.pause()
        if shows_text:
            self._show_answer(result)
        self._summary(result)
        names = {} if is_brief else {"task": result.id, "context": result.context_id}
        for name, value in names.items():
            if value:
                self.say(f"{name} {value}", "dim", indent=2, breaks=False)

    def _show_answer(self, result: Result) -> None:
        if not sys.stdout.isatty() and result.text:
            sys.stdout.write(result.text if result.text.endswith("\n") else f"{result.text}\n")
        elif sys.stdout.isatty() and result.text and self._draft.strip() != result.text.strip():
            self._text.write(f"{result.text}\n")
            self._text.end()
        if result.data is not None and not result.text:
            sys.stdout.write(f"{json.dumps(result.data, indent=2, ensure_ascii=False)}\n")
        sys.stdout.flush()

    def _summary(self, result: Result) -> None:
        mark, style = _ENDS.get(result.state, ("·", "yellow"))
        said = [f"{mark} {result.state}", *([result.error] if result.error else [])]
        self.say(": ".join(said), style)
        facts = [usage_line(result)] if result.usage else []
        if calls := sum(len(key) == 1 for key in self._ended_calls):
            facts.insert(0, f"{calls} tool call{'s' if calls > 1 else ''}")
        facts.append(f"{time.monotonic() - self._began:.1f} s")
        self.say(" · ".join(filter(None, facts)), "dim", indent=2)

    # The answer.

    def _write(self, event: TextDelta) -> None:
        """Append to the draft; an interrupted draft is repeated in full, below later lines."""
        text = event.text
        if event.starts_over:
            self._text.end()
            self._interim, self._draft = self._draft.strip(), ""
        elif self._is_interrupted:
            text = self._draft + text
        self._draft += event.text
        self._is_interrupted = False
        self._doing = ""
        if self._streams_text and text:
            self._stop_live()
            self._text.write(text)

    def _thought(self, event: Thought) -> None:
        self._doing = "" if event.is_last else "thinking"

    def _status(self, event: StatusChanged) -> None:
        """Show an interim message of the model, unless its draft was visible."""
        if event.state is TaskState.WORKING:
            if event.text:
                if event.text.strip() not in {self._interim, self._draft.strip()}:
                    self.say(event.text)
                self._interim = self._draft = ""
            self._go_live()

    # Calls.

    def _started(self, event: ToolCallStarted) -> None:
        call = _call(event.name, event.arguments)
        self._running[(*event.path, event.call_id)] = _Running(call)
        if not self._is_live:
            self.say(f"→ {one_line(call)}", indent=2 * len(event.path))
        self._text.end()
        self._go_live()

    def _ended(self, event: ToolCallEnded) -> None:
        key = (*event.path, event.call_id)
        if key in self._ended_calls:
            return  # each stream of a task, such as that of an answer, begins with the calls so far
        self._ended_calls.add(key)
        running = self._running.pop(key, None)
        call, indent = event.call, 2 * len(event.path)
        name = running.name if running else _call(call.name, call.arguments)
        took = f"  {time.monotonic() - running.since:.1f} s" if running and self._is_live else ""
        came, style = one_line(call.result or ""), "red" if call.is_error else "green"
        mark = "✗" if call.is_error else "✓"
        room = (self._aside.width if self._is_live else LONGEST_ARGUMENT) - indent
        if len(f"{mark} {name} → {came}{took}") <= room:
            self.say(f"{mark} {name} → {came}{took}", style, indent=indent)
        else:
            self.say(f"{mark} {cut(name, room - 2 - len(took))}{took}", style, indent=indent)
            # The reason of a failure gets more lines than a result.
            self.say(came if call.is_error else cut(came, room - 4), "dim", indent=indent + 4)
        self._go_live()

    def _progress(self, event: Progress) -> None:
        if running := self._running.get((*event.path, event.call_id)):
            running.progress = event.text
        if not event.call_id or not self._is_live:
            self.say(f"· {one_line(event.text)}", "dim", indent=2 * len(event.path))

    def _artifact(self, event: ArtifactChanged) -> None:
        artifact = event.artifact
        if artifact.is_complete and artifact.id not in self._complete:
            self._complete.add(artifact.id)
            self.say(f"▤ {described(artifact)}", "magenta")

    def _other(self, event: OtherEvent) -> None:
        what = "the tool runs" if event.data.get("call_id") else "the model is asked"
        if event.kind == "retry" and not event.data.get("call_id") and not event.path:
            return  # the status reports it, and the time
        if event.kind == "retry":
            self.say(f"↻ {what} again: {one_line(str(event.data.get('reason')))}", "yellow")
        elif event.kind == "resumed" and event.data.get("attempt"):
            self.say(f"↻ {what} again, attempt {event.data['attempt']}", "yellow")
            self._is_interrupted = not (event.data.get("call_id") or event.path)

    def _lost(self, event: Reconnecting) -> None:
        if event.attempt == 2 and not self._was_lost:  # noqa: PLR2004 -- the first one as a rule is the last
            self._was_lost = True
            self.say("↻ the connection is lost; it is tried again", "yellow")

    # Live part: the running calls, or an activity indicator.

    def _go_live(self) -> None:
        if not self._is_live or self._live:
            return
        self._text.end()
        self._live = Live(
            get_renderable=self._region,
            console=self._aside,
            transient=True,
            auto_refresh=False,  # a thread would draw between the two halves of a print
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self._draw()

    def _draw(self) -> None:
        if self._live:
            self._live.refresh()
            self._next_frame = asyncio.get_running_loop().call_later(1 / FRAMES_A_SECOND, self._draw)

    def _stop_live(self) -> None:
        if self._live:
            self._next_frame.cancel()
            self._live.stop()
            self._live = None

    def _region(self) -> Text:
        now = time.monotonic()
        frame = FRAMES[int(now * FRAMES_A_SECOND) % len(FRAMES)]
        running = list(self._running.items())
        lines = [self._live_line(frame, key, one, now) for key, one in running[:MOST_RUNNING]]
        if len(running) > MOST_RUNNING:
            lines.append(f"  and {len(running) - MOST_RUNNING} more")
        if not running:
            lines = [f"{frame} {self._doing or 'working'}  {now - self._began:.0f} s"]
        return Text("\n".join(lines), "cyan", no_wrap=True, overflow="ellipsis")

    def _live_line(self, frame: str, key: _KEY, one: _Running, now: float) -> str:
        indent, tail = "  " * (len(key) - 1), f"  {now - one.since:.0f} s"
        said = f" · {one.progress}" if one.progress else ""
        room = self._aside.width - len(indent) - len(tail) - 3
        shown = cut(one.name, max(room - len(said), min(room, 16)))
        return f"{indent}{frame} {cut(one_line(shown + said), room)}{tail}"


class _Paragraph:
    """Streaming text that wraps between words. `width` returns the width of the terminal."""

    def __init__(self, width: Callable[[], int]) -> None:
        self._width = width
        self._column = 0
        self._word = ""
        """The part of the current word that is already on the screen."""

    def write(self, text: str) -> None:
        for piece in re.findall(r"\n| |[^\n ]+", clean(text)):
            if piece == "\n":
                self._break()
            elif piece == " ":
                self._word = ""
                if self._column < self._width():
                    self._put(" ")
            else:
                self._grow(piece)
        sys.stdout.flush()

    def end(self) -> None:
        """End the line, if one is open."""
        if self._column:
            self._break()
        sys.stdout.flush()

    def _grow(self, piece: str) -> None:
        if self._column + cell_len(piece) > self._width() and self._column > (begun := cell_len(self._word)):
            # Move the word to the next line, its visible part included.
            sys.stdout.write(f"\x1b[{begun}D\x1b[K" if begun else "")
            piece = self._word + piece
            self._break()
        self._word += piece
        self._put(piece)

    def _put(self, text: str) -> None:
        sys.stdout.write(text)
        self._column += cell_len(text)
        if self._column > self._width():  # the terminal has wrapped it
            self._column = self._column % self._width() or self._width()

    def _break(self) -> None:
        sys.stdout.write("\n")
        self._column, self._word = 0, ""


_ENDS = {
    TaskState.COMPLETED: ("✓", "green"),
    TaskState.FAILED: ("✗", "bold red"),
    TaskState.REJECTED: ("✗", "bold red"),
    TaskState.CANCELED: ("✗", "yellow"),
    TaskState.INPUT_REQUIRED: ("?", "yellow"),
    TaskState.AUTH_REQUIRED: ("?", "yellow"),
}


_CONTROLS = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\N{REPLACEMENT CHARACTER}"),
    ord("\t"): " " * 4,
    ord("\n"): "\n",
}


def clean(text: str) -> str:
    """Return a multi-line text without terminal control characters."""
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def described(artifact: Artifact) -> str:
    """Return a description of an artifact, on one line."""
    name = artifact.name or artifact.id
    parts = [part for part in artifact.parts if part.filename or part.raw is not None or part.url]
    sizes = ("" if part.raw is None else amount(len(part.raw)) for part in parts)
    facts = ((part.filename, part.media_type, size) for part, size in zip(parts, sizes, strict=True))
    files = [" ".join(filter(None, each)) for each in facts]
    failed = " (left unfinished)" if artifact.is_failed else ""
    return f"{one_line(name)}{failed}" + (f": {', '.join(files)}" if files else "")


def usage_line(result: Result) -> str:
    """Return the usage of a task, on one line."""
    usage = result.usage
    if not usage:
        return ""
    tokens = usage.input_tokens or usage.output_tokens
    words = [f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"] if tokens else []
    if usage.cost:
        words.append(f"${usage.cost:.4f}" if usage.cost < 1 else f"${usage.cost:.2f}")
    return " · ".join(words)


def _call(name: str, arguments: object) -> str:
    if arguments is None:  # a client that begins to watch during a call lacks them
        return one_line(name)
    if isinstance(arguments, dict):
        given = ", ".join(
            f"{key}={cut(json.dumps(value, ensure_ascii=False), LONGEST_ARGUMENT)}"
            for key, value in arguments.items()  # pyright: ignore[reportUnknownVariableType] -- any JSON
        )
    else:
        given = str(arguments)
    return one_line(f"{name}({given})")


def one_line(text: str) -> str:
    """Return a text on one line, without terminal control characters."""
    return printable(" ".join(text.split()))

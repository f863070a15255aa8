"""Prompts at the terminal: a choice, a text, a secret.

Accidental answers are prevented: keys typed before the question appeared are dropped, pasted text
chooses nothing, and a single key does not decide.

Ctrl-C in each of them raises `PressedError`, Ctrl-D `LeftError`: the question stays open.
"""

import asyncio
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, create_app_session
from prompt_toolkit.completion import Completer
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output.defaults import create_output
from prompt_toolkit.styles import Style
from prompt_toolkit.validation import Validator

from everloop.runtime.printable import printable
from everloop.workflows.contract.questions import begins_yes_or_no, read_yes_or_no

T = TypeVar("T")

STYLE = Style.from_dict(
    {"chosen": "bold", "mark": "bold ansicyan", "hint": "ansibrightblack", "problem": "ansiyellow"}
)

QUIET = 0.5
"""Seconds without a key before a question accepts an answer: earlier keys were meant for another purpose."""

PASTED = 0.05
"""Seconds between keys; an Enter that comes sooner was pasted, or pressed before the key was visible."""

_KEYS = [key.value for key in Keys if not key.value.startswith("<")]
"""Keys that produce no text."""

UNCHOSEN = object()
"""Marks the absence of a chosen option."""

NOT_EMPTY = Validator.from_callable(
    lambda text: bool(text.strip()),
    "write something, or press Ctrl-D to leave the question open",
    move_cursor_to_end=True,
)


class LeftError(Exception):
    """The user does not want to answer now."""


class PressedError(Exception):
    """Ctrl-C: a KeyboardInterrupt in a task would end the event loop."""


@contextmanager
def at_terminal() -> Generator[None]:
    """Show the prompts of this block on the terminal, even if stdout is redirected."""
    if sys.stdout.isatty():
        yield  # the present output, perhaps a prompt with lines printed above it
        return
    with create_app_session(output=create_output(always_prefer_tty=True)):
        yield


def is_interactive() -> bool:
    """Return whether the user can see a question and answer it."""
    return sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())


async def settle() -> None:
    """Drop typed keys until no key has come for half a second.

    So input for another purpose, or from before the question, does not answer it.
    """
    loop, keys = asyncio.get_running_loop(), KeyBindings()
    _add_ways_out(keys)
    waiting = Application[None](layout=Layout(Window(height=0)), key_bindings=keys, erase_when_done=True)
    done = loop.call_later(QUIET, waiting.exit)

    def wait_longer(_: object) -> None:
        nonlocal done
        done.cancel()
        done = loop.call_later(QUIET, waiting.exit)

    waiting.key_processor.before_key_press += wait_longer
    with at_terminal():
        try:
            await waiting.run_async(handle_sigint=False)
        finally:
            done.cancel()


def _add_ways_out(keys: KeyBindings) -> None:
    _on(keys, "c-c", lambda event: event.app.exit(exception=PressedError()))
    _on(keys, "c-d", lambda event: event.app.exit(exception=LeftError()))


def _on(keys: KeyBindings, key: str, handler: Callable[[KeyPressEvent], None]) -> None:
    keys.add(key)(handler)


async def choose(options: Sequence[tuple[T, str]], *, title: str = "", default: object = UNCHOSEN) -> T:
    """Return the option that the user selects by number, words or arrow keys, and Enter.

    The words for yes and no that agents accept (`read_yes_or_no`) choose an option that is True or
    False. The prompt is erased afterwards.
    """
    with at_terminal():
        return options[await _Choice(title, options, default).ask()][0]


class _Choice:
    """A choice of one of several lines. The typed text is shown, and the line that Enter would select."""

    def __init__(self, title: str, options: Sequence[tuple[object, str]], default: object) -> None:
        self._title = printable(title)
        self._labels = [printable(label) for _, label in options]
        has_digits = any(label.strip().isdigit() for label in self._labels)
        self._numbers = [] if has_digits else [str(place + 1) for place in range(len(options))]
        values = [value for value, _ in options]
        self._verdicts = {place: value for place, value in enumerate(values) if isinstance(value, bool)}
        self._default = values.index(default) if default in values else None
        self._place = self._default
        """Selected by arrow keys."""
        self._typed = ""
        self._problem = ""
        self._changed_at = 0.0

    async def ask(self) -> int:
        text = FormattedTextControl(self._shown, focusable=True, show_cursor=False)
        window = Window(text, wrap_lines=True, dont_extend_height=True)
        application = Application[int](
            layout=Layout(window), key_bindings=self._keys(), style=STYLE, erase_when_done=True
        )
        return await application.run_async(handle_sigint=False)

    @property
    def _chosen(self) -> int | None:
        """Line that Enter selects."""
        return self._read(self._typed) if self._typed else self._place

    def _read(self, typed: str) -> int | None:
        """Return the line that a word selects."""
        said = typed.strip().casefold()
        for words in (self._numbers, [label.casefold() for label in self._labels]):
            if said in words:
                return words.index(said)
        verdict = read_yes_or_no(typed)
        return next((place for place, value in self._verdicts.items() if value is verdict), None)

    def _begins(self, typed: str) -> bool:
        """Return whether the typed text is a prefix of a selection."""
        said = typed.strip().casefold()
        words = [*self._numbers, *(label.casefold() for label in self._labels)]
        return any(word.startswith(said) for word in words) or (
            bool(self._verdicts) and begins_yes_or_no(typed)
        )

    def _shown(self) -> FormattedText:
        fragments: list[tuple[str, str]] = [("class:mark", f"{self._title}\n")] if self._title else []
        for place, label in enumerate(self._labels):
            style, mark = ("class:chosen", ">") if place == self._chosen else ("", " ")
            number = f"{self._numbers[place]}. " if self._numbers else ""
            fragments.append((style, f"{mark} {number}{label}\n"))
        style, hint = ("class:problem", self._problem) if self._problem else ("class:hint", self._hint)
        return FormattedText([*fragments, (style, f"{hint} "), ("class:chosen", printable(self._typed))])

    @property
    def _hint(self) -> str:
        words = "yes, no" if len(self._verdicts) > 1 else "the words"
        return f"{words}{', the number' if self._numbers else ''} or arrow keys; then Enter:"

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        handlers: dict[str, Callable[[KeyPressEvent], None]] = {
            **dict.fromkeys(_KEYS, lambda event: event.app.output.bell()),
            "<any>": self._type,
            **dict.fromkeys(("up", "s-tab"), lambda _: self._move(-1)),
            **dict.fromkeys(("down", "c-i"), lambda _: self._move(1)),
            "c-h": lambda _: self._change(self._typed[:-1]),
            "c-u": lambda _: self._change(""),
            **dict.fromkeys(("c-m", "c-j"), self._take),
        }
        for key, handler in handlers.items():
            _on(keys, key, handler)
        _on(keys, Keys.BracketedPaste, lambda event: self._refuse(event, "what is pasted chooses nothing"))
        _add_ways_out(keys)
        return keys

    def _type(self, event: KeyPressEvent) -> None:
        self._change(self._typed + event.data)
        if not self._begins(self._typed):
            event.app.output.bell()

    def _move(self, by: int) -> None:
        start = self._chosen
        if start is None:
            start = -1 if by > 0 else 0
        self._change("")
        self._place = (start + by) % len(self._labels)

    def _change(self, typed: str) -> None:
        """Replace the selection by arrow keys with the typed text."""
        self._typed, self._place, self._problem = typed, self._default, ""
        self._changed_at = asyncio.get_running_loop().time()

    def _take(self, event: KeyPressEvent) -> None:
        if asyncio.get_running_loop().time() - self._changed_at < PASTED:
            self._refuse(event, "that came too fast to be typed: type it again")
        elif self._chosen is None:
            self._refuse(event, f"nothing is chosen yet. {self._hint[0].upper()}{self._hint[1:]}")
        else:
            event.app.exit(result=self._chosen)

    def _refuse(self, event: KeyPressEvent, problem: str) -> None:
        event.app.output.bell()
        self._change("")
        self._problem = problem


async def ask_text(  # noqa: PLR0913 -- all have names and defaults
    mark: str,
    *,
    validator: Validator | None = None,
    is_secret: bool = False,
    hint: str = "",
    lines: bool = False,
    session: PromptSession[str] | None = None,
) -> str:
    """Return a text from the user; `lines`: multi-line, ended by Enter, with Alt-Enter for a new line.

    `session` is that of a conversation, which remembers typed texts.
    """
    session = session or PromptSession[str](style=STYLE, interrupt_exception=PressedError)
    try:
        with at_terminal():
            return await session.prompt_async(
                FormattedText([("class:mark", printable(mark))]),
                is_password=is_secret,
                validator=validator,
                validate_while_typing=False,
                placeholder=FormattedText([("class:hint", printable(hint))]),
                multiline=lines,
                key_bindings=_new_line() if lines else None,
                prompt_continuation="  ",
                handle_sigint=False,
            )
    except EOFError:
        raise LeftError from None


def _new_line() -> KeyBindings:
    """Return the key bindings of a multi-line text: Enter ends it, Alt-Enter inserts a line break."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def conversation(history: Path, completer: Completer) -> PromptSession[str]:
    """Return the prompt for messages: with persistent history, and completion."""
    return PromptSession[str](
        history=_private_history(history),
        completer=completer,
        complete_while_typing=True,
        enable_history_search=True,
        style=STYLE,
        interrupt_exception=PressedError,
    )


def _private_history(file: Path) -> FileHistory:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        file.chmod(0o600)
    return FileHistory(str(file))

"""What asks somebody at the terminal: a choice by arrow keys, a text, a secret.

Ctrl-C in each of them raises `PressedError`, Ctrl-D `LeftError`: the question stays as it is.
"""

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
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output.defaults import create_output
from prompt_toolkit.styles import Style
from prompt_toolkit.validation import Validator

T = TypeVar("T")

STYLE = Style.from_dict({"chosen": "bold", "mark": "bold ansicyan", "hint": "ansibrightblack"})

LAST_NUMBER = 9

FIRST = object()
"""No option is chosen yet but the first one."""

NOT_EMPTY = Validator.from_callable(
    lambda text: bool(text.strip()),
    "write something, or press Ctrl-D to leave the question open",
    move_cursor_to_end=True,
)


class LeftError(Exception):
    """Somebody does not want to answer now."""


class PressedError(Exception):
    """Ctrl-C: a KeyboardInterrupt in a task would end the loop."""


@contextmanager
def at_terminal() -> Generator[None]:
    """Let prompts of this block be shown on the terminal, also where stdout goes elsewhere."""
    with create_app_session(output=create_output(always_prefer_tty=True)):
        yield


def is_interactive() -> bool:
    """Whether somebody can be asked: they have to see the question, too."""
    return sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())


async def choose(options: Sequence[tuple[T, str]], *, title: str = "", default: object = FIRST) -> T:
    """Return which of the options somebody takes: by arrow keys and Enter, or by its number.

    Nothing of it stays on the screen.
    """
    with at_terminal():
        place = next((place for place, (value, _) in enumerate(options) if value == default), 0)
        chosen = await _Choice(title, [label for _, label in options], place).ask()
    return options[chosen][0]


class _Choice:
    """One of several lines."""

    def __init__(self, title: str, labels: Sequence[str], place: int) -> None:
        self._title = title
        self._labels = labels
        self._place = place
        self._is_numbered = len(labels) <= LAST_NUMBER

    async def ask(self) -> int:
        text = FormattedTextControl(self._shown, focusable=True, show_cursor=False)
        window = Window(text, wrap_lines=True, dont_extend_height=True)
        application = Application[int](
            layout=Layout(window), key_bindings=self._keys(), style=STYLE, erase_when_done=True
        )
        return await application.run_async(handle_sigint=False)

    def _shown(self) -> FormattedText:
        fragments: list[tuple[str, str]] = [("class:mark", f"{self._title}\n")] if self._title else []
        for place, label in enumerate(self._labels):
            style, mark = ("class:chosen", ">") if place == self._place else ("", " ")
            number = f"{place + 1}. " if self._is_numbered else ""
            fragments.append((style, f"{mark} {number}{label}\n"))
        hint = "arrow keys and Enter" + (", or the number" if self._is_numbered else "")
        return FormattedText([*fragments, ("class:hint", hint)])

    def _keys(self) -> KeyBindings:
        handlers: dict[str, Callable[[KeyPressEvent], None]] = {
            **dict.fromkeys(("up", "s-tab"), lambda _: self._move(-1)),
            **dict.fromkeys(("down", "tab"), lambda _: self._move(1)),
            "enter": lambda event: event.app.exit(result=self._place),
            "c-c": lambda event: event.app.exit(exception=PressedError()),
            "c-d": lambda event: event.app.exit(exception=LeftError()),
        }
        if self._is_numbered:
            numbers = map(str, range(1, len(self._labels) + 1))
            handlers |= dict.fromkeys(numbers, lambda event: event.app.exit(result=int(event.data) - 1))
        keys = KeyBindings()
        for key, handler in handlers.items():
            keys.add(key)(handler)
        return keys

    def _move(self, by: int) -> None:
        self._place = (self._place + by) % len(self._labels)


async def ask_text(  # noqa: PLR0913 -- all have names and defaults
    mark: str,
    *,
    validator: Validator | None = None,
    is_secret: bool = False,
    hint: str = "",
    lines: bool = False,
    session: PromptSession[str] | None = None,
) -> str:
    """Return a text that somebody types; `lines`: of several, ended by Enter, a new one by Alt-Enter.

    `session` is that of a conversation, which remembers what was typed.
    """
    session = session or PromptSession[str](style=STYLE, interrupt_exception=PressedError)
    try:
        with at_terminal():
            return await session.prompt_async(
                FormattedText([("class:mark", mark)]),
                is_password=is_secret,
                validator=validator,
                validate_while_typing=False,
                placeholder=FormattedText([("class:hint", hint)]),
                multiline=lines,
                key_bindings=_new_line() if lines else None,
                prompt_continuation="  ",
                handle_sigint=False,
            )
    except EOFError:
        raise LeftError from None


def _new_line() -> KeyBindings:
    """Return keys by which Enter ends a text of several lines, and Alt-Enter goes to a new one."""
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
    """Return where somebody writes messages: with a history that outlives the process, and completion."""
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

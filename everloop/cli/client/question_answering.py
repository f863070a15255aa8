"""Questions of a task, answered in place; without a terminal, the command for the answer is shown."""

import json
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everloop.cli.client.forms import Form, Say
from everloop.cli.client.prompts import NOT_EMPTY, LeftError, ask_text, choose, settle
from everloop.cli.output import CommandError, option_of

if TYPE_CHECKING:
    from pydantic import JsonValue

    from everloop.client import Content, Question, Result

OWNER = "owner"

_MENU = 8
"""Lines below the question."""

_BLANK_LINES = re.compile(r"\n[ \t]*(\n[ \t]*)+")
"""Runs of blank lines, which would push the text above them out of view."""


@dataclass(frozen=True)
class TypedAnswer:
    """An answer to a question. The value is that of `Client.answer`."""

    question_id: str
    value: "JsonValue"
    label: str
    """Readable answer; secrets are hidden."""

    @property
    def content(self) -> "Content":
        """Content of a message with the answer."""
        from everloop.client import Part

        return self.value if isinstance(self.value, str) else Part(data=self.value)


def show_question(question: "Question", say: Say) -> None:
    """Show the question of a task, with all arguments of the call that runs after a yes.

    `say` escapes invisible characters.
    """
    first, *rest = _BLANK_LINES.sub("\n\n", question.text.strip()).split("\n")
    say("")
    say(f"? {first}", "bold yellow")
    is_prose = question.purpose == "input"  # the text of all others ends with the arguments
    for line in rest:
        say(line, indent=2, breaks=is_prose)
    if question.tool and is_prose:
        say(f"asked by {question.tool}", "dim", indent=2)
        if question.arguments:
            _show_json(question.arguments, say)


def _show_json(value: "JsonValue", say: Say) -> None:
    for line in json.dumps(value, indent=2, ensure_ascii=False).split("\n"):
        say(line, indent=2, breaks=False)


def _rows(question: "Question", width: int) -> int:
    """Return the height of the question in lines of the terminal."""
    arguments = json.dumps(question.arguments, indent=2) if question.purpose == "input" else ""
    return sum(1 + len(line) // width for line in f"{question.text}\n{arguments}".split("\n"))


async def ask_question(question: "Question", say: Say) -> TypedAnswer:
    """Ask the user at the terminal, and return the answer.

    Raises:
        LeftError: not now.
        PressedError: Ctrl-C.
    """
    width, height = shutil.get_terminal_size()
    if (rows := _rows(question, width)) > height - _MENU:
        say(f"  these are {rows} lines: scroll up, and read them from the first one", "yellow")
    await settle()
    answer = await _ASK.get(question.kind, _ask_clarification)(question, say)
    say(f"  > {answer.label}", "cyan")
    return answer


async def _ask_confirmation(question: "Question", _: Say) -> TypedAnswer:
    said = await choose([(True, "yes"), (False, "no"), ("why", "no, and say why"), ("later", "decide later")])
    if said == "later":
        raise LeftError
    note = await ask_text("  why: ") if said == "why" else ""
    return _verdict(question, approved=said is True, note=note)


async def _ask_selection(question: "Question", _: Say) -> TypedAnswer:
    options: list[tuple[str | None, str]] = [(each, each) for each in question.options]
    said = await choose([*options, (None, "answer later")])
    if said is None:
        raise LeftError
    return TypedAnswer(question.id, said, said)


async def _ask_clarification(question: "Question", _: Say) -> TypedAnswer:
    hint = "Enter sends, Alt-Enter: a new line, Ctrl-D: later"
    text = await ask_text("> ", validator=NOT_EMPTY, hint=hint, lines=True)
    return TypedAnswer(question.id, text, text)


async def _ask_secret(question: "Question", _: Say) -> TypedAnswer:
    hint = "it is not shown; Ctrl-D: later"
    secret = await ask_text("> ", validator=NOT_EMPTY, hint=hint, is_secret=True)
    return TypedAnswer(question.id, secret, "(a secret)")


async def _ask_data(question: "Question", say: Say) -> TypedAnswer:
    say("Ctrl-D: later", "dim", indent=2)
    while True:
        value = await Form(question.json_schema, say).fill()
        _show_json(value, say)
        await settle()
        said = await choose(
            [(True, "send it"), ("again", "fill it in again"), (False, "reject"), ("later", "answer later")]
        )
        if said == "later":
            raise LeftError
        if said is False:
            return _verdict(question, approved=False, note="")
        if said is True:
            return TypedAnswer(question.id, value, "sent")


_ASK = {
    "confirmation": _ask_confirmation,
    "selection": _ask_selection,
    "clarification": _ask_clarification,
    "data": _ask_data,
    "auth": _ask_secret,
}


def _verdict(question: "Question", *, approved: bool, note: str) -> TypedAnswer:
    word = "yes" if approved else "no"
    label = f"{word}, {note}" if note else word
    # Servers that name their questions are Everloops; others read plain text.
    value: JsonValue = {"approved": approved, "note": note} if question.id else label
    return TypedAnswer(question.id, value, label)


def answering_command(question: "Question", task_id: str, profile: str) -> str:
    """Return the command that answers a question."""
    about = f" --question {shlex.quote(question.id)}" if question.id else ""
    about += option_of(profile)
    task = shlex.quote(task_id)
    match question.kind:
        case "confirmation":
            return f"everloop tasks approve {task}{about}    (or with --no)"
        case "selection":
            options = "|".join(map(shlex.quote, question.options))
            return f"everloop tasks answer {task} {options}{about}"
        case "data":
            example = shlex.quote(_example(question.json_schema))
            return f"everloop tasks answer {task} --data {example}{about}"
        case "auth":
            return f"everloop tasks answer {task} -{about}    (reads the secret from stdin)"
        case _:
            return f'everloop tasks answer {task} "…"{about}'


def has_ended(task: "Result", profile: str) -> CommandError:
    """Return the error of an answer that comes too late."""
    again = f'everloop send "…" --context {shlex.quote(task.context_id)}{option_of(profile)}'
    return CommandError(
        f"task {task.id} is {task.state}, and takes no answer any more; `{again}` goes on in its conversation"
    )


def _example(schema: Mapping[str, "JsonValue"]) -> str:
    fields = schema.get("properties")
    names = list(fields) if isinstance(fields, dict) else []
    return "{" + ", ".join(f'"{name}": …' for name in names) + "}"

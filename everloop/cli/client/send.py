"""`everloop send`: one message, and what comes of it."""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from everloop.cli.client.calls import EXIT_CODES, AgentId, ContextId, Folder, ProfileName, follow_task
from everloop.cli.output import AsJson, misused, option

if TYPE_CHECKING:
    from everloop.client import Client, Event, Part, Result

Message = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="The message; `-` reads it from stdin.", show_default=False)
]
Files = Annotated[
    list[str] | None,
    option("PATH", "A file that goes with it; `-` is stdin. As often as you like.", name="--file"),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel="Talk to agents",
        epilog=f"""{EXIT_CODES}

    everloop send "Survey the files of docs and write a report" --save reports

    git diff | everloop send "Review this." --file -""",
    )(send)


def send(  # noqa: PLR0913 -- each is an option
    message: Message,
    *,
    agent: AgentId = "",
    context: ContextId = "",
    file: Files = None,
    save: Folder = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Print the id of the task, and wait for nothing.")
    ] = False,
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """Send a message to an agent, and follow what it does.

    The answer streams to stdout, all else to stderr. Questions are asked where you are; where nobody can be
    asked, the command ends, and says how to answer. Ctrl-C detaches from the task, twice cancels it.
    """
    from everloop.cli.client.files import STDIN, text_of_stdin

    if message == STDIN and STDIN in (file or []):
        raise misused("stdin is either the message or a file; give one of them in another way")
    text = text_of_stdin() if message == STDIN else message
    if not (text.strip() or file):
        raise misused("the message is empty; write what the agent is to do")
    send_message(text, file or [], context, profile, agent=agent, folder=save, detach=detach, as_json=as_json)


def send_message(  # noqa: PLR0913 -- all have names
    text: str,
    files: Sequence[str],
    context: str,
    profile: str,
    *,
    agent: str,
    folder: Path | None = None,
    detach: bool = False,
    as_json: bool,
) -> NoReturn:
    """Send a text with files, and follow what comes of it."""
    from everloop.cli.client.files import STDIN, file_part

    if files.count(STDIN) > 1:
        raise misused("stdin can be one file only; give `-` once")

    def begin(client: "Client") -> "AsyncGenerator[Event] | Awaitable[Result]":
        content: list[str | Part] = [text] if text.strip() else []
        content += map(file_part, files)
        if detach:
            return client.send(*content, context_id=context, detach=True)
        return client.stream(*content, context_id=context)

    follow_task(begin, profile, agent=agent, folder=folder, as_json=as_json)

"""`everloop send`: one message, and what comes of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everloop.cli.client.calls import EXIT_CODES, AgentId, Gateway, ProfileName, ask, exit_code
from everloop.cli.output import AsJson, misused, option, print_json, print_line, print_notice

if TYPE_CHECKING:
    from everloop.client import Part, Result

Message = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="The message; `-` reads it from stdin.", show_default=False)
]
Files = Annotated[
    list[str] | None,
    option("PATH", "A file that goes with it; `-` is stdin. As often as you like.", name="--file"),
]
ContextId = Annotated[
    str, option("ID", "The conversation that it goes on with (default: a new one).", name="--context")
]
Folder = Annotated[Path | None, option("FOLDER", "Save artifacts there, without asking.", name="--save")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel="Talk to agents",
        epilog=f"""{EXIT_CODES}

    everloop send "Survey the files of `docs` and write a report" --save reports

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
    from everloop.cli.client.files import STDIN, file_part, text_of_stdin

    if message == STDIN and STDIN in (file or []):
        raise misused("stdin is either the message or a file; give one of them in another way")
    text = text_of_stdin() if message == STDIN else message

    async def work(gateway: Gateway) -> "Result":
        content: list[str | Part] = [text] if text.strip() else []
        content += [file_part(path) for path in file or []]
        async with gateway.client() as client:
            if detach:
                return await client.send(*content, context_id=context, detach=True)
            from everloop.cli.client.files import offer_artifacts
            from everloop.cli.client.prompts import is_interactive
            from everloop.cli.client.screen import Screen
            from everloop.cli.client.turns import Turn

            screen = Screen(shows_text=not as_json)
            turn = Turn(client, screen, profile=profile, asks=not as_json)
            result = await turn.follow(client.stream(*content, context_id=context))
            screen.end(result, shows_text=not as_json)
            asks = is_interactive() and not as_json
            await offer_artifacts(client, result, screen, folder=save, asks=asks, profile=profile)
            return result

    result = ask(work, profile, agent)
    if as_json:
        from everloop.cli.client.data import plain

        print_json(plain(result))
    elif detach and result.id:
        option_ = f" --profile {profile}" if profile else ""
        print_line(result.id)
        print_notice(f"the task goes on; `everloop tasks watch {result.id}{option_}` follows it")
    elif detach:
        print_line(result.text)
    raise typer.Exit(0 if detach else exit_code(result))

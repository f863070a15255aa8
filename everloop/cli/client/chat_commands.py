"""`everloop send` and `everloop chat`: one message, and a conversation in the terminal."""

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from everloop.cli.client.gateway_calls import (
    EXIT_CODES,
    AgentId,
    ContextId,
    Folder,
    Gateway,
    ProfileName,
    ask,
    follow_task,
    refused,
)
from everloop.cli.output import AsJson, CommandError, amount, misused, option, option_of

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

    from everloop.client import Client, Event, Part, Result

Message = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="The message; `-` reads it from stdin.", show_default=False)
]
Files = Annotated[
    list[str] | None,
    option("PATH", "File to attach; `-` is stdin. May be repeated.", name="--file"),
]

HELP = """\
Enter sends; Alt-Enter, or a \\ before Enter, begins a new line.
The arrow keys bring back what you wrote.
  /file PATH    attach a file to the next message
  /agent [ID]   talk to another agent, or list them
  /retry        have the agent answer the last message again
  /new          begin a new conversation
  /help         show this
  /quit         leave; so does Ctrl-D
While the agent works, Ctrl-C detaches from the task, twice cancels it."""


commands = typer.Typer()


@commands.command(
    rich_help_panel="Talk to agents",
    epilog=f"""{EXIT_CODES}

    everloop send "Survey the files of docs and write a report" --save reports

    git diff | everloop send "Review this." --file -""",
)
def send(  # noqa: PLR0913 -- each is an option
    message: Message,
    *,
    agent: AgentId = "",
    context: ContextId = "",
    file: Files = None,
    save: Folder = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Print the id of the task, and do not follow it.")
    ] = False,
    as_json: AsJson = False,
    profile: ProfileName = "",
) -> None:
    """Send a message to an agent, and follow its task.

    The answer streams to stdout, all else to stderr. Questions are asked at the terminal; without one the
    command ends, and prints how to answer. Ctrl-C detaches from the task, twice cancels it.
    """
    from everloop.cli.client.message_files import STDIN, text_of_stdin

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
    """Send a text with files, and follow its task."""
    from everloop.cli.client.message_files import STDIN, file_part

    if files.count(STDIN) > 1:
        raise misused("stdin can be one file only; give `-` once")

    def begin(client: "Client") -> "AsyncGenerator[Event] | Awaitable[Result]":
        content: list[str | Part] = [text] if text.strip() else []
        content += map(file_part, files)
        if detach:
            return client.send(*content, context_id=context, detach=True)
        return client.stream(*content, context_id=context)

    follow_task(begin, profile, agent=agent, folder=folder, as_json=as_json)


@commands.command(rich_help_panel="Talk to agents")
def chat(*, agent: AgentId = "", context: ContextId = "", profile: ProfileName = "") -> None:
    """Chat with an agent: with a history, files, and questions answered in place. /help lists commands."""
    from everloop.cli.client.prompts import is_interactive

    if not is_interactive():
        raise misused("chat needs a terminal; `everloop send` works in pipes")
    ask(lambda gateway: _Chat(gateway, context, profile).run(), profile, agent)


def history_file() -> Path:
    """Return the file of the input history."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "everloop" / "chat_history"


class _Chat:
    """A chat: the agent, the conversation, and the files of the next message."""

    def __init__(self, gateway: Gateway, context: str, profile: str) -> None:
        self._gateway = gateway
        self._profile = profile
        self._agent = gateway.agent or gateway.profile.agent
        self._context = context
        self._files: list[Part] = []
        self._last: list[str | Part] = []
        self._task = ""
        self._opened = AsyncExitStack()
        self._names: list[str] = []
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "/file": self._add_file,
            "/agent": self._change_agent,
            "/retry": self._retry,
            "/new": self._begin_anew,
            "/help": self._help,
        }

    async def run(self) -> None:
        from everloop.cli.client.prompts import LeftError, PressedError, ask_text, conversation
        from everloop.cli.client.screen import Screen

        self._screen = Screen()
        async with self._opened:
            await self._connect(self._agent)
            session = conversation(
                await asyncio.to_thread(history_file), _completer([*self._commands, "/quit"], self._names)
            )
            hint = "Enter sends, Alt-Enter: a new line, /help"
            while True:
                try:
                    text = (await ask_text(self._mark(), hint=hint, lines=True, session=session)).strip()
                except PressedError:
                    self._say("Ctrl-D or /quit leaves", "dim")
                    continue
                except LeftError:
                    break
                hint = ""
                if text == "/quit":
                    break
                await self._take(text)
        if self._context:
            agent = f" --agent {shlex.quote(self._agent)}" if self._agent else ""
            again = f"everloop chat --context {shlex.quote(self._context)}{agent}{option_of(self._profile)}"
            self._say(f"come back with: {again}", "dim")

    def _mark(self) -> str:
        files = f" +{len(self._files)} file{'s' if len(self._files) > 1 else ''}" if self._files else ""
        return f"{self._agent or 'you'}{files}> "

    def _say(self, line: str, style: str = "") -> None:
        self._screen.say(line, style)

    async def _take(self, text: str) -> None:
        """Process a line; errors are shown and do not end the chat."""
        from everloop.client import ClientError

        word, _, rest = text.partition(" ")
        try:
            if not text:
                return
            if command := self._commands.get(word):
                await command(rest.strip())
            elif word.startswith("/") and word[1:].isalpha():
                self._say(f"there is no {word}; /help shows what there is", "red")
            else:
                await self._send([text, *self._files])
        except ClientError as error:
            self._say(str(refused(error, self._gateway)), "red")
        except CommandError as error:
            self._say(error.message, "yellow")

    async def _send(self, content: "list[str | Part]") -> None:
        await self._follow(self._client.stream(*content, context_id=self._context))
        self._last, self._files = content, []

    async def _follow(self, events: "AsyncGenerator[Event]", task_id: str = "") -> None:
        from everloop.cli.client.turns import follow

        result: Result = await follow(
            self._client,
            events,
            profile=self._profile,
            task_id=task_id,
            on_task=self._remember,
            is_brief=True,
        )
        self._context = result.context_id or self._context
        self._say("")

    def _remember(self, task_id: str) -> None:
        self._task = task_id

    # Commands.

    async def _add_file(self, path: str) -> None:
        from everloop.client import Part

        if not path:
            raise misused("which file? Write /file PATH")
        part = await asyncio.to_thread(Part.from_file, path.strip("'\""))
        self._files.append(part)
        self._say(f"{part.filename} ({amount(len(part.raw or b''))}) goes with the next message", "dim")

    async def _change_agent(self, agent: str) -> None:
        if not agent:
            for name in self._names:
                self._say(f"  {name}{'  (you talk to it)' if name == self._agent else ''}")
            return
        if agent not in self._names:
            raise misused(f"there is no agent {agent!r}; there are: {', '.join(self._names)}")
        await self._connect(agent)
        self._say(f"you talk to {agent} now, in the same conversation", "dim")

    async def _retry(self, _: str) -> None:
        """Retry the last task from its first message; servers other than Everloop get the message again."""
        from everloop.client import ExtensionMissingError

        if not self._last:
            raise misused("there is no message yet to answer again")
        try:
            forked = await self._client.fork(self._task, iteration=0)
        except ExtensionMissingError:
            await self._send(self._last)
            return
        await self._follow(self._client.watch(forked.id), forked.id)

    async def _begin_anew(self, _: str) -> None:
        self._context, self._task, self._last = "", "", []
        self._say("a new conversation", "dim")

    async def _help(self, _: str) -> None:
        self._say(HELP)

    async def _connect(self, agent: str) -> None:
        """Switch to an agent."""
        client = await self._opened.enter_async_context(self._gateway.profile.client(agent))
        if not self._names:
            self._names += [each.id for each in await client.agents() if each.id]
        self._client: Client = client
        self._agent = agent or next(iter(self._names), "")


def _completer(commands: list[str], agents: list[str]) -> "Completer":
    """Return a completer of commands, file paths and agent names."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document

    paths = PathCompleter(expanduser=True)

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Generator[Completion]:
            text = document.text_before_cursor
            word, gap, rest = text.partition(" ")
            if not text.startswith("/") or "\n" in text:
                return
            if not gap:
                yield from (Completion(each, -len(text)) for each in commands if each.startswith(text))
            elif word == "/file":
                yield from paths.get_completions(Document(rest), complete_event)
            elif word == "/agent":
                yield from (Completion(each, -len(rest)) for each in agents if each.startswith(rest))

    return Commands()

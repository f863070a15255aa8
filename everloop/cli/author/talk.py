"""The prompt below `everloop dev`: typed lines go to the agent, and its answers appear in the log."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from everloop.cli.client.question_answering import TypedAnswer
    from everloop.client import Client, ClientError, Event, Question, Result

RECONNECT = 10.0
"""Seconds for which a gateway under replacement is retried."""

HELP = "/agent ID: another agent, /new: a new conversation."

Show = Callable[[str, str], None]
"""Shows a line in a style."""

Ask = Callable[["Client", str, "Question", Callable[..., None]], Awaitable["TypedAnswer | None"]]
"""Asks a question, as `turns.ask_while_open` does."""


def can_talk() -> bool:
    """Return whether stdin and stdout are an interactive terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Talk:
    """A conversation with the agents of a gateway: one task at a time; further lines go to that task.

    Questions replace the prompt: a line that was begun before a question does not answer it. `terminal` is
    held while the user reads a question, which lines of a log would push out of view.
    """

    def __init__(self, url: str, show: Show, terminal: asyncio.Lock, ask: Ask | None = None) -> None:
        self._url = url
        self._show = show
        self._terminal = terminal
        self._ask = ask
        self._agent = ""
        self._client: Client = self._client_of("")
        self._context = ""
        self._task = ""
        """The task that works, or waits for an answer."""
        self._question: Question | None = None
        self._has_question = asyncio.Event()
        """Set while a question has to be shown."""
        self._following: asyncio.Task[None] | None = None
        self._is_unknown = False
        """Whether the gateway rejected the credentials: the next line uses the current ones."""

    async def run(self) -> None:
        """Read lines until Ctrl-C, which is passed on to this process."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.patch_stdout import patch_stdout

        from everloop.cli.client.prompts import PressedError

        session, line = PromptSession[str](), ""
        try:
            with patch_stdout(raw=True):  # output appears above the prompt
                while True:
                    if self._has_question.is_set():
                        await self.answer()
                    line, is_complete = await self._read(session, line)
                    if is_complete and self._question and not line.startswith("/"):
                        self._has_question.set()  # left open: the line waits for its answer
                    elif is_complete:
                        await self.take(line.strip())
                        line = ""
        except (KeyboardInterrupt, EOFError, PressedError):
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            await self.close()

    async def _read(self, session: "PromptSession[str]", begun: str) -> tuple[str, bool]:
        """Return a line, and whether it is complete: a question that arrives meanwhile interrupts it."""
        question_asked = asyncio.ensure_future(self._has_question.wait())
        reading = asyncio.ensure_future(
            session.prompt_async(lambda: f"{self._agent or 'you'}> ", default=begun, handle_sigint=False)
        )
        try:
            await asyncio.wait((reading, question_asked), return_when=asyncio.FIRST_COMPLETED)
            if not self._has_question.is_set():
                return await reading, True
            return (await reading if reading.done() else session.default_buffer.text), False
        finally:
            session.app.erase_when_done = True
            for each in (question_asked, reading):
                each.cancel()
            await asyncio.gather(question_asked, reading, return_exceptions=True)
            session.app.erase_when_done = False

    async def wait(self) -> None:
        """Wait until the agent has answered, or asks a question."""
        if self._following:
            await self._following

    async def close(self) -> None:
        """Stop following the task; it goes on."""
        if self._following:
            self._following.cancel()
            await asyncio.wait((self._following,))
        await self._client.close()

    async def take(self, line: str) -> None:
        """Process a line; errors are shown and end nothing."""
        from everloop.client import ClientError

        command, _, rest = line.partition(" ")
        try:
            if command == "/agent":
                await self._change_agent(rest.strip())
            elif command == "/new":
                self._context = self._task = ""
                self._drop_question()
                self._show("  a new conversation", "dim")
            elif command.startswith("/"):
                self._show(f"  {HELP}", "dim")
            elif line:
                await self._say(line)
        except ClientError as error:
            self._print_error(error)

    async def _say(self, text: str) -> None:
        from everloop.client.content import NO_ANSWER

        if self._following and not self._following.done():
            await self._client.send(text, task_id=self._task, metadata=NO_ANSWER, detach=True)
        else:
            if self._is_unknown:
                await self._client.close()
                self._client = self._client_of(self._agent)
            self._follow(self._client.stream(text, context_id=self._context))

    async def answer(self) -> None:
        """Ask the open questions of the task; an unanswered one is asked again by the next line."""
        from everloop.cli.client.prompts import LeftError
        from everloop.cli.client.turns import ask_while_open
        from everloop.client import ClientError

        self._has_question.clear()
        question = self._question
        if not question:
            return
        try:
            async with self._terminal:
                ask = self._ask or ask_while_open
                answer = await ask(self._client, self._task, question, self._say_line)
        except LeftError:
            self._show("  it waits: press Enter to answer it, /new leaves it", "dim")
        except ClientError as error:
            self._print_error(error)
        else:
            self._question = None
            said = answer and self._client.stream(
                answer.content, task_id=self._task, question_id=answer.question_id
            )
            self._follow(said or self._client.watch(self._task))

    def _say_line(self, line: str, style: str = "", *, indent: int = 0, breaks: bool = True) -> None:
        self._show(" " * indent + line, style)

    def _follow(self, events: "AsyncGenerator[Event]") -> None:
        self._following = asyncio.create_task(self._shown(events))

    async def _shown(self, events: "AsyncGenerator[Event]") -> None:
        from everloop.client import ClientError, Done, Question

        try:
            async with aclosing(events) as coming:
                async for event in coming:
                    self._task = event.task_id or self._task
                    if isinstance(event, Done):
                        self._print(event.result)
                    elif isinstance(event, Question):  # a watching client gets no end of the turn
                        self._print(await self._client.task(self._task))
                        return
        except ClientError as error:
            self._task = ""
            self._print_error(error)

    def _print_error(self, error: "ClientError") -> None:
        from everloop.client import UnauthenticatedError

        self._is_unknown = isinstance(error, UnauthenticatedError)
        if self._is_unknown:
            self._show(
                f"✗ {error.problem}: set EVERLOOP_API_KEY or EVERLOOP_TOKEN, in .env for example", "red"
            )
        else:
            self._show(f"✗ {error}", "red")

    def _print(self, result: "Result") -> None:
        """Show the result of a message."""
        self._context = result.context_id or self._context
        self._task = result.id if result.state.is_waiting else ""
        for line in result.text.splitlines():
            self._show(line, "bold")
        if result.error:
            self._show(f"✗ {result.state}: {result.error}", "red")
        for artifact in result.artifacts:
            self._show(f"  artifact {artifact.id}: see the console", "dim")
        from everloop.cli.client.question_answering import OWNER

        self._question = next((one for one in result.questions if one.approvers == OWNER), None)
        if self._question:
            self._has_question.set()
        for other in result.questions[: not self._question]:
            self._show(f"? {other.text.splitlines()[0]}", "bold yellow")
            self._show(f"  this waits for somebody with the scope {other.approvers}", "dim")

    def _drop_question(self) -> None:
        self._question = None
        self._has_question.clear()

    async def _change_agent(self, agent: str) -> None:
        agents = [each.id for each in await self._client.agents()]
        if agent not in agents:
            self._show(f"  /agent ID: there are {', '.join(agents)}", "dim")
            return
        await self._client.close()
        self._client, self._agent, self._task = self._client_of(agent), agent, ""
        self._drop_question()

    def _client_of(self, agent: str) -> "Client":
        from everloop.client import Client

        key, token = (os.environ.get(name, "") for name in ("EVERLOOP_API_KEY", "EVERLOOP_TOKEN"))
        return Client(self._url, agent=agent or None, api_key=key, token=token, reconnect=RECONNECT)

"""The prompt below `everloop dev`: what you type goes to the agent, and its answers stand in the log."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everloop.client import Client, ClientError, Content, Question, Result

RECONNECT = 10.0
"""Seconds for which a gateway that is replaced is tried again."""

HELP = "/agent ID: another agent, /new: a new conversation."

Show = Callable[[str, str], None]
"""Shows a line in a style."""


def can_talk() -> bool:
    """Whether somebody sits at a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Talk:
    """A conversation with the agents of a gateway: a task at a time; what is typed meanwhile goes to it."""

    def __init__(self, url: str, show: Show) -> None:
        self._url = url
        self._show = show
        self._agent = ""
        self._client: Client = self._client_of("")
        self._context = ""
        self._task = ""
        """That the next line goes to: it works, or waits for an answer."""
        self._question: Question | None = None
        self._following: asyncio.Task[None] | None = None
        self._is_unknown = False
        """Whether the gateway did not know who calls: the next line asks as whoever is named by then."""

    async def run(self) -> None:
        """Read lines until Ctrl-C, which is passed on to this process."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.patch_stdout import patch_stdout

        session: PromptSession[str] = PromptSession()
        try:
            with patch_stdout(raw=True):  # what is printed appears above the prompt
                while True:
                    line = await session.prompt_async(
                        lambda: f"{self._agent or 'you'}> ", handle_sigint=False
                    )
                    await self.take(line.strip())
        except (KeyboardInterrupt, EOFError):
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            await self.close()

    async def wait(self) -> None:
        """Wait until the agent has answered, or asks something."""
        if self._following:
            await self._following

    async def close(self) -> None:
        """Follow the task no longer; it goes on."""
        if self._following:
            self._following.cancel()
            await asyncio.wait((self._following,))
        await self._client.close()

    async def take(self, line: str) -> None:
        """Do what a line says; what goes wrong ends nothing."""
        from everloop.client import ClientError

        command, _, rest = line.partition(" ")
        try:
            if command == "/agent":
                await self._change_agent(rest.strip())
            elif command == "/new":
                self._context = self._task = ""
                self._show("  a new conversation", "dim")
            elif command.startswith("/"):
                self._show(f"  {HELP}", "dim")
            elif line:
                await self._say(line)
        except ClientError as error:
            self._print_error(error)

    async def _say(self, text: str) -> None:
        if self._following and not self._following.done():
            await self._client.send(text, task_id=self._task, detach=True)
            return
        if self._is_unknown:
            await self._client.close()
            self._client = self._client_of(self._agent)
        self._following = asyncio.create_task(self._follow(text, self._task))

    async def _follow(self, text: str, task_id: str) -> None:
        from everloop.client import ClientError, Done

        content = _content(text, self._question) if task_id else text
        stream = self._client.stream(content, context_id=self._context, task_id=task_id)
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    self._task = event.task_id or self._task
                    if isinstance(event, Done):
                        self._print(event.result)
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
        """Show what came of a message."""
        self._context = result.context_id or self._context
        self._task = result.id if result.state.is_waiting else ""
        for line in result.text.splitlines():
            self._show(line, "bold")
        if result.error:
            self._show(f"✗ {result.state}: {result.error}", "red")
        for artifact in result.artifacts:
            self._show(f"  artifact {artifact.id}: see the console", "dim")
        self._question = next(iter(result.questions), None)
        if question := self._question:
            for line in f"? {question.text}".splitlines():
                self._show(line, "bold yellow")
            self._show(f"  {_wanted(question)}", "dim")

    async def _change_agent(self, agent: str) -> None:
        known = [each.id for each in await self._client.agents()]
        if agent not in known:
            self._show(f"  /agent ID: there are {', '.join(known)}", "dim")
            return
        await self._client.close()
        self._client, self._agent, self._task = self._client_of(agent), agent, ""

    def _client_of(self, agent: str) -> "Client":
        from everloop.client import Client

        key, token = (os.environ.get(name, "") for name in ("EVERLOOP_API_KEY", "EVERLOOP_TOKEN"))
        return Client(self._url, agent=agent or None, api_key=key, token=token, reconnect=RECONNECT)


def _content(text: str, question: "Question | None") -> "Content":
    """Return an answer: data, where the question wants data and the text is some."""
    from everloop.client import Part

    if question and question.kind == "data":
        with suppress(ValueError):
            return Part(data=json.loads(text))
    return text


def _wanted(question: "Question") -> str:
    """Return what can be answered to a question."""
    if question.options:
        return f"answer with one of: {', '.join(map(str, question.options))}"
    if question.kind == "confirmation":
        return "answer yes or no"
    if question.kind == "data":
        return f"answer with JSON that fits {json.dumps(question.json_schema, ensure_ascii=False)}"
    if question.kind == "auth":
        return "answer with `secret: …`"
    return "answer with a text"

"""A task, followed in the terminal to its end: shown, answered, detached from, canceled."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from everloop.cli.client.forms import Say
from everloop.cli.client.message_files import offer_artifacts
from everloop.cli.client.prompts import LeftError, PressedError, is_interactive
from everloop.cli.client.question_answering import (
    OWNER,
    TypedAnswer,
    answering_command,
    ask_question,
    has_ended,
    show_question,
)
from everloop.cli.client.screen import Screen
from everloop.cli.output import INTERRUPTED, CommandError, option_of
from everloop.client import (
    Client,
    ClientError,
    Done,
    Event,
    InvalidError,
    Question,
    Result,
    StatusChanged,
    UnreachableError,
)

T = TypeVar("T")

SECOND_PRESS = 2.0
"""Seconds after Ctrl-C in which another one cancels the task."""


async def follow(  # noqa: PLR0913 -- all have names
    client: Client,
    events: AsyncGenerator[Event],
    *,
    profile: str,
    as_json: bool = False,
    folder: Path | None = None,
    task_id: str = "",
    on_task: Callable[[str], None] = lambda _: None,
    is_brief: bool = False,
) -> Result:
    """Follow a task in the terminal to its end, save its artifacts, and return it.

    `as_json`: ask no questions and show only notices. `folder` is where artifacts go, None: ask.
    `on_task` receives the id of the task, also if the user detaches; `is_brief`: do not show ids at the
    end.

    Raises:
        CommandError: Ctrl-C; the task goes on, and the message says how to come back.
        ClientError: the server rejects the request, or was unreachable for too long.
    """
    screen = Screen(shows_text=not as_json)
    turn = TaskTurn(client, screen, profile=profile, asks=not as_json, task_id=task_id)
    try:
        result = await turn.follow(events)
    finally:
        on_task(turn.task_id)
    screen.end(result, shows_text=not as_json, is_brief=is_brief)
    asks = is_interactive() and not as_json
    await offer_artifacts(client, result, screen, folder=folder, asks=asks, profile=profile)
    return result


class TaskTurn:
    """A task from a message to its end, or to a question that cannot be answered here.

    `asks`: questions are asked at the terminal. `profile` is the profile of the command line, for
    proposed commands.
    """

    def __init__(
        self, client: Client, screen: Screen, *, profile: str, asks: bool, task_id: str = ""
    ) -> None:
        self._client = client
        self._screen = screen
        self._profile = profile
        self._asks = asks and is_interactive()
        self.task_id = task_id

    async def follow(self, events: AsyncGenerator[Event]) -> Result:
        """Show events and ask the questions of the task; return the result.

        Raises:
            CommandError: Ctrl-C; the task goes on, and the message says how to come back.
            ClientError: the server rejects the request, or was unreachable for too long.
        """
        presses = _Presses()
        try:
            return await presses.interruptible(self._until_done(events))
        except KeyboardInterrupt:
            self._screen.pause()
            return await self._leave(presses)
        except UnreachableError as error:
            if not self.task_id:
                raise
            raise CommandError(f"{error}; the task goes on: come back with `{self._way_back}`") from error
        finally:
            self._screen.pause()
            presses.close()

    async def _leave(self, presses: "_Presses") -> Result:
        if not self.task_id:
            raise CommandError(
                "interrupted before the gateway said that it has the message; "
                f"`everloop tasks list{option_of(self._profile)}` shows whether it begins",
                INTERRUPTED,
            )
        if sys.stdin.isatty():
            self._screen.say("Ctrl-C again cancels the task", "yellow")
            if await presses.again(SECOND_PRESS):
                self._screen.say("canceling it …")
                return await self._client.cancel(self.task_id)
        raise CommandError(f"detached; the task goes on: come back with `{self._way_back}`", INTERRUPTED)

    @property
    def _way_back(self) -> str:
        return f"everloop tasks watch {self.task_id}{option_of(self._profile)}"

    async def _until_done(self, events: AsyncGenerator[Event]) -> Result:
        is_first = True
        while True:
            try:
                result = await self._shown(events)
            except InvalidError as error:
                result = await self._refusing(error, is_first=is_first)
            is_first = False
            while result.state.is_waiting:
                try:
                    answer = await self._answer(result)
                except LeftError:
                    return result
                if answer:
                    events = self._client.stream(
                        answer.content, task_id=result.id, question_id=answer.question_id
                    )
                    break
                result = await self._client.task(result.id)
            else:
                if result.is_done or not result.id:
                    return result
                events = self._client.watch(result.id)

    async def _refusing(self, refusal: InvalidError, *, is_first: bool) -> Result:
        """Return the task that rejected an answer, or that has gone on meanwhile.

        Raises:
            InvalidError: there is no task: the message was rejected.
            CommandError: it had ended before.
        """
        if not self.task_id:
            raise refusal
        task = await self._client.task(self.task_id)
        if is_first and task.is_done:
            raise has_ended(task, self._profile) from refusal
        self._screen.say(str(refusal), "red")
        return task

    async def _shown(self, events: AsyncGenerator[Event]) -> Result:
        async with aclosing(events) as coming:
            async for event in coming:
                self.task_id = event.task_id or self.task_id
                self._screen.show(event)
                if isinstance(event, Done):
                    return event.result
                if isinstance(event, Question):  # a watching client gets no end of the turn
                    return await self._client.task(self.task_id)
        raise AssertionError("the last event is Done")

    async def _answer(self, result: Result) -> TypedAnswer | None:
        """Return the answer to the first question; None if the task has gone on meanwhile.

        Raises:
            LeftError: the question stays unanswered here.
        """
        question = next((one for one in result.questions if one.approvers == OWNER), None)
        self._screen.pause()
        if question is None:
            return await self._wait_for_others(result)
        if not self._asks:
            question = await _in_order(self._client, result.id, question)
            show_question(question, self._screen.say)
            self._screen.say(answering_command(question, result.id, self._profile), indent=2, breaks=False)
            raise LeftError
        return await ask_while_open(self._client, result.id, question, self._screen.say)

    async def _wait_for_others(self, result: Result) -> None:
        """Wait for an answer by a user other than the owner; the caller may have the scope for it, too."""
        question = result.questions[0]
        if not (self._asks and await self._may_decide(question)):
            show_question(question, self._screen.say)
            self._screen.say(f"  this waits for somebody with the scope {question.approvers}", "dim")
            if not self._asks:
                raise LeftError
            await _closed(self._client, result.id, question)
            return
        if answer := await ask_while_open(self._client, result.id, question, self._screen.say):
            said = answer.value if isinstance(answer.value, dict) else {}
            await self._client.decide(
                result.id, question.id, approved=bool(said.get("approved")), note=str(said.get("note", ""))
            )

    async def _may_decide(self, question: Question) -> bool:
        with suppress(ClientError):
            return question.id in {each.question_id async for each in self._client.approvals()}
        return False


async def ask_while_open(client: Client, task_id: str, question: Question, say: Say) -> TypedAnswer | None:
    """Show a question, and return its answer; None if it is answered, or changed, meanwhile.

    Raises:
        LeftError: not now.
        PressedError: Ctrl-C.
    """
    show_question(question, say)
    asking = asyncio.ensure_future(ask_question(await _in_order(client, task_id, question), say))
    closed = asyncio.ensure_future(_closed(client, task_id, question))
    try:
        await asyncio.wait({asking, closed}, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            answer = asking.result()
            if _is_open(question, await client.task(task_id)):
                return answer
        say("  it has been answered, or has changed", "yellow")
        return None
    finally:
        for each in (asking, closed):
            each.cancel()
        await asyncio.gather(asking, closed, return_exceptions=True)


async def _in_order(client: Client, task_id: str, question: Question) -> Question:
    """Return a question with the fields of its form in the author's order: A2A's data have none."""
    with suppress(ClientError):
        if question.kind == "data":
            async with aclosing(client.questions()) as waiting:
                async for each in waiting:
                    if each.question_id == question.id and each.task_id == task_id:
                        return replace(question, json_schema=each.answer_schema)
    return question


async def _closed(client: Client, task_id: str, question: Question) -> None:
    """Wait until a question is answered or changed; for ever if that is unknown."""
    with suppress(ClientError):
        async with aclosing(client.watch(task_id)) as events:
            async for event in events:
                if not isinstance(event, StatusChanged | Done):
                    continue
                now = event.result if isinstance(event, Done) else await client.task(task_id)
                if not _is_open(question, now):
                    return
    await asyncio.Event().wait()


def _is_open(question: Question, task: Result) -> bool:
    """Return whether a task asks this same question: its name may denote another by now."""
    return any(replace(one, at=question.at) == question for one in task.questions)


class _Presses:
    """Counter of Ctrl-C, which interrupts the awaited work the first time."""

    def __init__(self) -> None:
        self._count = 0
        self._again = asyncio.Event()
        self._work: asyncio.Future[Any] | None = None
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._press)

    def _press(self) -> None:
        self._count += 1
        if self._count > 1:
            self._again.set()
        if self._count == 1 and self._work:
            self._work.cancel()

    async def interruptible(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """
        self._work = asyncio.ensure_future(work)
        try:
            return await self._work
        except (asyncio.CancelledError, PressedError):
            self._count = max(self._count, 1)  # in a prompt it is a key
            raise KeyboardInterrupt from None

    async def again(self, seconds: float) -> bool:
        """Return whether Ctrl-C is pressed once more within this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._again.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Restore the default effect of Ctrl-C, the end of the process."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

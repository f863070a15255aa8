"""Calls the function of a tool: in time, and whatever it raises."""

import asyncio
import inspect
import random
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import timedelta
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import cast

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.lease import ActivityHeartbeat
from everloop.agents.limits import Retries
from everloop.agents.question_exceptions import QuestionRequired
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import excerpt, result_text
from everloop.agents.tool_signature import code_of
from everloop.runtime.telemetry.logs import chain_of
from everloop.runtime.user_code import as_exception, error_text, translate_base_exceptions
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import QUICK_RESULT, QUICK_TIME, RunToolInput, ToolReply
from everloop.workflows.contract.events import RetryScheduled

_log = structlog.get_logger()


class ToolFailure(Exception):  # noqa: N818 -- the word of the field for what a tool comes to
    """The tool raised, or took too long; the message is what the model reads.

    `error` is what came out of its function, `raised_at` the innermost line of its author there.
    """

    def __init__(self, problem: str, error: BaseException, tool: Tool) -> None:
        super().__init__(problem)
        self.error = error
        self.raised_at = raised_at(tool, error)


def raised_at(tool: Tool, error: BaseException) -> str:
    """Return where the author's own file raised, such as `tools.py:12 pay`; empty if nothing of it is known.

    It is the file that the tool's function is in, without its folder: clients see it.
    """
    code = code_of(tool.function)
    if code is None or tool.schema is not None:  # of MCP servers the function is ours
        return ""
    for each in chain_of(error):
        for frame in reversed(traceback.extract_tb(each.__traceback__)):
            if frame.filename == code.co_filename:
                return f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
    return ""


def attempt_of(call: RunToolInput) -> int:
    """Return which attempt at a call this is; a quick one may have gone before those that Temporal counts."""
    return activity.info().attempt + bool(call.tried)


SLOW = 1.0
"""Seconds from which on a call of a quick tool is slow."""


async def in_quick_time(
    call: RunToolInput,
    work: Coroutine[object, object, ToolReply],
    tell_slow: Callable[[float], Awaitable[None]],
) -> ToolReply:
    """Work on a call; a quick one is ended in time, and told of if it is slow (in seconds).

    Raises:
        ApplicationError: `NotQuick`: it has to be called like any other.
    """
    if not activity.info().is_local:
        return await work
    name, clock = call.call.name, asyncio.get_running_loop().time
    began, limit = clock(), asyncio.timeout(QUICK_TIME)
    try:
        async with limit:
            reply = await work
    except (TimeoutError, asyncio.CancelledError):  # of Temporal, too, where the tool held the event loop up
        if not limit.expired():
            raise
        await tell_slow(clock() - began)
        raise not_quick(f"{name} did not finish within {QUICK_TIME:g} s") from None
    if (took := clock() - began) >= SLOW:
        await tell_slow(took)
    # What it came to is recorded, and is not worked out again.
    if len(reply.model_dump_json().encode()) > QUICK_RESULT:
        raise not_quick(f"the reply of {name} has more than {QUICK_RESULT:,} bytes")
    return reply


def not_quick(problem: str) -> ApplicationError:
    """Return the failure of a quick call that is to be made like any other."""
    return ApplicationError(problem, type=failures.NOT_QUICK, non_retryable=True)


class ToolFunctions:
    """Calls async tools in the event loop and sync ones in threads of their own, at most `threads` at once.

    A sync tool that never returns keeps nothing from running but, in the end, other sync tools.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tool")
        self._batches: dict[tuple[object, ...], _Batch] = {}
        self._warned: set[tuple[str, str, str]] = set()

    async def call(self, tool: Tool, arguments: dict[str, object], run: RunToolInput) -> str:
        """Return what the tool returns to a call, as text.

        Raises:
            QuestionRequired: the tool asks people.
            ToolFailure: it raised something else, or did not finish in time.
        """
        limit = asyncio.timeout(run.timeout)
        try:
            with translate_base_exceptions():
                async with limit:
                    value = await (self._in_batch if tool.batch else self._invoke)(tool, arguments, run)
                return result_text(value, partial(self._warn_of_type, run.task.agent_id, tool.name))
        except QuestionRequired:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever a tool raises, the model reads it
            raised = error
            is_late = isinstance(error, TimeoutError) and limit.expired()
            late = f"{tool.name} did not finish within {run.timeout:g} s"
            problem = late if is_late else error_text(error)
        raise ToolFailure(problem, raised, tool)

    def _warn_of_type(self, agent: str, tool: str, returned: str) -> None:
        """Say once of a tool that the model reads `str` of what it returns. The value may hold secrets."""
        if (agent, tool, returned) in self._warned:
            return
        self._warned.add((agent, tool, returned))
        _log.warning(
            "a tool returned an object without a JSON form, of which the model reads str(…); return a str, "
            "number, list, dict, dataclass or pydantic model",
            agent=agent,
            tool=tool,
            type=returned,
        )

    @contextmanager
    def beginning(self, tool: Tool, run: RunToolInput) -> Generator[None]:
        """Let the other calls of a batch wait while this one is on its way to the function."""
        if not tool.batch:
            yield
            return
        key = _batch_key(tool, run)
        if key not in self._batches:
            batch = self._batches[key] = _Batch(partial(self._invoke, tool), run)
            window = LOCAL_WINDOW if activity.info().is_local else BATCH_WINDOW
            asyncio.get_running_loop().call_later(window, self._end_window, key, batch)
        batch, attempt = self._batches[key], object()
        batch.begun += 1
        batch.on_their_way.add(attempt)
        _batch.set((batch, attempt))
        try:
            yield
        finally:
            batch.on_their_way.discard(attempt)
            self._run_if_complete(key, batch)

    async def _in_batch(self, tool: Tool, arguments: dict[str, object], run: RunToolInput) -> object:
        """Wait for the other calls of the same reply, run them all as one, and return what is this one's."""
        batch, attempt = _batch.get()
        result = batch.add(arguments)
        batch.on_their_way.discard(attempt)
        self._run_if_complete(_batch_key(tool, run), batch)
        try:
            return await result
        finally:
            batch.leave()

    def _run_if_complete(self, key: tuple[object, ...], batch: "_Batch") -> None:
        if batch.is_complete and self._batches.get(key) is batch:
            del self._batches[key]
            batch.run()

    def _end_window(self, key: tuple[object, ...], batch: "_Batch") -> None:
        batch.is_late = True
        self._run_if_complete(key, batch)

    async def _invoke(self, tool: Tool, arguments: dict[str, object], _run: RunToolInput) -> object:
        """Call the function; a sync one in a thread, which goes on after a timeout: none can be stopped."""
        if tool.is_async:
            return await tool.function(**arguments)

        def call() -> object:
            with translate_base_exceptions():
                return tool.function(**arguments)

        value = await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, call)
        return await value if inspect.isawaitable(value) else value  # of a decorator that is not async


BATCH_WINDOW, LOCAL_WINDOW = 0.1, 1.0
"""Seconds that the first call of a batch waits for the others to begin here; local ones nearly always do."""

_batch: ContextVar[tuple["_Batch", object]] = ContextVar("_batch")
"""The batch that a call has begun in, and what stands for this attempt at it there."""


def _batch_key(tool: Tool, run: RunToolInput) -> tuple[object, ...]:
    return run.task.task_id, run.task.run_id, run.reply_position, tool.name


class _Batch:
    """Calls of one reply that run as one. If nobody wants the result of any, the function is cancelled."""

    def __init__(
        self, function: Callable[[dict[str, object], RunToolInput], Awaitable[object]], run: RunToolInput
    ) -> None:
        self.results: list[asyncio.Future[object]] = []
        self.begun = 0
        self.on_their_way: set[object] = set()
        """Calls that have begun, and neither run nor ended yet."""
        self.is_late = False
        """Whether no more calls are waited for that have not begun."""
        self._function = function
        self._call = run
        self._name = ""
        self._arguments: list[object] = []
        self._running: asyncio.Task[None] | None = None

    @property
    def is_complete(self) -> bool:
        return not self.on_their_way and (self.is_late or self.begun >= self._call.together)

    def add(self, arguments: dict[str, object]) -> asyncio.Future[object]:
        """Take in a call; return what holds its result later."""
        ((self._name, one),) = arguments.items()
        self._arguments.append(one)
        self.results.append(asyncio.get_running_loop().create_future())
        return self.results[-1]

    def run(self) -> None:
        if not all(result.done() for result in self.results):
            self._running = asyncio.create_task(self._run())

    def leave(self) -> None:
        """End the function if no call waits for it any more."""
        if self._running and all(result.done() for result in self.results):
            self._running.cancel()

    async def _run(self) -> None:
        try:
            with translate_base_exceptions():
                outcomes = await self._outcomes()
        except QuestionRequired:
            outcomes = [RuntimeError("a tool with batch=True runs for several calls, and can ask nobody")]
        except Exception as error:  # noqa: BLE001 -- whatever a tool raises, all calls get it
            outcomes = [error]
        for result, outcome in zip(self.results, cycle(outcomes), strict=False):
            if result.done():
                continue
            if isinstance(outcome, BaseException):
                result.set_exception(as_exception(outcome))
            else:
                result.set_result(outcome)

    async def _outcomes(self) -> Sequence[object]:
        found = await self._function({self._name: self._arguments}, self._call)
        outcomes = cast("Sequence[object]", found if isinstance(found, list | tuple) else ())
        if len(outcomes) != len(self.results):
            count = len(self.results)
            raise TypeError(
                f"a tool with batch=True returns a list of as many results as calls, here {count}"
            )
        return outcomes


# The next attempt of a tool that failed.

_JITTER = 0.2
"""Calls that failed together do not come back together."""


def next_delay(retries: Retries | None, heartbeat: ActivityHeartbeat) -> timedelta | None:
    """Count a failure; return how long to wait for the next attempt, None if there is none."""
    if retries is None or (failed := heartbeat.count_failure()) >= retries.attempts:
        return None
    spread = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 -- it spreads load, it guards nothing
    return retries.delay_after(failed) * spread


def retry_of(problem: str, delay: timedelta, attempt: int) -> tuple[RetryScheduled, ApplicationError]:
    """Return the event of a failed attempt, and the failure that brings the next; raise it `from None`."""
    reason = excerpt(problem)
    event = RetryScheduled(attempt=attempt, reason=reason, delay=delay.total_seconds())
    return event, ApplicationError(reason, type=failures.TOOL_FAILED, next_retry_delay=delay)

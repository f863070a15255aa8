"""Calls the function of a tool within its time limit, and translates its exceptions."""

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


class ToolFailure(Exception):  # noqa: N818 -- the term of the field for the result of a tool
    """The tool raised, or took too long; the message is for the model.

    `error` is the exception of its function, `raised_at` the innermost line of its author's code in the
    traceback.
    """

    def __init__(self, problem: str, error: BaseException, tool: Tool) -> None:
        super().__init__(problem)
        self.error = error
        self.raised_at = raised_at(tool, error)


def raised_at(tool: Tool, error: BaseException) -> str:
    """Return the line of the author's own file that raised, such as `tools.py:12 pay`, or an empty string.

    It is the file of the tool's function, without its folder: clients see it.
    """
    code = code_of(tool.function)
    if code is None or tool.schema is not None:  # the function of an MCP server's tool is ours
        return ""
    for each in chain_of(error):
        for frame in reversed(traceback.extract_tb(each.__traceback__)):
            if frame.filename == code.co_filename:
                return f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
    return ""


def attempt_of(call: RunToolInput) -> int:
    """Return the number of this attempt; attempts as a quick call precede those that Temporal counts."""
    return activity.info().attempt + bool(call.tried)


SLOW = 1.0
"""Seconds after which a call of a quick tool counts as slow."""


async def in_quick_time(
    call: RunToolInput,
    work: Coroutine[object, object, ToolReply],
    tell_slow: Callable[[float], Awaitable[None]],
) -> ToolReply:
    """Limit the time of a quick call, and report it if it is slow (in seconds). Other calls are unlimited.

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
    except (TimeoutError, asyncio.CancelledError):  # Temporal's, too, if the tool blocked the event loop
        if not limit.expired():
            raise
        await tell_slow(clock() - began)
        raise not_quick(f"{name} did not finish within {QUICK_TIME:g} s") from None
    if (took := clock() - began) >= SLOW:
        await tell_slow(took)
    # Its result is recorded, so the call is not repeated.
    if len(reply.model_dump_json().encode()) > QUICK_RESULT:
        raise not_quick(f"the reply of {name} has more than {QUICK_RESULT:,} bytes")
    return reply


def not_quick(problem: str) -> ApplicationError:
    """Return the failure of a quick call that has to be repeated like any other."""
    return ApplicationError(problem, type=failures.NOT_QUICK, non_retryable=True)


class ToolFunctions:
    """Calls async tools in the event loop and sync ones in threads of their own, at most `threads` at once.

    A sync tool that never returns blocks only a thread, and so in the end other sync tools.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tool")
        self._batches: dict[tuple[object, ...], _Batch] = {}
        self._warned: set[tuple[str, str, str]] = set()

    async def call(self, tool: Tool, arguments: dict[str, object], run: RunToolInput) -> str:
        """Return the tool's result of a call as text.

        Raises:
            QuestionRequired: The tool asks people.
            ToolFailure: It raised something else, or exceeded its time limit.
        """
        limit = asyncio.timeout(run.timeout)
        try:
            with translate_base_exceptions():
                async with limit:
                    value = await (self._in_batch if tool.batch else self._invoke)(tool, arguments, run)
                return result_text(value, partial(self._warn_of_type, run.task.agent_id, tool.name))
        except QuestionRequired:
            raise
        except Exception as error:  # noqa: BLE001 -- the model gets any exception of a tool
            raised = error
            is_late = isinstance(error, TimeoutError) and limit.expired()
            late = f"{tool.name} did not finish within {run.timeout:g} s"
            problem = late if is_late else error_text(error)
        raise ToolFailure(problem, raised, tool)

    def _warn_of_type(self, agent: str, tool: str, returned: str) -> None:
        """Log once per tool that the model gets `str` of its result. The value may be secret."""
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
        """Announce a call to its batch, so that the other calls wait for it."""
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
        """Run all calls of the same reply as one, once they have begun, and return the result of this one."""
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
        """Call the function. A sync one runs in a thread, which continues after a timeout."""
        if tool.is_async:
            return await tool.function(**arguments)

        def call() -> object:
            with translate_base_exceptions():
                return tool.function(**arguments)

        value = await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, call)
        return await value if inspect.isawaitable(value) else value  # of a decorator that is not async


BATCH_WINDOW, LOCAL_WINDOW = 0.1, 1.0
"""Seconds for which the first call of a batch waits for the others; local ones nearly always arrive in time.
"""

_batch: ContextVar[tuple["_Batch", object]] = ContextVar("_batch")
"""The batch of a call, and the object that represents this attempt in it."""


def _batch_key(tool: Tool, run: RunToolInput) -> tuple[object, ...]:
    return run.task.task_id, run.task.run_id, run.reply_position, tool.name


class _Batch:
    """Calls of one reply that run as one. The function is cancelled if no call needs its result any more."""

    def __init__(
        self, function: Callable[[dict[str, object], RunToolInput], Awaitable[object]], run: RunToolInput
    ) -> None:
        self.results: list[asyncio.Future[object]] = []
        self.begun = 0
        self.on_their_way: set[object] = set()
        """Calls that have begun, and neither run nor ended yet."""
        self.is_late = False
        """True if the batch no longer waits for calls that have not begun."""
        self._function = function
        self._call = run
        self._name = ""
        self._arguments: list[object] = []
        self._running: asyncio.Task[None] | None = None

    @property
    def is_complete(self) -> bool:
        return not self.on_their_way and (self.is_late or self.begun >= self._call.together)

    def add(self, arguments: dict[str, object]) -> asyncio.Future[object]:
        """Add a call; return the future of its result."""
        ((self._name, one),) = arguments.items()
        self._arguments.append(one)
        self.results.append(asyncio.get_running_loop().create_future())
        return self.results[-1]

    def run(self) -> None:
        if not all(result.done() for result in self.results):
            self._running = asyncio.create_task(self._run())

    def leave(self) -> None:
        """Cancel the function if no call waits for it any more."""
        if self._running and all(result.done() for result in self.results):
            self._running.cancel()

    async def _run(self) -> None:
        try:
            with translate_base_exceptions():
                outcomes = await self._outcomes()
        except QuestionRequired:
            outcomes = [RuntimeError("a tool with batch=True runs for several calls, and can ask nobody")]
        except Exception as error:  # noqa: BLE001 -- all calls get any exception of a tool
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


# Retries of a failed tool.

_JITTER = 0.2
"""Calls that failed together are not retried together."""


def next_delay(retries: Retries | None, heartbeat: ActivityHeartbeat) -> timedelta | None:
    """Count a failure; return the delay before the next attempt, or None if there is none."""
    if retries is None or (failed := heartbeat.count_failure()) >= retries.attempts:
        return None
    spread = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 -- it spreads load, it protects no secret
    return retries.delay_after(failed) * spread


def retry_of(problem: str, delay: timedelta, attempt: int) -> tuple[RetryScheduled, ApplicationError]:
    """Return the event of a failed attempt, and the failure that causes the retry; raise it `from None`."""
    reason = excerpt(problem)
    event = RetryScheduled(attempt=attempt, reason=reason, delay=delay.total_seconds())
    return event, ApplicationError(reason, type=failures.TOOL_FAILED, next_retry_delay=delay)

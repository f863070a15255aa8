"""Calls the function of a tool: in time, and whatever it raises."""

import asyncio
import inspect
import random
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from pathlib import Path

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.lease import Heartbeat
from everloop.agents.limits import Retries
from everloop.agents.questions import QuestionRequired
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import excerpt, result_text
from everloop.runtime.telemetry.logs import chain_of
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import QUICK_RESULT, QUICK_TIME, RunToolInput, ToolReply
from everloop.workflows.contract.events import RetryScheduled


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
    code = getattr(inspect.unwrap(tool.function), "__code__", None)
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
    except TimeoutError:
        if not limit.expired():
            raise
        await tell_slow(clock() - began)
        raise _not_quick(f"{name} did not finish within {QUICK_TIME:g} s") from None
    if (took := clock() - began) >= SLOW:
        await tell_slow(took)
    # What it came to is recorded, and is not worked out again.
    if len(reply.model_dump_json().encode()) > QUICK_RESULT:
        raise _not_quick(f"the reply of {name} has more than {QUICK_RESULT:,} bytes")
    return reply


def _not_quick(problem: str) -> ApplicationError:
    return ApplicationError(problem, type=failures.NOT_QUICK, non_retryable=True)


class ToolFunctions:
    """Calls async tools in the event loop and sync ones in threads of their own, at most `threads` at once.

    A sync tool that never returns keeps nothing from running but, in the end, other sync tools.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tool")

    async def call(self, tool: Tool, arguments: dict[str, object], seconds: float) -> str:
        """Return what the tool returns, as text.

        Raises:
            QuestionRequired: the tool asks people.
            ToolFailure: it raised something else, or did not finish in time.
            CancelledError: we are cancelled, and not only something that the tool called.
        """
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                value = await self._invoke(tool, arguments)
            return result_text(value)
        except (QuestionRequired, ToolFailure):
            raise
        except asyncio.CancelledError as error:
            this = asyncio.current_task()
            if this and this.cancelling():
                raise
            problem = f"{tool.name} was cancelled by something that it called"
            raised: BaseException = error
        except Exception as error:  # noqa: BLE001 -- whatever a tool raises, the model reads it
            raised = error
            is_late = isinstance(error, TimeoutError) and limit.expired()
            late = f"{tool.name} did not finish within {seconds:g} s"
            problem = late if is_late else f"{type(error).__name__}: {error}"
        raise ToolFailure(problem, raised, tool)

    async def _invoke(self, tool: Tool, arguments: dict[str, object]) -> object:
        """Call the function; a sync one in a thread, which goes on after a timeout: none can be stopped."""
        try:
            if tool.is_async:
                return await tool.function(**arguments)
            call = partial(copy_context().run, tool.function, **arguments)
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except SystemExit as error:  # it would end the worker
            raise ToolFailure(f"SystemExit: {error}", error, tool) from None


# The next attempt of a tool that failed.

_JITTER = 0.2
"""Calls that failed together do not come back together."""


def next_delay(retries: Retries | None, heartbeat: Heartbeat) -> timedelta | None:
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

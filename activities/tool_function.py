"""Calls the function of a tool: in time, and whatever it raises."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

import structlog
from temporalio import activity

from activities.tool_result import result_text
from agents.questions import QuestionRequired
from agents.tool import Tool

_log = structlog.get_logger()


class ToolFailure(Exception):  # noqa: N818 -- the word of the field for what a tool comes to
    """The tool raised, or took too long; the message is what the model reads."""


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
            CancelledError: the activity is cancelled, or its worker shuts down.
        """
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                invoked = self._invoke(tool, arguments)
                value = await (invoked if tool.idempotent else _undisturbed(invoked, limit))
            return result_text(value)
        except (QuestionRequired, ToolFailure):
            raise
        except asyncio.CancelledError:
            if activity.is_cancelled() or activity.is_worker_shutdown():
                raise
            problem = f"{tool.name} was cancelled by something that it called"
        except Exception as error:  # noqa: BLE001 -- whatever a tool raises, the model reads it
            _log.warning("tool failed", tool=tool.name, error_type=type(error).__name__)
            is_late = isinstance(error, TimeoutError) and limit.expired()
            late = f"{tool.name} did not finish within {seconds:g} s"
            problem = late if is_late else f"{type(error).__name__}: {error}"
        raise ToolFailure(problem)

    async def _invoke(self, tool: Tool, arguments: dict[str, object]) -> object:
        """Call the function; a sync one in a thread, which goes on after a timeout: none can be stopped."""
        try:
            if tool.is_async:
                return await tool.function(**arguments)
            call = partial(copy_context().run, tool.function, **arguments)
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except SystemExit as error:  # it would end the worker
            raise ToolFailure(f"SystemExit: {error}") from None


async def _undisturbed(invoked: Coroutine[None, None, object], limit: asyncio.Timeout) -> object:
    """Let a tool that must not run twice come to its end while its activity is paused or reset.

    Stopped, it could only be told as an unknown outcome. Its own time and the end of the task still bound it.
    """
    running = asyncio.create_task(invoked)
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if limit.expired() or not _comes_again():
                running.cancel()
                break
            if this := asyncio.current_task():
                this.uncancel()
    return await running


def _comes_again() -> bool:
    """Whether the activity is cancelled only because an operator paused or reset it."""
    details = activity.cancellation_details()
    if details is None or activity.is_worker_shutdown():
        return False
    return (details.paused or details.reset) and not details.cancel_requested

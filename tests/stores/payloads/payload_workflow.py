"""A workflow that moves large payloads along each path of Temporal."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

TIMEOUT = timedelta(seconds=30)


@activity.defn
async def repeat(text: str) -> str:
    """Return the argument."""
    return text


@activity.defn
async def make(text: str, size: int) -> str:
    """Return the text repeated to `size` characters."""
    return (text * size)[:size]


@activity.defn
async def fail_once(text: str) -> str:
    """Heartbeat with a large detail and fail; then return that detail."""
    details = activity.info().heartbeat_details
    if details:
        return str(details[0])
    activity.heartbeat(text)
    raise RuntimeError("the first attempt fails")


async def _call(function: Callable[..., Awaitable[str]], *arguments: str | int) -> str:
    return await workflow.execute_activity(
        function,
        args=arguments,
        start_to_close_timeout=TIMEOUT,
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=5),
    )


@workflow.defn
class Echo:
    """The child: returns its argument in the other case."""

    @workflow.run
    async def run(self, text: str) -> str:
        return text.swapcase()


@workflow.defn
class Parcels:
    """Does an errand with a large text for each request, until its end is requested."""

    @workflow.init
    def __init__(self, text: str, runs: int) -> None:
        self._text = text
        self._errands: asyncio.Queue[str] = asyncio.Queue()
        self._done = 0

    @workflow.run
    async def run(self, text: str, runs: int) -> str:
        if runs:
            workflow.continue_as_new(args=(text, runs - 1))
        while (errand := await self._errands.get()) != "end":
            self._text = await self._do(errand)
            self._done += 1
        return self._text

    async def _do(self, errand: str) -> str:
        match errand:
            case "repeat":
                return await _call(repeat, self._text)
            case "shout":
                return await _call(repeat, self._text.upper())
            case "cut":
                return await _call(make, self._text.upper(), 1)
            case "make":
                return await _call(make, "x", len(self._text))
            case "heartbeat":
                return await _call(fail_once, self._text)
            case _:
                child = f"{workflow.info().workflow_id}/child"
                return await workflow.execute_child_workflow(Echo.run, self._text, id=child)

    @workflow.signal
    def do(self, errand: str) -> None:
        self._errands.put_nowait(errand)

    @workflow.signal
    def replace(self, text: str) -> None:
        self._text = text

    @workflow.update
    async def swap(self, text: str) -> str:
        """Store the text, and return the former one."""
        former, self._text = self._text, text
        return former

    @workflow.query
    def done(self) -> int:
        return self._done

    @workflow.query
    def text(self) -> str:
        return self._text

    @workflow.query
    def has(self, text: str) -> bool:
        return self._text == text

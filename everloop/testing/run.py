"""Running an agent once, from a script or a notebook."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from everloop.agents.agent import Agent, Output
from everloop.client import Content, Result
from everloop.testing.app import running
from everloop.testing.model import StandIn

LONGEST = 3600.0
"""Seconds that a task may take."""

T = TypeVar("T")


def run(
    agent: Agent[Output],
    *content: Content,
    agents: Sequence[Agent] = (),
    model: StandIn | str | None = None,
    timeout: float = LONGEST,
) -> Result[Output]:
    """Run an agent in this process, ask it, and return what came of it: `run(agent, "…").text`.

    It needs `everloop[local]`, and a provider's key unless a stand-in answers. It works in a notebook, too.
    What the task keeps is gone with the process; `everloop up` runs agents that stay.

    Args:
        agent: The agent.
        content: Texts and parts, as of `Client.send`.
        agents: Those that it hands over to, or that are its sub-agents.
        model: The model of agents that name none; or a `Script`, `FunctionModel` or `Recording` in place of
            all models.
        timeout: Seconds to wait.

    Raises:
        TestingError: the agent cannot be run, or did not end in time; the message says why.
        TaskNotCompletedError: the task has failed.
    """

    async def work() -> Result[Output]:
        async with running(agent, *agents, model=model, timeout=timeout) as app:
            return await app.ask(*content)

    result = _run(work)
    return result.raise_for_state() if result.is_done else result


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return _run_beside(work) if _has_loop() else asyncio.run(work())


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_beside(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run in a thread: this one has a loop that runs, such as a notebook's."""
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def working() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task  # noqa: S101 -- this is one
        begun.set_result((loop, task))
        return await work()

    with ThreadPoolExecutor(1, "everloop") as pool:
        running = pool.submit(lambda: asyncio.run(working()))
        try:
            return running.result()
        except BaseException:  # Ctrl-C, too: nothing goes on in the thread
            if not running.done():
                loop, task = begun.result()
                loop.call_soon_threadsafe(task.cancel)
            raise

"""Runs an agent once, from a script or a notebook.

It has a module of its own because it is not asynchronous, as all else here is.
"""

from collections.abc import Sequence

from everloop.agents.agent import Agent, Output
from everloop.client import Content, Result
from everloop.client.sync import LoopThread
from everloop.testing.app import running
from everloop.testing.model import StandIn

LONGEST = 3600.0
"""Seconds that a task may take."""


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

    thread = LoopThread()  # this one may have a loop that runs, such as a notebook's
    try:
        result = thread.run(work())
    finally:
        thread.close()
    return result.raise_for_state() if result.is_done else result

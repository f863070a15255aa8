"""Runs an agent once, from a script or a notebook. The only synchronous module here."""

from collections.abc import Sequence

from everloop.agents.agent import Agent, Output
from everloop.client import Content, Result
from everloop.client.sync import LoopThread
from everloop.testing.model import StandIn
from everloop.testing.running_app import running

LONGEST = 3600.0
"""Default timeout of a task in seconds."""


def run(
    agent: Agent[Output],
    *content: Content,
    agents: Sequence[Agent] = (),
    model: StandIn | str | None = None,
    timeout: float = LONGEST,
) -> Result[Output]:
    """Run an agent in this process, send a message, and return the result: `run(agent, "…").text`.

    It needs `everloop[local]`, and a provider's key unless a stand-in answers. It works in notebooks
    too. The task's state ends with the process; `everloop up` runs agents that stay.

    Args:
        agent: The agent.
        content: Texts and parts, as of `Client.send`.
        agents: Further agents: handoff targets and sub-agents.
        model: The model of agents that name none; or a `Script`, `FunctionModel` or `Recording` in place of
            all models.
        timeout: Seconds.

    Raises:
        TestingError: the agent cannot run, or did not end in time; the message has the reason.
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

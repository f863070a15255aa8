"""Replay past tasks on a real model, and count the expected results.

A case is a file that `everloop.testing.export` has written, of a successful task. The texts of the
model may differ; its tool calls with their arguments, and the final state of the task, may not.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from my_agents.weather import agent

from everloop.client import Result
from everloop.testing import Case, StandIn, TestingError, running

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def difference(case: Case, result: Result) -> str:
    """Return the difference of a task from its expected result; empty if they match."""
    wanted = [(call.name, call.arguments) for call in case.expected.calls]
    made = [(call.name, call.arguments) for call in result.tool_calls]
    if result.state != case.expected.state:
        return f"it is {result.state}, not {case.expected.state}: {result.error or result.text}"
    return "" if made == wanted else f"it called {made}, not {wanted}"


async def evaluate(model: StandIn | str) -> float:
    """Replay cases, print the result of each, and return the fraction that passed."""
    outcomes: list[bool] = []
    async with running(agent, model=model) as app:
        for file in CASES:
            case = Case.load(file)
            try:
                why = difference(case, await case.ask(app))
            except TestingError as error:
                why = str(error)
            outcomes.append(not why)
            sys.stdout.write(f"{file.stem}: {why or 'right'}\n")
    return sum(outcomes) / len(outcomes) if outcomes else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="such as gpt-4.1-mini")
    parser.add_argument("--least", type=float, default=1.0, help="the part of cases that has to be right")
    arguments = parser.parse_args()
    share = asyncio.run(evaluate(arguments.model))
    sys.exit(0 if share >= arguments.least else f"{share:.0%} are right, not {arguments.least:.0%}")

"""A tool that raises leaves where it did so: in the log of its worker, and in the event of its end."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from everloop import tool
from everloop.workflows.contract.events import ToolCompleted
from tests.support.rigs.tool_rig import ToolRig

CONTENT = "what the customer said"
HERE = Path(__file__).name


def check(amount: str) -> None:
    if int(amount) < 0:
        raise ValueError(CONTENT)


@tool
async def pay(amount: str) -> str:
    """Pay."""
    check(amount)
    return amount


@tool
def pay_in_a_thread(amount: str) -> str:
    """Pay."""
    check(amount)
    return json.loads(amount)


@tool
async def hang(amount: str) -> str:
    """Never end."""
    await asyncio.Event().wait()
    return amount


@tool
async def leave(amount: str) -> str:
    """End the process."""
    raise SystemExit(amount)


def line_of(function: Callable[..., object], text: str) -> int:
    """Return the number of the first line of a function that has a text."""
    lines = Path(__file__).read_text().splitlines()
    begin = function.__code__.co_firstlineno
    return next(n for n, line in enumerate(lines[begin - 1 :], begin) if text in line)


@pytest.mark.parametrize(
    ("name", "amount", "kind", "where", "text"),
    [
        ("pay", "-1", "ValueError", check, "raise ValueError"),
        ("pay_in_a_thread", "-1", "ValueError", check, "raise ValueError"),
        ("pay_in_a_thread", "x", "ValueError", check, "if int(amount)"),
        ("hang", "1", "TimeoutError", hang.function, "await asyncio.Event"),
        ("leave", "1", "SystemExit", leave.function, "raise SystemExit"),
    ],
    ids=["async", "sync", "in_a_library", "late", "exit"],
)
async def test_the_line_of_the_author_is_told(
    name: str, amount: str, kind: str, where: Callable[..., object], text: str
) -> None:
    """In the log with the stack, without a word of what was said; to clients without its folder."""
    rig = ToolRig(pay, pay_in_a_thread, hang, leave)
    call = rig.call(name, json.dumps({"amount": amount}))

    with capture_logs() as logs:
        await rig.run(call.model_copy(update={"timeout": 0.05}) if name == "hang" else call)

    raised_at = f"{HERE}:{line_of(where, text)} {where.__name__}"
    told = (await rig.events())[-1]
    assert isinstance(told, ToolCompleted)
    assert told.raised_at == raised_at
    (failed,) = [entry for entry in logs if entry["event"] == "tool failed"]
    assert (failed["tool"], failed["raised_at"], failed["error_type"]) == (name, raised_at, kind)
    assert failed["log_level"] == "warning"
    if name != "hang":  # where it was is in what led to the error
        assert any(
            frame.endswith(f"{HERE}:{line_of(where, text)} {where.__name__}")
            for frame in failed["stack"].splitlines()
        )
    assert CONTENT not in str([entry for entry in logs if entry["log_level"] != "debug"])


async def test_who_debugs_reads_all_of_it() -> None:
    """At level debug, as Python prints it."""
    rig = ToolRig(pay)
    with capture_logs() as logs:
        await rig.run(rig.call("pay", '{"amount": "-1"}'))
    (whole,) = [entry for entry in logs if entry["event"] == "tool traceback"]
    assert whole["log_level"] == "debug"
    assert whole["exception"].startswith("Traceback (most recent call last):")
    assert whole["exception"].endswith(f"ValueError: {CONTENT}")


async def test_a_tool_that_worked_tells_no_line() -> None:
    """There is nothing to look at."""
    rig = ToolRig(pay)
    await rig.run(rig.call("pay", '{"amount": "1"}'))
    told = (await rig.events())[-1]
    assert isinstance(told, ToolCompleted)
    assert told.raised_at == ""

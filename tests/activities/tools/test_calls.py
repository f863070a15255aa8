"""Tool calls: validated, recorded, published, logged and traced."""

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import AfterValidator
from structlog.testing import capture_logs
from temporalio.testing import ActivityEnvironment

from everloop.agents.limits import Retries
from everloop.agents.question_exceptions import InputRequired
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import StoreResultInput
from everloop.workflows.contract.events import (
    StatusChanged,
    ToolCompleted,
    ToolProgressed,
    ToolStarted,
    Warned,
)
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.tasks import Identity, TaskState
from tests.support.fakes.failing import failing
from tests.support.recorded_metrics import Recorded
from tests.support.rigs.tool_rig import ToolRig
from tests.support.stores import database


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool
async def fail() -> str:
    """Raise."""
    raise ValueError("the disk is full")


@tool
async def impatient() -> str:
    """Time out at once."""
    async with asyncio.timeout(0):
        await asyncio.Event().wait()
    return ""


@tool
async def leaky() -> str:
    """Raise a cancellation of its own."""
    raise asyncio.CancelledError


@tool
def quitter() -> str:
    """End the process."""
    raise SystemExit(3)


class SpeechlessError(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise ValueError


@tool
async def speechless() -> str:
    """Raise an error without a text."""
    raise SpeechlessError


@tool
def circle() -> list[object]:
    """Return a list that holds itself."""
    circle: list[object] = []
    circle.append(circle)
    return circle


FAILURES: list[tuple[Tool, str]] = [
    (fail, "ValueError: the disk is full"),
    (impatient, "TimeoutError: "),
    (leaky, "CancelledError: something that it called was cancelled"),
    (quitter, "SystemExit: 3"),
    (speechless, "SpeechlessError: (it cannot say what)"),
    (circle, "Circular reference"),
]


@pytest.mark.parametrize(("offered", "told"), FAILURES, ids=lambda each: getattr(each, "name", ""))
async def test_what_a_tool_raises_is_its_own(offered: Tool, told: str) -> None:
    """A timeout, cancellation, exit or result other than JSON of a tool is an error for the model alone."""
    rig = ToolRig(offered)
    result = await rig.run(rig.call(offered.name))
    assert result.outcome == "error"
    assert told in result.content


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"number": "many"}', "number: Input should be a valid integer"),
        ("{}", "number: Field required"),
        ('{"number": 1, "size": 2}', "size: Extra inputs are not permitted"),
        ('{"number": 1', "Invalid JSON"),
        ("[1]", "Input should be an object"),
    ],
)
async def test_bad_arguments_go_back_to_the_model(arguments: str, expected: str) -> None:
    """Invalid arguments go back to the model with the field and the expected value; the tool does not run."""
    rig = ToolRig(double)
    result = await rig.run(rig.call("double", arguments))
    assert result.outcome == "invalid"
    assert expected in result.content
    assert "expected arguments: number" in result.content


async def test_arguments_whose_validator_fails_go_back_to_the_model() -> None:
    """Arguments whose validator raises any error go back to the model: a retry would never succeed."""

    def look_up(given: str) -> str:
        return {"a": "b"}[given]

    @tool
    async def find(name: Annotated[str, AfterValidator(look_up)]) -> str:
        """Find it."""
        return name

    rig = ToolRig(find)
    result = await rig.run(rig.call("find", '{"name": "x"}'))
    assert result.outcome == "invalid"
    assert result.content.startswith(
        "invalid arguments for find:\n- arguments: a validator raised KeyError: 'x'"
    )


async def test_an_unknown_tool_is_an_error_that_lists_the_known_ones() -> None:
    """An unknown tool is an error that lists the known ones; text with the call is published all the same."""
    rig = ToolRig(double, fail)
    status = StatusChanged(version=2, state=TaskState.WORKING, at=datetime.now(UTC))
    result = await rig.run(rig.call("triple").model_copy(update={"statuses": (status,)}))
    assert result.outcome == "invalid"
    assert result.content == "there is no tool 'triple'; available tools: double, fail"
    assert (await rig.events())[0] == status


EARLIER = [ToolMessage(call_id="earlier", name="double", content="")] * 3
"""The messages before the results of the calls of these tests."""


async def cached(rig: ToolRig) -> object:
    """Return the cached result that the next model call reads."""
    opened = await rig.transcripts.open(rig.task_id, "run", 4)
    return opened.messages and opened.messages[3]


async def test_a_result_is_cached_and_published() -> None:
    """A result is cached and published; a late attempt of a suspended worker replaces nothing."""
    rig = ToolRig(double)
    await rig.transcripts.put(rig.task_id, "run", 0, EARLIER)
    call = rig.call("double", '{"number": "21"}').model_copy(update={"warning": "triple failed"})
    result = await rig.run(call)
    assert result == await cached(rig) == ToolMessage(call_id="call", name="double", content="42")
    assert await rig.events() == [
        Warned(text="triple failed"),
        ToolStarted(call_id="call", name="double", attempt=1),
        ToolCompleted(call_id="call", name="double", outcome="ok", result="42", size=2),
    ]
    assert (await rig.run(rig.call("double", '{"number": "many"}'))).outcome == "invalid"
    assert await cached(rig) == result


@pytest.mark.parametrize("has_fallback", [True, False])
async def test_a_failure_is_cached_unless_another_tool_stands_in(*, has_fallback: bool) -> None:
    """A failure is cached unless a fallback tool takes its place in the transcript."""
    rig = ToolRig(double, fail)
    await rig.transcripts.put(rig.task_id, "run", 0, EARLIER)
    failed = await rig.run(rig.call("fail").model_copy(update={"has_fallback": has_fallback}))
    fallback = await rig.run(rig.call("double", '{"number": 1}'))
    assert failed.outcome == "error"
    assert await cached(rig) == (fallback if has_fallback else failed)


async def test_a_result_of_the_workflow_is_cached_and_told() -> None:
    """A result of the workflow, such as a sub-agent's, is cached and published.

    A repeated one changes nothing.
    """
    rig = ToolRig(double)
    await rig.transcripts.put(rig.task_id, "run", 0, EARLIER)
    result = ToolMessage(call_id="call", name="writer", content="a poem")
    for _ in range(2):
        call = StoreResultInput(task=rig.task, position=3, result=result)
        await ActivityEnvironment().run(rig.port.store_result, call)
    told = ToolCompleted(call_id="call", name="writer", outcome="ok", result="a poem", size=6)
    assert await cached(rig) == result
    assert (await rig.events())[0] == told


async def test_tools_that_hang_leave_room_for_others() -> None:
    """Sync tools have many threads of their own: hanging ones leave room for others."""
    gate = threading.Event()

    @tool
    def hang() -> str:
        """Wait for the gate."""
        gate.wait()
        return ""

    rig = ToolRig(hang, double)
    hung = [await rig.run(rig.call("hang", call_id=f"h{n}", wait=0.001)) for n in range(40)]
    result = await rig.run(rig.call("double", '{"number": 1}'))
    gate.set()
    assert result.content == "2"
    late = ("error", "hang did not finish within 0.001 s")
    assert {(each.outcome, each.content) for each in hung} == {late}


@pytest.mark.parametrize("away", [("finishing",), ("finishing", "renew")], ids=["at the end", "before"])
async def test_an_outcome_that_cannot_be_recorded_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, away: tuple[str, ...]
) -> None:
    """An outcome that cannot be recorded is returned, not retried.

    The same holds for a suspended attempt that cannot check its lease.
    """
    if "renew" in away:
        monkeypatch.setattr("everloop.activities.tools.records.TOOL_LEASE", 0)
    rig = ToolRig(double, records=failing(ToolRecords(database()), *away))
    assert (await rig.run(rig.call("double", '{"number": 1}'))).content == "2"


@tool
async def who(context: ToolContext) -> str:
    """Say who started the task."""
    await context.progress("halfway")
    return f"{context.owner}/{context.auth.scheme}/{context.auth.subject}/{context.auth.claims}"


async def test_a_tool_knows_the_caller_and_reports_progress() -> None:
    """A tool gets the caller, or the owner if anonymous, and reports progress.

    Its context is not a parameter for the model.
    """
    rig = ToolRig(who)
    identity = Identity(scheme="bearer", subject="ann", claims={"tenant": "blue"})
    call = rig.call("who").model_copy(update={"identity": identity})
    assert (await rig.run(call)).content == "owner/bearer/ann/{'tenant': 'blue'}"
    assert (await rig.run(rig.call("who", call_id="other"))).content == "owner///{}"
    assert ToolProgressed(call_id="call", name="who", message="halfway") in await rig.events()
    assert "context" not in str(who.parameters)


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
    """Return the number of a function's first line with a text."""
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
    """A failure has the author's line: logs have the stack without messages, clients no folder."""
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
    if name != "hang":  # only an error has the line in its traceback
        assert any(
            frame.endswith(f"{HERE}:{line_of(where, text)} {where.__name__}")
            for frame in failed["stack"].splitlines()
        )
    assert CONTENT not in str([entry for entry in logs if entry["log_level"] != "debug"])


@tool(retries=Retries(attempts=2, delay=timedelta(0)))
def act(how: str) -> str:
    """Do something."""
    if how == "ask":
        raise InputRequired("hush")
    if how == "fail":
        raise ValueError("hush")
    return "hush"


@pytest.mark.parametrize(
    ("how", "outcomes", "errors"),
    [
        ("do", ["ok"], [None]),
        ("ask", ["question"], [None]),
        ("fail", [None, "error"], [failures.TOOL_FAILED, None]),
        (1, ["invalid"], [None]),
    ],
)
async def test_each_attempt_is_a_span(
    spans: InMemorySpanExporter, how: str, outcomes: list[str | None], errors: list[str | None]
) -> None:
    """Each attempt is a span with its outcome, without arguments and results."""
    rig = ToolRig(act)

    await rig.attempts(rig.call("act", f'{{"how": {how!r}}}'.replace("'", '"')))

    spans_of_act = [span for span in spans.get_finished_spans() if span.name == "execute_tool act"]
    found = [(span, dict(span.attributes or {})) for span in spans_of_act]
    mine = [attributes for _, attributes in found if attributes["everloop.task.id"] == rig.task_id]
    assert not any("hush" in span.to_json() for span, _ in found)
    assert [attributes.pop("error.type", None) for attributes in mine] == errors
    assert [attributes.pop("everloop.tool.outcome", None) for attributes in mine] == outcomes
    assert mine[0] == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "act",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call",
        "gen_ai.agent.id": "agent",
        "gen_ai.agent.name": "Agent",
        "gen_ai.conversation.id": "c",
        "everloop.task.id": rig.task_id,
    }


@pytest.mark.parametrize(
    ("name", "arguments", "outcomes", "runs"),
    [
        ("act", '{"how": "do"}', ["ok"], 1),
        ("act", '{"how": "ask"}', ["question"], 1),
        ("act", '{"how": "fail"}', ["retried", "error"], 2),
        ("act", '{"how": 1}', ["invalid"], 0),
        ("made_up_by_a_model", "{}", ["invalid"], 0),
    ],
)
async def test_each_attempt_counts(name: str, arguments: str, outcomes: list[str], runs: int) -> None:
    """Each attempt is counted with its outcome; its function is timed alone. Unknown names are not labels."""
    rig, recorded = ToolRig(act), Recorded()
    await rig.attempts(rig.call(name, arguments))
    shown = name if name == "act" else "unknown"
    counts = {("agent", outcome, shown): 1 for outcome in outcomes}
    assert recorded.counts("everloop.tool.calls") == counts
    assert recorded.counts("everloop.tool.duration") == ({("agent", "act"): runs} if runs else {})


async def test_a_cancelled_call_counts() -> None:
    """A cancelled call is counted as such, with its duration."""
    begun = asyncio.Event()

    @tool
    async def endless() -> None:
        """Never end."""
        begun.set()
        await asyncio.Event().wait()

    rig, recorded, environment = ToolRig(endless), Recorded(), ActivityEnvironment()
    running = asyncio.create_task(environment.run(rig.port.run_tool, rig.call("endless")))
    await begun.wait()
    environment.cancel()
    await asyncio.wait([running])
    assert recorded.counts("everloop.tool.calls") == {("agent", "canceled", "endless"): 1}
    assert recorded.counts("everloop.tool.duration") == {("agent", "endless"): 1}


@tool(idempotent=True)
async def open_vault(context: ToolContext) -> str:
    """Ask for a secret, and repeat it."""
    return f"opened with {await context.secret('token')}"


async def test_arguments_and_result_are_on_the_span_where_that_is_wanted(spans: InMemorySpanExporter) -> None:
    """Captured arguments and results are on the span, with supplied secrets redacted."""
    rig = ToolRig(act, open_vault, captures_content=True)
    await rig.supply("token", "hunter2-hunter2")
    await rig.run(rig.call("act", '{"how": "do"}'))
    await rig.run(rig.call("open_vault", call_id="other"))
    found = [dict(span.attributes or {}) for span in spans.get_finished_spans()]
    acted, opened = (one for one in found if one.get("everloop.task.id") == rig.task_id)
    assert json.loads(str(acted["gen_ai.tool.call.arguments"])) == {"how": "do"}
    assert json.loads(str(acted["gen_ai.tool.call.result"])) == "hush"
    assert json.loads(str(opened["gen_ai.tool.call.result"])) == "opened with [secret]"

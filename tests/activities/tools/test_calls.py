"""How a tool call runs: validated, at most once, recorded, told."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.agents.tool import Tool, tool
from everloop.agents.tool_arguments import MAX_RESULT_BYTES
from everloop.agents.tool_context import ToolContext
from everloop.stores.leases import Lease
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import StoreResultInput, ToolReply
from everloop.workflows.contract.events import (
    StatusChanged,
    ToolCompleted,
    ToolProgressed,
    ToolStarted,
    Warned,
)
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.tasks import TaskState
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.rigs.tool_rig import ToolRig


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool
def where() -> str:
    """Name the thread."""
    return threading.current_thread().name


@tool
async def fail() -> str:
    """Raise."""
    raise ValueError("the disk is full")


@tool
def much() -> str:
    """Return more than a model should read."""
    return "é" * MAX_RESULT_BYTES


@tool(timeout=timedelta(seconds=1))
async def endless() -> str:
    """Never return."""
    await asyncio.Event().wait()
    return ""


@tool
async def impatient() -> str:
    """Give up on something at once."""
    async with asyncio.timeout(0):
        await asyncio.Event().wait()
    return ""


@tool
async def leaky() -> str:
    """Be cancelled by something of its own."""
    raise asyncio.CancelledError


@tool
def quitter() -> str:
    """End the process."""
    raise SystemExit(3)


async def test_a_tool_gets_values_and_its_result_is_text() -> None:
    """Arguments are validated by the signature; what is not text becomes JSON."""
    rig = ToolRig(double)
    result = await rig.run(rig.call("double", '{"number": "21"}'))
    assert result == ToolMessage(call_id="call", name="double", content="42")


async def test_the_result_is_cached_at_its_position() -> None:
    """The next model call finds it in the transcript."""
    rig = ToolRig(double)
    earlier = ToolMessage(call_id="earlier", name="double", content="")
    await rig.transcripts.put(rig.task_id, "run", 0, [earlier] * 3)
    result = await rig.run(rig.call("double", '{"number": 1}'))
    opened = await rig.transcripts.open(rig.task_id, "run", 4)
    assert opened.messages
    assert opened.messages[3] == result


async def test_a_late_attempt_does_not_replace_a_result() -> None:
    """A worker that was frozen finds its artifact overtaken and its call done by another."""
    rig = ToolRig(double)
    earlier = ToolMessage(call_id="earlier", name="double", content="")
    await rig.transcripts.put(rig.task_id, "run", 0, [earlier] * 3)
    good = await rig.run(rig.call("double", '{"number": 1}'))
    await rig.run(rig.call("double", '{"number": "many"}'))
    opened = await rig.transcripts.open(rig.task_id, "run", 4)
    assert opened.messages
    assert opened.messages[3] == good


@pytest.mark.parametrize("has_fallback", [True, False])
async def test_a_failure_is_cached_unless_another_tool_stands_in(*, has_fallback: bool) -> None:
    """The result of that tool takes the place in the transcript."""
    rig = ToolRig(double, fail)
    earlier = ToolMessage(call_id="earlier", name="double", content="")
    await rig.transcripts.put(rig.task_id, "run", 0, [earlier] * 3)
    failed = await rig.run(rig.call("fail").model_copy(update={"has_fallback": has_fallback}))
    stands_in = await rig.run(rig.call("double", '{"number": 1}'))
    opened = await rig.transcripts.open(rig.task_id, "run", 4)
    assert failed.outcome == "error"
    assert opened.messages
    assert opened.messages[3] == (stands_in if has_fallback else failed)


async def test_subscribers_hear_of_start_and_end() -> None:
    """In order, with the attempt and the beginning of the result."""
    rig = ToolRig(double)
    await rig.run(rig.call("double", '{"number": 1}'))
    assert await rig.events() == [
        ToolStarted(call_id="call", name="double", attempt=1),
        ToolCompleted(call_id="call", name="double", outcome="ok", result="2", size=1),
    ]


async def test_subscribers_get_results_up_to_a_size() -> None:
    """In whole characters; they hear how much there is."""

    @tool
    def recite(lines: int) -> str:
        """Recite."""
        return "ü" * lines

    rig = ToolRig(recite)
    for number in (8_000, 8_001):
        await rig.run(rig.call("recite", f'{{"lines": {number}}}', call_id=f"c{number}"))
    ended = [event for event in await rig.events() if isinstance(event, ToolCompleted)]
    assert [(len(event.result), event.size, event.cut) for event in ended] == [
        (8_000, 16_000, False),
        (8_000, 16_002, True),
    ]


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
    """The error names the field and what the tool expects; the tool does not run."""
    rig = ToolRig(double)
    result = await rig.run(rig.call("double", arguments))
    assert result.outcome == "invalid"
    assert expected in result.content
    assert "expected arguments: number" in result.content


async def test_an_unknown_tool_is_an_error_that_lists_the_known_ones() -> None:
    """The model invented a name and can choose a real one. What it said with the call is told anyway."""
    rig = ToolRig(double, where)
    status = StatusChanged(version=2, state=TaskState.WORKING, at=datetime.now(UTC))
    result = await rig.run(rig.call("triple").model_copy(update={"statuses": (status,)}))
    assert result.outcome == "invalid"
    assert result.content == "there is no tool 'triple'; available tools: double, where"
    assert (await rig.events())[0] == status


async def test_a_warning_is_told_with_the_start() -> None:
    """Why this tool runs, and not the one that was asked for, is known before its result."""
    rig = ToolRig(double)
    call = rig.call("double", '{"number": 1}').model_copy(update={"warning": "triple failed"})
    await rig.run(call)
    assert (await rig.events())[:2] == [
        Warned(text="triple failed"),
        ToolStarted(call_id="call", name="double", attempt=1),
    ]


async def test_a_result_of_the_workflow_is_cached_and_told() -> None:
    """A sub-agent's answer is a result like any other; storing it again changes nothing in the cache."""
    rig = ToolRig(double)
    await rig.transcripts.put(rig.task_id, "run", 0, [ToolMessage(call_id="", name="", content="")] * 3)
    result = ToolMessage(call_id="call", name="writer", content="a poem")
    for _ in range(2):
        call = StoreResultInput(task=rig.task, position=3, result=result)
        await ActivityEnvironment().run(rig.port.store_result, call)
    opened = await rig.transcripts.open(rig.task_id, "run", 4)
    told = ToolCompleted(call_id="call", name="writer", outcome="ok", result="a poem", size=6)
    assert opened.messages
    assert opened.messages[3] == result
    assert (await rig.events())[0] == told


async def test_a_result_that_is_no_json_is_an_error() -> None:
    """A value that cannot be written down is the tool's mistake, and no reason to run it again."""

    @tool
    def circle() -> list[object]:
        """Return a list that holds itself."""
        circle: list[object] = []
        circle.append(circle)
        return circle

    rig = ToolRig(circle)
    result = await rig.run(rig.call("circle"))
    assert result.outcome == "error"
    assert "Circular reference" in result.content


async def test_an_exception_becomes_a_tool_error_without_a_stack_trace() -> None:
    """The model reads the type and the message."""
    rig = ToolRig(fail)
    result = await rig.run(rig.call("fail"))
    assert result.outcome == "error"
    assert result.content == "ValueError: the disk is full"


@pytest.mark.parametrize(
    ("offered", "expected"),
    [(impatient, "TimeoutError: "), (leaky, "leaky was cancelled"), (quitter, "SystemExit: 3")],
    ids=["timeout", "cancelled", "exit"],
)
async def test_what_a_tool_raises_is_its_own(offered: Tool, expected: str) -> None:
    """A timeout, a cancellation or an exit of the tool's own making is an error for the model, no more."""
    rig = ToolRig(offered)
    result = await rig.run(rig.call(offered.name))
    assert result.outcome == "error"
    assert result.content.startswith(expected)


async def test_tools_that_hang_leave_room_for_others() -> None:
    """Sync tools have threads of their own, many more than the loop's default executor."""
    gate = threading.Event()

    @tool
    def hang() -> str:
        """Wait for the gate."""
        gate.wait()
        return ""

    rig = ToolRig(hang, double)
    for n in range(40):
        assert (await rig.run(rig.call("hang", call_id=f"h{n}", wait=0.001))).outcome == "error"
    result = await rig.run(rig.call("double", '{"number": 1}'))
    gate.set()
    assert result.content == "2"


async def test_the_same_id_with_other_arguments_is_another_call() -> None:
    """After a Reset a model may use an id again; it must not get the outcome of another call."""
    rig = ToolRig(double)
    first = await rig.run(rig.call("double", '{"number": 1}'))
    second = await rig.run(rig.call("double", '{"number": 2}'))
    assert (first.content, second.content) == ("2", "4")


async def test_an_outcome_that_cannot_be_recorded_is_not_lost() -> None:
    """We know how the call ended; that is what history gets, not a retry that only knows its beginning."""

    class FailingRecords(MemoryToolRecords):
        async def finish(self, lease: Lease, outcome: ToolReply) -> ToolReply:
            raise RedisConnectionError

    rig = ToolRig(double, records=FailingRecords())
    assert (await rig.run(rig.call("double", '{"number": 1}'))).content == "2"


async def test_a_sync_tool_runs_in_a_thread() -> None:
    """It does not hold up the other calls of the worker."""
    rig = ToolRig(where)
    assert (await rig.run(rig.call("where"))).content != threading.main_thread().name


async def test_a_tool_that_takes_too_long_is_ended() -> None:
    """The error says how long it had."""
    rig = ToolRig(endless)
    result = await rig.run(rig.call("endless", wait=0.01))
    assert result.outcome == "error"
    assert result.content == "endless did not finish within 0.01 s"


async def test_a_long_result_is_cut_with_a_note() -> None:
    """The note says how much is missing; the cut falls between characters."""
    rig = ToolRig(much)
    result = await rig.run(rig.call("much"))
    kept, _, note = result.content.rpartition("\n")
    assert len(kept.encode()) == MAX_RESULT_BYTES
    assert note.startswith(f"[{MAX_RESULT_BYTES} of {2 * MAX_RESULT_BYTES} bytes were cut")


async def test_a_tool_reports_progress() -> None:
    """The context belongs to the tool; the model does not see the parameter."""

    @tool
    async def count(context: ToolContext) -> str:
        """Count."""
        await context.progress("halfway")
        return context.task_id

    rig = ToolRig(count)
    result = await rig.run(rig.call("count"))
    assert result.content == rig.task_id
    assert ToolProgressed(call_id="call", name="count", message="halfway") in await rig.events()
    assert "context" not in str(count.parameters)


async def test_an_agent_that_this_worker_lacks_is_left_to_another() -> None:
    """The failure is retryable and lists the agents that are here."""
    rig = ToolRig(double)
    call = rig.call("double")
    stranger = call.model_copy(update={"task": call.task.model_copy(update={"agent_id": "other"})})
    with pytest.raises(ApplicationError, match="this process serves: agent") as error:
        await rig.run(stranger)
    assert error.value.type == failures.AGENT_UNKNOWN
    assert not error.value.non_retryable

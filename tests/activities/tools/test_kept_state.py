"""What a tool keeps of a call, so that a later attempt goes on where the last one was lost."""

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis

from everloop.activities.tools.records import MAX_KEPT_BYTES
from everloop.agents.questions import InputRequired
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.tool_records import ToolRecords
from everloop.workflows.contract.messages import ToolMessage
from tests.support.fakes.failing import failing
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.rigs.tool_rig import ToolRig, yes


async def test_an_attempt_finds_what_the_lost_one_kept(redis: Redis) -> None:
    """A worker dies after it has begun a job: the next one takes up the same job, and begins no other."""
    begun: list[str] = []

    class DiedError(BaseException):
        """Nothing of the attempt comes back, as when a process is killed."""

    @tool(idempotent=True)
    async def run(context: ToolContext) -> str:
        """Run a job."""
        job = context.kept
        if job is None:
            job = f"job {len(begun)}"
            begun.append(job)
            await context.keep(job)
            raise DiedError
        return f"done: {job}"

    rig = ToolRig(run, records=ToolRecords(redis))
    with pytest.raises(DiedError):
        await rig.attempt_call(rig.call("run"))

    result = await rig.attempt_call(rig.call("run"))

    assert isinstance(result, ToolMessage)
    assert (result.content, begun) == ("done: job 0", ["job 0"])


async def test_other_calls_keep_for_themselves() -> None:
    """Of another id, or with other arguments."""

    @tool
    async def count(by: int, context: ToolContext) -> JsonValue:
        """Count."""
        await context.keep(by)
        return context.kept

    rig = ToolRig(count)
    calls = [
        rig.call("count", f'{{"by": {by}}}', call_id=name) for by, name in ((1, "a"), (1, "b"), (2, "a"))
    ]
    assert [(await rig.run(call)).content for call in calls] == ["null"] * 3


async def test_a_call_finds_what_it_kept_before_a_question(redis: Redis) -> None:
    """The answer begins another phase of the same call."""

    @tool
    async def fill(context: ToolContext) -> JsonValue:
        """Fill a form."""
        if context.answer is None:
            await context.keep({"form": 7})
            raise InputRequired("Name?", "confirmation")
        return context.kept

    rig = ToolRig(fill, records=ToolRecords(redis))
    question = await rig.ask(rig.call("fill"))
    assert (await rig.run(rig.call("fill", "{}", yes(question)))).content == '{"form":7}'


def _keeping(value: JsonValue) -> Tool:
    @tool
    async def keep(context: ToolContext) -> str:
        """Keep."""
        await context.keep(value)
        return "kept"

    return keep


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            "x" * (MAX_KEPT_BYTES - 1),
            "65537 bytes of JSON, and a call may keep 65536; write the rest into an",
        ),
        (float("nan"), "keep takes a JSON value, and this is none: Out of range float values"),
        ([object()], "keep takes a JSON value, and this is none: Object of type object"),
    ],
    ids=["large", "nan", "object"],
)
async def test_what_cannot_be_kept_is_told_to_the_tool(value: JsonValue, problem: str) -> None:
    """The error says what would fit; what was kept before stays."""
    rig = ToolRig(_keeping(value))
    result = await rig.run(rig.call("keep"))
    assert result.outcome == "error"
    assert problem in result.content


async def test_an_outage_while_a_tool_keeps_is_waited_out() -> None:
    """The tool has begun, and must not fail for what is no fault of its own."""
    rig = ToolRig(_keeping(1), records=failing(MemoryToolRecords(), "keep", times=1))
    assert (await rig.run(rig.call("keep"))).content == "kept"

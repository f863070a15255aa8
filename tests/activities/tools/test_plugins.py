"""Plugins around a tool call: changed arguments, vetoes, and results for the model."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from everloop.agents.hooks import Veto
from everloop.agents.limits import Retries
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.tool_records import Claim
from everloop.workflows.contract.events import ToolCompleted, ToolStarted
from everloop.workflows.contract.messages import ToolMessage
from tests.support.rigs.tool_rig import ADA, Post, ToolRig, after, before, fails, send_tool, to


def _no_sundays(_: object) -> Veto:
    return Veto("not on Sundays")


async def test_arguments_of_a_plugin_that_do_not_fit_run_nothing() -> None:
    """If a plugin makes arguments invalid, the tool does not run, and the error says why."""
    rig = Post(before(lambda call: call.model_copy(update={"arguments": "{}"})))
    result = await rig.run(rig.send())
    assert result.outcome == "error"
    assert result.content.startswith("send was not run: a plugin changed the call; invalid arguments")
    assert rig.sent == []


@pytest.mark.parametrize(
    ("decide", "outcome", "content"),
    [
        (_no_sundays, "rejected", "not on Sundays"),
        (fails, "error", "send was not run: plugin 'before' failed in before_tool: KeyError: 'rules'"),
    ],
    ids=["veto", "failure"],
)
async def test_a_plugin_stops_a_call(
    decide: Callable[[object], Veto | None], outcome: str, content: str
) -> None:
    """A stopped call neither runs nor has a record; subscribers see its start and end."""
    rig = Post(before(decide))
    call = rig.send()
    result = await rig.run(call)
    assert (result.outcome, result.content, rig.sent) == (outcome, content, [])
    assert [type(event) for event in await rig.events()] == [ToolStarted, ToolCompleted]
    assert await rig.lose(call) is Claim.FIRST


async def test_a_veto_of_the_task_stops_a_call_before_plugins_are_asked() -> None:
    """A veto of the task stops a call before its plugins; the model reads it unchanged."""
    rig = Post(before(fails), needs_approval=True)
    result = await rig.run(rig.send(veto="not below the lead"))
    assert (result.outcome, result.content, rig.sent) == ("rejected", "not below the lead", [])


async def test_a_veto_takes_no_outcome_back() -> None:
    """A veto does not replace the outcome of an earlier attempt."""
    decisions = [None, Veto("too late")]
    rig = Post(before(lambda _: decisions.pop(0)))
    results = [await rig.run(rig.send()) for _ in range(2)]
    assert [result.content for result in results] == ["sent to Ada"] * 2


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_veto_does_not_hide_what_may_have_happened(*, idempotent: bool) -> None:
    """After a lost attempt, a veto does not hide that the call may have had an effect."""
    rig = Post(before(lambda _: Veto("too late")), idempotent=idempotent)
    call = rig.send()
    await rig.lose(call)
    result = await rig.run(call)
    assert (result.outcome, rig.sent) == ("unknown", [])


async def test_a_call_is_recorded_as_the_model_wrote_it() -> None:
    """A call is recorded with the model's arguments, so that a plugin's new change makes no other call."""
    rig = Post(to("Bob", "Cy"))
    results = [await rig.run(rig.send()) for _ in range(2)]
    assert rig.sent == ["Bob"]
    assert results[0] == results[1]


async def test_the_result_is_what_plugins_make_of_it() -> None:
    """The result of the plugins is recorded, cached and published; a retry does not call them again."""
    asked: list[str] = []

    def shout(result: ToolMessage) -> ToolMessage:
        asked.append(result.content)
        return result.model_copy(update={"content": result.content.upper()})

    rig = Post(after(shout))
    results = [await rig.run(rig.send()) for _ in range(2)]
    assert [result.content for result in results] == ["SENT TO ADA"] * 2
    assert asked == ["sent to Ada"]
    assert (await rig.events())[-1] == ToolCompleted(
        call_id="call", name="send", outcome="ok", result="SENT TO ADA", size=11
    )


async def test_a_result_that_is_vetoed_is_not_read() -> None:
    """For a vetoed result the model reads the reason; the artifacts of the tool stay recorded."""

    @tool
    async def write(context: ToolContext) -> str:
        """Write."""
        await context.artifacts.write_file("report", "text")
        return "secret plans"

    rig = ToolRig(write, plugins=[after(lambda _: Veto("that is confidential"))])
    result = await rig.run(rig.call("write"))
    assert (result.content, result.outcome) == ("that is confidential", "rejected")
    assert result.artifacts == ("report",)


async def test_a_result_that_no_plugin_could_look_at_is_withheld() -> None:
    """A result whose plugin fails is withheld.

    The model reads that the tool ran, and it does not run again.
    """
    rig = Post(after(fails))
    results = [await rig.run(rig.send()) for _ in range(2)]
    expected = "the tool ran, but plugin 'after' failed in after_tool: KeyError: 'rules'; what it came to is"
    assert [result.outcome for result in results] == ["error"] * 2
    assert results[0].content.startswith(expected)
    assert "Ada" not in results[0].content
    assert rig.sent == ["Ada"]


async def test_a_withheld_result_brings_no_tool_that_stands_in() -> None:
    """A withheld result starts no fallback, which would repeat the effect.

    Only a failure of the tool does.
    """
    sent: list[str] = []
    stand_in = send_tool([])
    failing = replace(send_tool(sent), name="first", fallback="send")
    rig = ToolRig(failing, stand_in, plugins=[after(fails)])
    assert (await rig.run(rig.call("first", ADA))).outcome == "unknown"
    assert sent == ["Ada"]


async def test_plugins_look_at_errors_and_hear_of_them() -> None:
    """Plugins change errors and are notified of them once no attempt follows."""

    @tool(retries=Retries(2))
    async def fail() -> str:
        """Fail."""
        raise ValueError("the disk is full")

    plugin = after(lambda result: result.model_copy(update={"content": f"sorry: {result.content}"}))
    rig = ToolRig(fail, plugins=[plugin])
    failed, result = await rig.attempts(rig.call("fail"))
    assert isinstance(result, ToolMessage)
    assert [str(error) for error in failed] == ["ToolFailed: ValueError: the disk is full"]
    assert (result.content, result.outcome) == ("sorry: ValueError: the disk is full", "error")
    assert plugin.errors == ["fail: sorry: ValueError: the disk is full"]

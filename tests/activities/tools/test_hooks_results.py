"""Plugins after a tool call: what the model reads of it, and errors that they hear of."""

from dataclasses import replace

from everloop.agents.hooks import Veto
from everloop.agents.limits import Retries
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.events import ToolCompleted
from everloop.workflows.contract.messages import ToolMessage
from tests.support.rigs.tool_plugins import ADA, after, fails, send_tool
from tests.support.rigs.tool_rig import ToolRig


async def test_the_result_is_what_plugins_make_of_it() -> None:
    """So it is recorded, cached, and told; another attempt does not ask them again."""
    asked: list[str] = []

    def shout(result: ToolMessage) -> ToolMessage:
        asked.append(result.content)
        return result.model_copy(update={"content": result.content.upper()})

    rig = ToolRig(send_tool([]), plugins=[after(shout)])
    results = [await rig.run(rig.call("send", ADA)) for _ in range(2)]
    assert [result.content for result in results] == ["SENT TO ADA"] * 2
    assert asked == ["sent to Ada"]
    assert (await rig.events())[-1] == ToolCompleted(
        call_id="call", name="send", outcome="ok", result="SENT TO ADA", size=11
    )


async def test_a_result_that_is_vetoed_is_not_read() -> None:
    """The model reads the reason; what the tool has written stays known."""

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
    """The model learns that the tool ran; the tool does not run again."""
    sent: list[str] = []
    rig = ToolRig(send_tool(sent), plugins=[after(fails)])
    results = [await rig.run(rig.call("send", ADA)) for _ in range(2)]
    expected = "the tool ran, but plugin 'after' failed in after_tool: KeyError: 'rules'; what it came to is"
    assert [result.outcome for result in results] == ["error"] * 2
    assert results[0].content.startswith(expected)
    assert "Ada" not in results[0].content
    assert sent == ["Ada"]


async def test_a_withheld_result_brings_no_tool_that_stands_in() -> None:
    """It would do again what was done: only a tool that failed itself is replaced."""
    sent: list[str] = []
    stand_in = send_tool([])
    failing = replace(send_tool(sent), name="first", fallback="send")
    rig = ToolRig(failing, stand_in, plugins=[after(fails)])
    assert (await rig.run(rig.call("first", ADA))).outcome == "unknown"
    assert sent == ["Ada"]


async def test_plugins_look_at_errors_and_hear_of_them() -> None:
    """Once no attempt follows; then they are told, and the model reads what they made of it."""

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


async def test_nobody_hears_of_an_error_where_there_is_none() -> None:
    """Neither of a result, nor of a rejection."""
    plugin = after(lambda _: Veto("no"))
    rig = ToolRig(send_tool([]), plugins=[plugin])
    await rig.run(rig.call("send", ADA))
    assert plugin.errors == ()

"""Hooks of plugins: their order, the passing of changed values, vetoes and failures."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from everloop.activities.hook_runner import Hooks, PluginFailedError
from everloop.agents.agent import Agent
from everloop.agents.hooks import HookContext, NeedsApproval, TaskOutcome, Veto
from everloop.agents.plugins import Plugin
from everloop.models.interface import ModelRequest
from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import (
    AssistantMessage,
    ListedTool,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.tasks import TaskState

CONTEXT = HookContext(task_id="t", context_id="c", owner="o", agent_id="agent")
MESSAGE = UserMessage(message_id="m", parts=(TextPart(text=""),))


def named(*names: str) -> tuple[ListedTool, ...]:
    return tuple(ListedTool(name=name, description="", parameters={}) for name in names)


REQUEST = ModelRequest(model="m", messages=(), tools=named("a", "b"))
OTHER = (ListedTool(name="a", description="Another.", parameters={}),)
REPLY = AssistantMessage(text="")
CALL = ToolCall(id="call", name="act", arguments="")
RESULT = ToolMessage(call_id="call", name="act", content="")
OUTCOME = TaskOutcome(TaskState.FAILED, 1, Usage(), reason="broken")


class Adding(Plugin):
    """A plugin that appends its name to each value."""

    async def before_request(self, context: HookContext, message: UserMessage) -> UserMessage:
        parts = (*message.parts, TextPart(text=self.name))
        return message.model_copy(update={"parts": parts})

    async def before_model_call(self, context: HookContext, request: ModelRequest) -> ModelRequest:
        return ModelRequest(request.model + self.name, request.messages, request.tools[:1])

    async def after_model_call(self, context: HookContext, reply: AssistantMessage) -> AssistantMessage:
        return reply.model_copy(update={"text": reply.text + self.name})

    async def before_tool(self, context: HookContext, call: ToolCall) -> ToolCall:
        return call.model_copy(update={"arguments": call.arguments + self.name})

    async def after_tool(self, context: HookContext, call: ToolCall, result: ToolMessage) -> ToolMessage:
        return result.model_copy(update={"content": result.content + self.name})


class Saying(Plugin):
    """A plugin that returns the same verdict for each value, and counts the questions."""

    said: object = None
    asked: int = 0

    async def _say(self, context: HookContext, *asked: Any, **named: Any) -> Any:  # noqa: ANN401 -- whatever a test says
        self.asked += 1
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said

    before_request = before_model_call = after_model_call = before_tool = after_tool = _say
    after_completion = on_error = _say


def _saying(said: object, name: str = "saying", priority: int = 0) -> Saying:
    plugin = Saying(name=name, priority=priority)
    plugin.said = said
    return plugin


def _hooks(*plugins: Plugin, timeout: float = 5) -> Hooks:
    agent = Agent(id="agent", name="Agent", description="", plugins=[*plugins])
    return Hooks(agent, CONTEXT, timeout=timeout)


Asking = Callable[[Hooks], Awaitable[object]]

ASKED: dict[str, Asking] = {
    "before_request": lambda hooks: hooks.before_request(MESSAGE),
    "before_model_call": lambda hooks: hooks.before_model_call(REQUEST),
    "after_model_call": lambda hooks: hooks.after_model_call(REPLY),
    "before_tool": lambda hooks: hooks.before_tool(CALL),
    "after_tool": lambda hooks: hooks.after_tool(CALL, RESULT),
}

each_hook = pytest.mark.parametrize("hook", ASKED)


@each_hook
async def test_plugins_are_asked_by_priority_and_get_what_the_last_one_made(hook: str) -> None:
    """Plugins are called by priority, lowest first, then by order, each with the last one's value."""
    asked = _hooks(Adding(name="<3>", priority=1), Adding(name="<1>", priority=-1), Adding(name="<2>"))
    said = str(await ASKED[hook](asked))
    assert "<1><2><3>" in said or [said.count(f"text='<{n}>'") for n in (1, 2, 3)] == [1, 1, 1]
    assert said.index("<1>") < said.index("<2>") < said.index("<3>")


async def test_what_a_plugin_makes_more_special_binds_no_plugin_behind_it() -> None:
    """A plugin may replace the subclass of an earlier plugin's reply by a plain reply."""

    class Marked(AssistantMessage):
        """A reply with a mark."""

    said = await _hooks(_saying(Marked(text="a"), "1"), _saying(REPLY, "2")).after_model_call(REPLY)
    assert said == REPLY


@each_hook
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("no", "no"),
        (" ", "the plugin 'no' does not allow it"),
        (None, "the plugin 'no' does not allow it"),
    ],
)
async def test_a_veto_ends_the_asking(hook: str, reason: Any, expected: str) -> None:  # noqa: ANN401 -- as above
    """A veto ends the round of plugins; one without a reason gets one, because none would mean no veto."""
    behind = _saying(None, "behind", priority=2)
    said = await ASKED[hook](_hooks(_saying(Veto(reason), "no", priority=1), behind, Adding(name="A")))
    assert getattr(said, "veto", said) == Veto(expected)
    assert behind.asked == 0


@each_hook
@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (ValueError("the disk is full"), "ValueError: the disk is full"),
        (SystemExit(3), "SystemExit: 3"),
        (OSError("no file caf\udce9"), r"OSError: no file caf?"),
        (asyncio.CancelledError(), "CancelledError: "),
        (TimeoutError("of mine"), "TimeoutError: of mine"),
        (17, "it returned a int, not "),
    ],
    ids=["error", "exit", "unsendable", "cancelled", "timeout", "int"],
)
async def test_a_hook_that_fails_is_told_by_name(hook: str, said: object, problem: str) -> None:
    """A failing hook is a final failure with plugin, hook and problem."""
    with pytest.raises(PluginFailedError) as failed:
        await ASKED[hook](_hooks(_saying(said, "bad")))
    assert failed.value.message.startswith(f"plugin 'bad' failed in {hook}: {problem}")
    failure = failed.value
    assert (failure.type, failure.non_retryable) == (failures.PLUGIN_FAILED, True)


async def test_a_hook_that_never_returns_fails_in_time() -> None:
    """A hook that hangs fails in time, so that its activity ends."""

    class Endless(Plugin):
        async def before_tool(self, context: HookContext, call: ToolCall) -> None:
            await asyncio.Event().wait()

    with pytest.raises(PluginFailedError, match=r"'endless' failed in before_tool: .* not finish within 0 s"):
        await _hooks(Endless(), timeout=0).before_tool(CALL)


async def test_whoever_asks_can_be_cancelled() -> None:
    """A cancelled activity is not a failure of the plugin whose hook is running."""
    reached = asyncio.Event()

    class Waiting(Plugin):
        async def on_error(self, context: HookContext, error: str) -> None:
            reached.set()
            await asyncio.Event().wait()

    asking = asyncio.create_task(_hooks(Waiting()).on_error("x"))
    await reached.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def request(**fields: Any) -> ModelRequest:  # noqa: ANN401 -- as above
    return replace(REQUEST, **fields)


FORBIDDEN: Sequence[tuple[str, object, str]] = [
    ("before_request", MESSAGE.model_copy(update={"message_id": "x"}), "changed the id of the message"),
    ("before_model_call", ModelRequest("m", (), named("a", "z", "y")), "changed the tools y, z"),
    ("before_model_call", replace(REQUEST, tools=("a",)), "changed the tools a; a hook"),
    ("before_model_call", replace(REQUEST, tools=OTHER), "changed the tools a; a hook"),
    ("before_model_call", replace(REQUEST, settings={"seed": 1}), "of type dict, not ModelSettings"),
    ("before_model_call", request(tools=None), "its tools are not a list"),
    ("before_model_call", request(messages=iter(())), "its messages are not a list"),
    ("before_model_call", request(model=None), "its model is not a text"),
    ("before_request", MESSAGE.model_copy(update={"parts": ("hi",)}), r"parts\.0.* valid"),
    ("after_model_call", REPLY.model_copy(update={"text": None}), "text: Input should be a valid string"),
    (
        "before_tool",
        CALL.model_copy(update={"arguments": {"a": 1}}),
        "arguments: Input should be a valid str",
    ),
    ("after_tool", RESULT.model_copy(update={"content": 17}), "content: Input should be a valid string"),
    ("after_tool", RESULT.model_copy(update={"text": "hidden"}), "a ToolMessage has no text"),
    ("before_tool", CALL.model_copy(update={"id": "x"}), "changed the id or the tool of the call"),
    ("before_tool", CALL.model_copy(update={"name": "x"}), "changed the id or the tool of the call"),
    ("after_tool", RESULT.model_copy(update={"call_id": "x"}), "changed the id or the tool of the result"),
    ("after_tool", RESULT.model_copy(update={"name": "x"}), "changed the id or the tool of the result"),
]


@pytest.mark.parametrize(("hook", "said", "problem"), FORBIDDEN)
async def test_what_a_hook_may_not_change(hook: str, said: object, problem: str) -> None:
    """A hook must not change the identity of a message, call or result, nor add tools."""
    with pytest.raises(PluginFailedError, match=problem):
        await ASKED[hook](_hooks(_saying(said)))


async def test_an_approval_keeps_nobody_from_a_veto() -> None:
    """Plugins after one that requests an approval are called, and may veto."""
    no = _saying(Veto("no"), "no", priority=1)
    said = await _hooks(_saying(NeedsApproval("why")), no).before_tool(CALL)
    assert said == Veto("no")


async def test_reasons_for_an_approval_are_put_together() -> None:
    """Reasons for an approval are joined, each once, with the call as changed by all plugins."""
    wants = [_saying(NeedsApproval(reason), reason or "-") for reason in ("costs", "", "is final", "costs")]
    said = await _hooks(*wants, Adding(name="A")).before_tool(CALL)
    changed = CALL.model_copy(update={"arguments": "A"})
    assert said == (changed, NeedsApproval("costs\nis final"))


@pytest.mark.parametrize("hook", ["on_error", "after_completion"])
async def test_all_hear_of_an_end_whoever_fails(hook: str) -> None:
    """All plugins are notified of an end; an error of one is logged by its type, without its text."""
    last = _saying(None, "last")
    hooks = _hooks(_saying(ValueError("s3cret"), "bad"), last)
    with capture_logs() as logs:
        await (hooks.on_error("x") if hook == "on_error" else hooks.after_completion(OUTCOME))
    assert last.asked == 1
    assert [(log["plugin"], log["hook"], log["error_type"]) for log in logs] == [("bad", hook, "ValueError")]
    assert "s3cret" not in str(logs)

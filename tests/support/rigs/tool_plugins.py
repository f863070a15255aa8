"""Plugins around a tool call that a test decides for, and the tool that they look at."""

import json
from collections.abc import Callable, Sequence

from everloop.agents.hooks import HookContext, NeedsApproval, Veto
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool, tool
from everloop.workflows.contract.messages import ToolCall, ToolMessage

ADA = '{"to": "Ada"}'


class Before(Plugin):
    """Says what a function makes of each call."""

    decide: Callable[[ToolCall], ToolCall | Veto | NeedsApproval | None]

    async def before_tool(
        self, context: HookContext, call: ToolCall
    ) -> ToolCall | Veto | NeedsApproval | None:
        return self.decide(call)


class After(Plugin):
    """Says what a function makes of each result, and hears of errors."""

    decide: Callable[[ToolMessage], ToolMessage | Veto | None]
    errors: Sequence[str] = ()

    async def after_tool(
        self, context: HookContext, call: ToolCall, result: ToolMessage
    ) -> ToolMessage | Veto | None:
        return self.decide(result)

    async def on_error(self, context: HookContext, error: str) -> None:
        self.errors = [*self.errors, error]


def before(decide: Callable[[ToolCall], ToolCall | Veto | NeedsApproval | None]) -> Before:
    plugin = Before()
    plugin.decide = decide
    return plugin


def after(decide: Callable[[ToolMessage], ToolMessage | Veto | None]) -> After:
    plugin = After()
    plugin.decide = decide
    return plugin


def to(*names: str) -> Before:
    """Put another receiver into each call; the next name every time it is asked."""
    left = [*names]
    return before(
        lambda call: call.model_copy(
            update={"arguments": json.dumps({"to": left.pop(0) if len(left) > 1 else left[0]})}
        )
    )


def fails(_: object) -> None:
    raise KeyError("rules")


def send_tool(sent: list[str], **settings: bool) -> Tool:
    """Return the tool `send`, which notes whom it has sent to."""

    @tool(needs_approval=settings.get("needs_approval", False), idempotent=settings.get("idempotent", False))
    async def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return f"sent to {to}"

    return send

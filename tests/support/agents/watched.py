"""Agents that a plugin watches with each hook, one that must leave an artifact, one that reads its caller.

The environment has the folder of their marks and gates.
"""

import os
from pathlib import Path

from everloop import (
    Agent,
    HookContext,
    ModelRequest,
    ModelSettings,
    Plugin,
    TaskOutcome,
    ToolContext,
    artifacts,
    prompt,
    tool,
    tools,
)
from everloop.agents.hooks import HOOKS
from everloop.workflows.contract.messages import (
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.support.agents.marks import append_line, until_open

WATCHED_AGENTS = "tests.support.agents.watched:agents"
FOLDER = "WATCHED_AGENTS_FOLDER"
DECIDING_HOOKS = tuple(hook for hook in HOOKS if hook != "on_error")


def agent_of(hook: str) -> str:
    """Return the id of the agent whose plugin waits in this hook until its gate exists."""
    return hook.replace("_", "-")


class Watch(Plugin):
    """A plugin that changes each value, and leaves a mark at the start and end of a hook."""

    async def before_request(self, context: HookContext, message: UserMessage) -> UserMessage:
        await self._watch("before_request", context)
        return message.model_copy(update={"parts": (*message.parts, TextPart(text="(watched)"))})

    async def before_model_call(self, context: HookContext, request: ModelRequest) -> ModelRequest:
        await self._watch("before_model_call", context)
        return ModelRequest(request.model, request.messages, request.tools, ModelSettings(temperature=0.25))

    async def after_model_call(self, context: HookContext, reply: AssistantMessage) -> AssistantMessage:
        await self._watch("after_model_call", context)
        return reply.model_copy(update={"text": f"{reply.text} (watched)"}) if reply.text else reply

    async def before_tool(self, context: HookContext, call: ToolCall) -> ToolCall:
        await self._watch("before_tool", context)
        return call.model_copy(update={"arguments": '{"text": "watched"}'})

    async def after_tool(self, context: HookContext, call: ToolCall, result: ToolMessage) -> ToolMessage:
        await self._watch("after_tool", context)
        return result.model_copy(update={"content": f"{result.content} (watched)"})

    async def after_completion(self, context: HookContext, outcome: TaskOutcome) -> None:
        await self._watch("after_completion", context)
        append_line(str(_marks(context.task_id)), f"outcome {outcome.state} {outcome.answer}")

    async def _watch(self, hook: str, context: HookContext) -> None:
        append_line(str(_marks(context.task_id)), f"begin {hook}")
        if context.agent_id == agent_of(hook):
            await until_open(str(_folder() / "gate"))
        append_line(str(_marks(context.task_id)), f"end {hook}")


@tool
async def note(text: str, context: ToolContext) -> str:
    """Note a text. Not idempotent."""
    append_line(str(_marks(context.task_id)), f"note {text}")
    return f"noted: {text}"


@tool
async def who(ledger: str, context: ToolContext) -> str:
    """Record the caller of the task."""
    append_line(ledger, context.owner)
    append_line(ledger, context.auth.model_dump_json())
    return "written"


def _folder() -> Path:
    return Path(os.environ[FOLDER])


def _marks(task_id: str) -> Path:
    return _folder() / task_id


agents = [
    *(
        Agent(
            id=agent_of(hook),
            name=hook,
            description="Is watched.",
            model=hook,
            plugins=[Watch(), tools(note)],
        )
        for hook in DECIDING_HOOKS
    ),
    Agent(
        id="leaving",
        name="Leaving",
        description="Leaves an artifact.",
        model="leaving",
        plugins=[prompt("Follow the script."), artifacts()],
        ensure_artifact=True,
    ),
    Agent(
        id="acquainted",
        name="Acquainted",
        description="Knows its caller.",
        model="acquainted",
        plugins=[tools(who)],
    ),
]

"""An agent without a language model, for public compatibility kits: `everloop conformance` serves it.

Kits select a behaviour by the prefix of each message's messageId; the newest message of a task decides.
Source: the A2A compatibility kit (a2aproject/a2a-tck), whose own agents use the same prefixes.
"""

import asyncio
from collections.abc import Awaitable, Callable

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from everloop.agents.agent import Agent, Skill, Turn
from everloop.agents.plugins import tools
from everloop.agents.question_exceptions import InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.runtime.environment import Settings
from everloop.workflows.contract.calls import CREATE_TASK
from everloop.workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    FilePart,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

THINKING_TIME = 0.3
"""Seconds that the agent works on a message without a known prefix, before it asks for more."""

OUTPUT = "output.txt"

FILE = "//50AGMAawA="
"""Text in UTF-16: UTF-8 would be shown as text, and kits expect bytes."""

ARTIFACTS: dict[str, Part] = {
    "tck-artifact-text": TextPart(text="Generated text content"),
    "tck-artifact-file-url": FilePart(
        url=f"https://example.com/{OUTPUT}", filename=OUTPUT, media_type="text/plain"
    ),
    "tck-artifact-file": FilePart(content=FILE, filename=OUTPUT, media_type="text/plain"),
    "tck-artifact-data": DataPart(data={"key": "value", "count": 42}),
    "tck-stream-001": TextPart(text="Stream hello from TCK"),
    "tck-stream-003": TextPart(text="Stream task lifecycle"),
    "tck-stream-ordering-001": TextPart(text="Ordered output"),
    "tck-stream-artifact-text": TextPart(text="Streamed text content"),
    "tck-stream-artifact-file": FilePart(content=FILE, filename=OUTPUT, media_type="text/plain"),
}
"""Artifact of a task by prefix; the first match counts."""

_PUT_OUT, _WAIT = "put_out", "wait_for_input"

MODES = (
    "text/plain",
    "text/markdown",
    "text/html",
    "text/csv",
    "application/json",
    "application/pdf",
    "application/octet-stream",
    "image/png",
    "image/jpeg",
)


class ConformanceSettings(Settings):
    """Settings shared with the kit (environment, prefix TCK_): seconds that it reads a stream (default 2)."""

    model_config = SettingsConfigDict(env_prefix="TCK_")

    streaming_timeout: float = Field(default=2, ge=0, le=600)


_SETTINGS = ConformanceSettings()


async def wait_for_input(context: ToolContext) -> str:
    """Ask for the next message, and return its messageId."""
    if not context.answers:
        raise InputRequired("Send another message; its messageId says what happens next.")
    return context.answers[-1].message_id


async def put_out(prefix: str, context: ToolContext) -> str:
    """Leave the artifact of a prefix."""
    await context.artifacts.create(f"{prefix}-{context.task_id}", [ARTIFACTS[prefix]], name=prefix)
    return "done"


async def respond(turn: Turn) -> AssistantMessage:
    """Execute the newest message; an artifact that was left ends the task."""
    newest = [m for m in turn.messages if not (isinstance(m, ToolMessage) and m.name == CREATE_TASK)][-1]
    while isinstance(newest, AssistantMessage):
        newest = [m for m in turn.messages if isinstance(m, UserMessage)][-1]
    if isinstance(newest, ToolMessage):
        if newest.name == _PUT_OUT or newest.outcome != "ok":
            return AssistantMessage(closing="done")
        return await _behave(newest.content, turn)
    return await _behave(newest.message_id, turn) if isinstance(newest, UserMessage) else _said("done")


async def _behave(message_id: str, turn: Turn) -> AssistantMessage:
    if message_id.startswith("tck-message-response"):
        return AssistantMessage(text="Direct message response")
    if turn.decides:
        return _calls(CREATE_TASK, "{}")
    for prefix in ARTIFACTS:
        if message_id.startswith(prefix):
            return _calls(_PUT_OUT, f'{{"prefix": "{prefix}"}}')
    for prefix, behave in _BEHAVIOURS.items():
        if message_id.startswith(prefix):
            return await behave(turn)
    await asyncio.sleep(THINKING_TIME)
    return await _ask(turn)


async def _ask(_: Turn) -> AssistantMessage:
    return _calls(_WAIT, "{}")


async def _stay_active(_: Turn) -> AssistantMessage:
    await asyncio.sleep(2 * _SETTINGS.streaming_timeout)
    return _said("done")


def _say(text: str, *, rejects: bool = False) -> Callable[[Turn], Awaitable[AssistantMessage]]:
    async def say(_: Turn) -> AssistantMessage:
        return _said(text, rejects=rejects)

    return say


def _said(text: str, *, rejects: bool = False) -> AssistantMessage:
    return AssistantMessage(closing=text, rejects=rejects)


def _calls(name: str, arguments: str) -> AssistantMessage:
    return AssistantMessage(tool_calls=(ToolCall(id="", name=name, arguments=arguments),))


_BEHAVIOURS: dict[str, Callable[[Turn], Awaitable[AssistantMessage]]] = {
    "tck-complete-task": _say("Hello from TCK"),
    "tck-input-required": _ask,
    "tck-reject-task": _say("rejected", rejects=True),
    "test-resubscribe-message-id": _stay_active,
    "tck-": _say("done"),
}
"""By prefix; the first match counts."""


agent = Agent(
    id="conformance",
    name="Everloop conformance agent",
    description="Does what public A2A compatibility kits ask for by the prefix of each messageId.",
    plugins=(tools(tool(idempotent=True)(wait_for_input), tool(idempotent=True)(put_out)),),
    deduplicate=False,
    routing="auto",
    respond=respond,
    input_modes=MODES,
    output_modes=MODES,
    skills=(
        Skill(
            id="tck",
            name="Conformance",
            description="Completes, rejects, parks or streams a task, as the messageId asks.",
            tags=("tck", "conformance"),
            examples=("tck-complete-task", "tck-input-required"),
        ),
    ),
)

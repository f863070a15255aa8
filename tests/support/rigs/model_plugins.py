"""Plugins around a model call that a test decides for, and what became of the call."""

from collections.abc import Callable
from dataclasses import dataclass, field

from everloop.agents.agent import Agent
from everloop.agents.hooks import HookContext, ModelRequest, Veto
from everloop.agents.plugins import Plugin
from everloop.workflows.contract.messages import AssistantMessage


@dataclass(kw_only=True, eq=False)
class Before(Plugin):
    """Makes a request of a request; remembers what it was asked."""

    make: Callable[[ModelRequest], ModelRequest | Veto | None]
    asked: list[tuple[HookContext, ModelRequest]] = field(
        default_factory=list[tuple[HookContext, ModelRequest]]
    )

    async def before_model_call(
        self, context: HookContext, request: ModelRequest
    ) -> ModelRequest | Veto | None:
        self.asked.append((context, request))
        return self.make(request)


@dataclass(kw_only=True, eq=False)
class After(Plugin):
    """Makes a reply of a reply; remembers what it was asked."""

    make: Callable[[AssistantMessage], AssistantMessage | Veto | None]
    asked: list[AssistantMessage] = field(default_factory=list[AssistantMessage])

    async def after_model_call(
        self, context: HookContext, reply: AssistantMessage
    ) -> AssistantMessage | Veto | None:
        self.asked.append(reply)
        return self.make(reply)


class Listener(Plugin):
    """Hears of errors."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[int, str]] = []

    async def on_error(self, context: HookContext, error: str) -> None:
        self.heard.append((context.iteration, error))


def agent(*plugins: Plugin, **fields: object) -> Agent:
    return Agent(id="agent", name="Agent", description="", plugins=plugins, **fields)  # pyright: ignore[reportArgumentType] -- settings of a test


def in_capitals(reply: AssistantMessage) -> AssistantMessage:
    return reply.model_copy(update={"text": reply.text.upper()})

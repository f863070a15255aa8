"""The selection of messages for a prompt: the newest ones that fit, with calls and results in pairs.

A prompt begins with a message of the user. Providers refuse a tool call without its result, and a result
without its call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Self

from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage, UserMessage


@dataclass(frozen=True)
class PromptBudget:
    """The limits of a prompt: number of messages, and their total `size`. `measure` returns that of one."""

    messages: int
    size: float = inf
    measure: Callable[[ConversationMessage], int] = lambda _: 0

    @classmethod
    def of_tokens(
        cls, messages: int, tokens: int | None, count: Callable[[ConversationMessage], int]
    ) -> Self:
        """Return a budget of messages and tokens; `tokens` None: no limit."""
        return cls(messages) if tokens is None else cls(messages, tokens, count)

    @property
    def half(self) -> Self:
        """Half of this budget."""
        return replace(self, messages=self.messages // 2, size=self.size / 2)

    def holds(self, messages: Sequence[ConversationMessage]) -> bool:
        """Return True if all of the messages fit."""
        return len(messages) <= self.messages and sum(map(self.measure, messages)) <= self.size


def newest_messages(
    messages: Sequence[ConversationMessage], budget: PromptBudget
) -> list[ConversationMessage]:
    """Return the messages that fit, oldest first: the newest turns, each complete.

    A turn begins with a message of the user. If the last one does not fit, its first message and its newest
    others are returned.
    """
    start = newest_turns(messages, budget)
    return list(messages[start:]) if start < len(messages) else _end_of_turn(messages, budget)


def newest_turns(messages: Sequence[ConversationMessage], budget: PromptBudget) -> int:
    """Return the index of the first of the newest turns that fit; the number of messages if none fits."""
    starts = (position for position in _safe_positions(messages, budget) if _is_turn(messages[position]))
    return min(starts, default=len(messages))


def safe_ends(messages: Sequence[ConversationMessage]) -> list[int]:
    """Return all positions (exclusive), with the end, at which a cut separates no call from its result."""
    return [*reversed(_safe_positions(messages, PromptBudget(len(messages)))), len(messages)]


def _end_of_turn(messages: Sequence[ConversationMessage], budget: PromptBudget) -> list[ConversationMessage]:
    turns = [position for position, message in enumerate(messages) if _is_turn(message)]
    if not turns:
        return []
    first = messages[turns[-1]]
    rest_budget = PromptBudget(budget.messages - 1, budget.size - budget.measure(first), budget.measure)
    if rest_budget.messages < 0 or rest_budget.size < 0:
        return []
    rest = messages[turns[-1] + 1 :]
    return [first, *rest[min(_safe_positions(rest, rest_budget), default=len(rest)) :]]


def _safe_positions(messages: Sequence[ConversationMessage], budget: PromptBudget) -> list[int]:
    """Return the positions, last one first, from which the messages fit and each result has its call."""
    found, size = list[int](), 0
    without_call = set[str]()
    for position in range(len(messages) - 1, max(len(messages) - budget.messages, 0) - 1, -1):
        message = messages[position]
        size += budget.measure(message)
        if size > budget.size:
            break
        if isinstance(message, ToolMessage):
            without_call.add(message.call_id)
        elif isinstance(message, AssistantMessage):
            without_call -= {call.id for call in message.tool_calls}
        if not without_call:
            found.append(position)
    return found


def _is_turn(message: ConversationMessage) -> bool:
    return isinstance(message, UserMessage)

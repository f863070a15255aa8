"""The model: answers from the conversation alone, slowly, or with an error."""

import asyncio
import json
import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal

from tests.chaos.orders import CLERK, FIRST, FORGOTTEN, KINDS, REFUSAL, SAID, Call, Order, in_place
from tests.support.servers.scripted_openai import Answer, ReceivedRequest, Refusal, Reply, Step, tool_call

Mood = Literal["well", "slow", "overload", "break", "tear"]

PACE = 0.08
"""Seconds between two pieces of text, in which a process can be killed."""

SLOWNESS = 8
PIECES = 4
BOOKED = ("deposit", "charge")
"""Prefixes of tools that write in the ledger."""

UNKNOWN = "unknown"

_ORDER = re.compile(rf"({CLERK}|{FIRST})?({'|'.join(KINDS)}) \d+")


class Model:
    """Requests the calls of an order, turn by turn, then tells the result of each."""

    def __init__(self, seed: int, ledger: Path) -> None:
        self._seed = seed
        self._ledger = ledger
        self.mood: Mood = "well"

    def answer(self, received: ReceivedRequest) -> Answer:
        """Return the reply to a conversation, always the same, or fail."""
        if self.mood == "overload":
            return Refusal(429, "rate_limit_exceeded", headers={"Retry-After": "1"})
        if self.mood == "break":
            return Refusal(500)
        reply = self._reply(received)
        if self.mood == "tear" and isinstance(reply, Reply):
            return Reply(reply.steps[: len(reply.steps) // 2], ending="cut")
        return reply

    def _reply(self, received: ReceivedRequest) -> Answer:
        name = asked_for(received)
        order = Order.parse(self._seed, name)
        if order.kind == "fails":
            return Refusal(400, "invalid_prompt", REFUSAL)
        if order.kind == "recalls":
            said = [str(message["content"]) for message in received.conversation]
            knows = name.startswith(FIRST) or {f"{FIRST}{name}", order.words} <= {*said}
            return Reply(self._paced(order.words if knows else FORGOTTEN))
        results = {
            str(message["tool_call_id"]): understood(str(message["content"]))
            for message in received.conversation
            if message["role"] == "tool"
        }
        if name.startswith(CLERK):
            return self._clerk(results)
        for turn, known in zip(order.turns, accumulate(map(len, order.turns), initial=0), strict=False):
            if len(results) == known:
                return Reply([*self._paced(SAID), *self._ask(turn)])
        if order.kind == "cancels":
            return Reply(["I am at it", asyncio.Event()])
        return Reply(self._paced(order.answer(results)))

    def _clerk(self, results: dict[str, str]) -> Reply:
        if not results:
            return Reply([*self._paced(SAID), *self._ask(in_place([[("deposit", {})]])[0])])
        return Reply(self._paced(*results.values()))

    def _paced(self, text: str) -> list[Step]:
        """Cut a text in pieces, with pauses between."""
        pace = PACE * (SLOWNESS if self.mood == "slow" else 1)
        size = -(-len(text) // PIECES)
        loop = asyncio.get_running_loop()
        steps: list[Step] = []
        for number, start in enumerate(range(0, len(text), size)):
            pause = asyncio.Event()
            loop.call_later(pace * number, pause.set)
            steps += [pause, text[start : start + size]]
        return steps

    def _ask(self, calls: Sequence[Call]) -> list[Step]:
        books = {"ledger": str(self._ledger)}
        return [
            tool_call(
                call.tool,
                json.dumps({**call.arguments, **(books if call.tool.startswith(BOOKED) else {})}),
                index=index,
            )
            for index, call in enumerate(calls)
        ]


def asked_for(received: ReceivedRequest) -> str:
    """Return the request to the model: the name of an order, or the work of its clerk."""
    said = [str(message["content"]) for message in received.conversation if message["role"] == "user"]
    return next(each for each in reversed(said) if _ORDER.fullmatch(each))


def understood(result: str) -> str:
    """Return the result of a call, or that it is unknown whether it took effect."""
    return UNKNOWN if "may or may not have taken effect" in result else result

"""Orders of clients, the model's replies to them, and the right results: derived from the seed alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Literal, get_args

from pydantic import JsonValue

from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.names import call_key, name_calls

Kind = Literal[
    "talk",  # an answer that streams
    "books",  # tools with effects, idempotent and not
    "files",  # a text artifact that streams, and bytes that go to the blob store
    "asks",  # an approval and a question, which the client answers
    "cancels",  # work without an end, which the client cancels
    "family",  # a sub-agent with an effect
    "posts",  # sent without a stream, blocking
    "fails",  # a model that refuses
    "variants",  # a quick tool, retries, a fallback, a value that is kept, calls that run as one
    "doubts",  # a tool with an effect, and people who say whether it is to run again
    "logs in",  # a secret, which the client gives
    "hands over",  # another agent that goes on
    "recalls",  # the second task of a conversation, which tells of the first
    "routed",  # a message that is answered at once, or becomes a task
]
KINDS: tuple[Kind, ...] = get_args(Kind)

# fmt: off
_DECK: Sequence[Kind] = (
    "books", "books", "books", "books", "talk", "talk", "files", "files", "asks", "asks",
    "cancels", "cancels", "cancels", "family", "family", "posts", "posts", "fails",
    "variants", "variants", "doubts", "doubts", "logs in", "hands over", "recalls", "recalls", "routed",
    "routed",
)
# fmt: on

PUSHED = 0.5
"""The share of tasks that notify a webhook."""

SAID = "I will see."
FIRST = "first of "
"""Begins the first message of a conversation; the order is the second."""

FORGOTTEN = "I do not remember."
REFUSAL = "this prompt is refused"
CLERK = "clerk of "
_WORDS = ("alder", "beech", "cedar", "dogwood", "elm", "fir", "ginkgo", "hazel", "larch", "maple", "oak")


@dataclass(frozen=True)
class Call:
    """A tool call of the model. `id` follows from its place."""

    id: str
    tool: str
    arguments: Mapping[str, JsonValue]

    @property
    def key(self) -> str:
        """The key of the call within its task, with the arguments encoded like here."""
        return call_key(ToolCall(id=self.id, name=self.tool, arguments=json.dumps(self.arguments)))


Asked = tuple[str, Mapping[str, JsonValue]]
"""A request of the model: a tool, and arguments."""


def in_place(turns: Sequence[Sequence[Asked]]) -> list[list[Call]]:
    """Return the calls of each reply, in a transcript with only the client's message before."""
    placed: list[list[Call]] = []
    position = 1
    for asked in turns:
        named = name_calls([ToolCall(id="", name=tool, arguments="") for tool, _ in asked], position)
        placed.append([Call(call.id, tool, told) for call, (tool, told) in zip(named, asked, strict=True)])
        position += 1 + len(asked)
    return placed


@dataclass(frozen=True)
class Order:
    """One task. `number` counts from 0; the message of the client is the order's name."""

    seed: int
    number: int

    @classmethod
    def parse(cls, seed: int, name: str) -> "Order":
        """Return the order of this name."""
        return cls(seed, int(name.rpartition(" ")[2]))

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"

    @cached_property
    def kind(self) -> Kind:
        block, place = divmod(self.number, len(_DECK))
        return self._chance(f"deck {block}").sample(_DECK, k=len(_DECK))[place]

    @cached_property
    def is_pushed(self) -> bool:
        return self._chance(f"push {self.number}").random() < PUSHED

    @cached_property
    def ending(self) -> Literal["model", "tool", "parked"]:
        """The endless call of an order that is cancelled."""
        return self._chance(f"ending {self.number}").choice(("model", "tool", "parked"))

    @cached_property
    def patience(self) -> float:
        """Seconds until the client cancels."""
        return self._chance(f"patience {self.number}").uniform(0.2, 3)

    @cached_property
    def approves(self) -> bool:
        return self._chance(f"approves {self.number}").random() < 0.5

    @cached_property
    def is_at_once(self) -> bool:
        """True if a routed message is answered without a task."""
        return self._chance(f"at once {self.number}").random() < 0.5

    @property
    def agent(self) -> str:
        """The agent that gets the message."""
        return "porter" if self.kind == "routed" else "desk"

    @property
    def secret(self) -> str:
        """The client's password in an order that logs in."""
        return f"secret of {self.name}"

    @property
    def reply(self) -> str:
        """The client's answer to the question of an order that asks."""
        return f"reply to {self.name}"

    @cached_property
    def words(self) -> str:
        """The answer of an order that needs no tools."""
        return " ".join(self._chance(f"words {self.number}").choices(_WORDS, k=40))

    @cached_property
    def lines(self) -> list[str]:
        """The text artifact, piece by piece."""
        chance = self._chance(f"lines {self.number}")
        return [f"{place} · {' '.join(chance.choices(_WORDS, k=8))}\n" for place in range(40)]

    @cached_property
    def content(self) -> bytes:
        """The bytes of the other artifact: more than stay in Redis."""
        return self._chance(f"bytes {self.number}").randbytes(250_000)

    @cached_property
    def turns(self) -> list[list[Call]]:
        """The calls of each reply of the model except the last."""
        told: Mapping[str, JsonValue] = {"order": self.name}
        question: Mapping[str, JsonValue] = {"question": f"What about {self.name}?"}
        turns: Mapping[Kind, list[list[Asked]]] = {
            "books": self._bookings(),
            "files": [[("write_lines", told), ("write_bytes", told)]],
            "asks": [[("charge_if_approved", {})], [("request_input", question)]],
            "family": [[("clerk", {"request": f"{CLERK}{self.name}"})]],
            "posts": [[("deposit", {}), ("charge", {})]],
            "variants": self._variants(),
            "doubts": [[("charge_or_ask", {})]],
            "logs in": [[("log_in", {})]],
            "hands over": [[("hand_over_to_closer", {"reason": "It is late."})], [("deposit", {})]],
            "routed": [] if self.is_at_once else [[("create_task", {})], [("deposit", {})]],
            "cancels": self._endless(),
        }
        return in_place(turns.get(self.kind, []))

    @property
    def model_calls(self) -> int:
        """The number of model calls without faults, those of a sub-agent included."""
        return len(self.turns) + 1 + {"family": 2, "recalls": 1}.get(self.kind, 0)

    @property
    def calls(self) -> dict[str, Call]:
        return {call.id: call for turn in self.turns for call in turn}

    def answer(self, results: Mapping[str, str]) -> str:
        """Return the final answer of the model, given these results of its calls."""
        return json.dumps(results) if self.turns else self.words

    def _bookings(self) -> "list[list[Asked]]":
        chance = self._chance(f"books {self.number}")
        kinds = ["deposit", "charge", *chance.choices(["deposit", "charge"], k=chance.choice([1, 2]))]
        chance.shuffle(kinds)
        calls: list[Asked] = [(kind, {}) for kind in kinds]
        cut = chance.randrange(1, len(calls))
        return [calls[:cut], calls[cut:]]

    def _variants(self) -> "list[list[Asked]]":
        chance = self._chance(f"variants {self.number}")
        kinds = ["deposit_quickly", "deposit_at_last", "deposit_elsewhere", "deposit_and_keep"]
        together: list[Asked] = [
            ("deposit_together", {"name": f"together-{self.number}-{place}"}) for place in range(3)
        ]
        return [[(kind, {}) for kind in chance.sample(kinds, k=len(kinds))], together]

    def _endless(self) -> "list[list[Asked]]":
        first: list[Asked] = [("deposit", {})]
        match self.ending:
            case "model":
                return [first]
            case "tool":
                return [first, [("work_on", {})]]
            case "parked":
                return [first, [("request_input", {"question": "What for?"})]]

    def _chance(self, what: str) -> Random:
        return Random(f"{self.seed} {what}")  # noqa: S311 -- repeatable on purpose

"""Calls that wait for an approval: the policies, the question, and the call that an answer is for."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, cast

import pytest
from pydantic import AfterValidator, BaseModel, JsonValue, computed_field

from everloop.agents.agent import AgentApproval
from everloop.agents.guard import guard
from everloop.agents.question_exceptions import InputRequired
from everloop.agents.tool import Tool, ToolApproval, tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.tool_records import Claim
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.events import ToolCompleted, ToolStarted
from everloop.workflows.contract.questions import (
    Answer,
    Purpose,
    Question,
    QuestionKind,
    answer_with,
    no_answer,
)
from tests.support.rigs.tool_rig import ADA, Decision, Post, ToolRig, before, no, to, unkeyed, yes

TRANSFER = '{"amount": 200, "to": "Ada"}'
SCOPE = "refunds:approve"

no_because: Decision = partial(answer_with, value=False, by="user", note="too much")
operators_no: Decision = partial(answer_with, value=False, by="operator", note="too much")


@tool
def predecessor(amount: int, to: str, context: ToolContext) -> str:
    """Ask, and fail."""
    if context.answer is None:
        raise InputRequired(f"Send {amount} to {to}?", "confirmation")
    raise OSError


class Bank(ToolRig):
    """The tools `transfer` and `predecessor`, and the recorded transfers."""

    def __init__(self, *, needs_approval: ToolApproval = True, of_agent: AgentApproval = False) -> None:
        self.effects: list[int] = []

        @tool(needs_approval=needs_approval)
        def transfer(amount: int, to: str, currency: str = "EUR") -> str:
            """Send money."""
            self.effects.append(amount)
            return f"{amount} {currency} to {to}"

        super().__init__(transfer, predecessor, needs_approval=of_agent)

    def transfer(self, *answers: Answer) -> RunToolInput:
        return self.call("transfer", TRANSFER, *answers)


def _large(arguments: Mapping[str, JsonValue]) -> bool:
    return isinstance(amount := arguments["amount"], int) and amount > 100


def _raise(*_: object) -> bool:
    raise KeyError("amount")


POLICIES: Mapping[str, tuple[ToolApproval, AgentApproval, bool]] = {
    "tool": (True, False, True),
    "none": (False, False, False),
    "amount": (_large, False, True),
    "small": (lambda arguments: not _large(arguments), False, False),
    "agent": (False, True, True),
    "agent_amount": (False, lambda name, arguments: name == "transfer" and _large(arguments), True),
    "agent_other": (False, lambda name, _: name == "other", False),
    "broken": (_raise, False, True),
    "agent_broken": (False, _raise, True),
}


@pytest.mark.parametrize(("policy", "of_agent", "asks"), POLICIES.values(), ids=POLICIES)
async def test_who_asks_for_an_approval(policy: ToolApproval, of_agent: AgentApproval, *, asks: bool) -> None:
    """The policy of the tool or the agent asks, always or by the arguments; a failing one asks, too."""
    bank = Bank(needs_approval=policy, of_agent=of_agent)
    reply = await bank.attempt_call(bank.transfer())
    assert isinstance(reply, Question) == asks
    assert bank.effects == ([] if asks else [200])


async def test_an_approval_shows_what_the_tool_would_get() -> None:
    """The question shows validated arguments with defaults, unprintable characters escaped.

    The call neither starts nor has a record.
    """
    bank = Bank()
    call = bank.call("transfer", '{"amount": "200", "to": "Ada\\u202e\\u3164"}')
    question = await bank.ask(call)
    shown = '{\n  "amount": 200,\n  "to": "Ada\\u202e\\u3164",\n  "currency": "EUR"\n}'
    assert question.text == f"Approve the call transfer?\n{shown}"
    assert (unkeyed(question.id), question.purpose) == ("call", "approval")
    assert (question.kind, question.call) == (QuestionKind.CONFIRMATION, call.call)
    assert await bank.events() == []
    assert await bank.lose(call) is Claim.FIRST


class Basket(BaseModel):
    """Prices in each kind of iterable, which is read once."""

    prices: Iterable[float]
    doubled: Annotated[Iterable[float], AfterValidator(lambda prices: (2 * each for each in prices))]
    by_shop: dict[str, Iterable[float]] = {}
    bags: list["Bag"] = []
    pair: tuple[Iterable[float], int] = ((), 0)
    point: "Point | None" = None

    def read(self) -> list[object]:
        shops = {name: [*each] for name, each in self.by_shop.items()}
        bags, (first, second) = [[*bag.prices] for bag in self.bags], self.pair
        point = [*self.point.prices] if self.point else []
        return [[*self.prices], [*self.doubled], shops, bags, [*first], second, point]


@dataclass(frozen=True)
class Bag:
    """A dataclass."""

    prices: Iterable[float]


class Point(NamedTuple):
    """A named tuple."""

    prices: Iterable[float]


BASKET: dict[str, JsonValue] = {
    "prices": [1, 2],
    "doubled": [3],
    "by_shop": {"a": [4]},
    "bags": [{"prices": [5]}],
    "pair": [[6], 7],
    "point": [[8]],
}


async def test_what_can_be_read_once_is_read_by_all() -> None:
    """Policies, approvers and the tool read the same iterator: after one read it would be empty."""
    seen: list[object] = []

    def look(arguments: Mapping[str, Any]) -> bool:
        seen.append(arguments["basket"])
        return False

    def look_too(tool: str, arguments: Mapping[str, Any]) -> bool:
        seen.append(arguments["basket"])
        return True

    @tool(needs_approval=look)
    def add_up(basket: Basket) -> str:
        """Add up."""
        return json.dumps(basket.read())

    rig = ToolRig(add_up, needs_approval=look_too)
    arguments = json.dumps({"basket": BASKET})
    question = await rig.ask(rig.call("add_up", arguments))
    result = await rig.run(rig.call("add_up", arguments, yes(question)))

    assert seen == [{**BASKET, "doubled": [6]}] * 2
    assert json.loads(question.text.partition("\n")[2]) == {"basket": seen[0]}
    assert json.loads(result.content) == [[1, 2], [6], {"a": [4]}, [[5]], [6], 7, [8]]


async def test_a_wrong_value_of_an_iterator_goes_back_to_the_model() -> None:
    """A wrong value of an iterator is an error for the model before the tool runs."""

    @tool
    def add_up(prices: Iterable[float]) -> float:
        """Add up."""
        return sum(prices)

    rig = ToolRig(add_up)
    result = await rig.run(rig.call("add_up", '{"prices": [1, "free"]}'))
    assert (result.outcome, "valid number" in result.content) == ("invalid", True)


async def test_a_policy_changes_no_arguments() -> None:
    """A policy's changes of arguments reach neither the question nor the tool."""

    def take(arguments: Mapping[str, Any]) -> bool:
        return bool(cast("dict[str, Any]", arguments).pop("to") == "Bob")

    def take_too(tool: str, arguments: Mapping[str, Any]) -> bool:
        return take(arguments)

    async def send(arguments: dict[str, JsonValue], context: ToolContext) -> str:
        return json.dumps(arguments)

    offered = Tool(send, "send", "Send.", schema={"properties": {"to": {}}}, needs_approval=take)
    rig = ToolRig(offered, needs_approval=take_too)
    assert (await rig.run(rig.call("send", ADA))).content == ADA


async def test_arguments_that_cannot_be_written_are_shown_as_they_can() -> None:
    """Arguments whose own code raises are shown in the possible form, and the approval is requested."""

    class Parcel(BaseModel):
        to: str

        @computed_field
        def street(self) -> str:
            raise SystemExit(2)

    @tool(needs_approval=True)
    def send(parcel: Parcel) -> str:
        """Send."""
        return parcel.to

    rig = ToolRig(send)
    question = await rig.ask(rig.call("send", '{"parcel": {"to": "Ada"}}'))
    assert '"parcel": "(Parcel)"' in question.text


async def test_nobody_is_asked_to_approve_what_cannot_run() -> None:
    """A call with invalid arguments requests no approval."""
    bank = Bank()
    assert (await bank.run(bank.call("transfer", '{"to": "Ada"}'))).outcome == "invalid"


async def test_an_approved_call_runs_once() -> None:
    """An approved call is published when it runs, once.

    A retry returns its result, even after a Reset and a rejection.
    """
    bank = Bank()
    question = await bank.ask(bank.transfer())
    results = [await bank.run(bank.transfer(decide(question))) for decide in (yes, yes, no)]
    assert [result.content for result in results] == ["200 EUR to Ada"] * 3
    assert bank.effects == [200]
    assert (await bank.events())[0] == ToolStarted(call_id="call", name="transfer", attempt=1)


@pytest.mark.parametrize(
    ("decide", "expected"),
    [
        (no_because, "rejected by the user: too much"),
        (no, "rejected by the user"),
        (operators_no, "rejected by the operator: too much"),
        (no_answer, "rejected because nobody answered in time"),
    ],
)
async def test_a_rejected_call_does_not_run(decide: Decision, expected: str) -> None:
    """The model reads who rejected a call, and why; after a Reset the call may be approved."""
    bank = Bank()
    question = await bank.ask(bank.transfer())
    result = await bank.run(bank.transfer(decide(question)))
    assert (result.outcome, result.content, bank.effects) == ("rejected", expected, [])
    assert isinstance((await bank.events())[-1], ToolCompleted)
    assert (await bank.run(bank.transfer(yes(question)))).outcome == "ok"


@pytest.mark.parametrize("decide", [yes, no], ids=["yes", "no"])
@pytest.mark.parametrize("asked_for_approval", [True, False], ids=["approval", "input"])
async def test_an_answer_to_another_tool_does_not_approve(
    decide: Decision, *, asked_for_approval: bool
) -> None:
    """A fallback asks for its own approval, although it has the call id and answers of the failed tool."""
    bank = Bank(of_agent=lambda name, _: name == "predecessor" and asked_for_approval)
    answer = decide(await bank.ask(bank.call("predecessor", TRANSFER)))
    question = await bank.ask(bank.transfer(answer))
    result = await bank.run(bank.transfer(answer, yes(question)))
    assert (unkeyed(question.id), question.purpose, question.call.name) == ("call.1", "approval", "transfer")
    assert (result.outcome, bank.effects) == ("ok", [200])


@pytest.mark.parametrize("purpose", ["input", "outcome"])
async def test_only_an_approval_approves(purpose: Purpose) -> None:
    """Only the answer to an approval approves: the tool's policy may be newer than another question."""
    asking, bank = Bank(), Bank(of_agent=True)
    asked = await asking.ask(asking.call("predecessor", TRANSFER))
    answer = yes(asked.model_copy(update={"purpose": purpose}))
    assert (await bank.ask(bank.call("predecessor", TRANSFER, answer))).purpose == "approval"


@pytest.mark.parametrize(
    ("decide", "outcome", "effects"),
    [(yes, "ok", [200]), (no, "rejected", []), (no_answer, "rejected", [])],
    ids=["yes", "no", "no_answer"],
)
async def test_a_decision_outlives_the_tool_records(
    decide: Decision, outcome: str, effects: Sequence[int]
) -> None:
    """A decision survives the loss of all tool records: the answer itself has its purpose."""
    asking, emptied = Bank(), Bank()
    question = await asking.ask(asking.transfer())
    result = await emptied.run(emptied.transfer(decide(question)))
    assert (result.outcome, emptied.effects) == (outcome, effects)


async def test_people_approve_what_will_run() -> None:
    """The question shows the arguments of a plugin, and its id depends on them; a rejection ends the call."""
    post = Post(to("Bob"), needs_approval=True)
    question = await post.ask(post.send())
    rejected = await post.run(post.send(no(question)))
    result = await post.run(post.send(yes(question)))
    assert (json.loads(question.call.arguments), '"to": "Bob"' in question.text) == ({"to": "Bob"}, True)
    assert unkeyed(question.id).startswith("call~")
    assert (rejected.outcome, rejected.content) == ("rejected", "rejected by the user")
    assert (result.content, post.sent) == ("sent to Bob", ["Bob"])


async def test_an_approval_is_for_the_arguments_that_people_saw() -> None:
    """If a plugin changes the arguments after an approval, another approval is requested."""
    post = Post(to("Bob", "Cy"), needs_approval=True)
    first = await post.ask(post.send())
    second = await post.attempt_call(post.send(yes(first)))
    assert isinstance(second, Question)
    assert post.sent == []
    assert ('"to": "Bob"' in first.text, '"to": "Cy"' in second.text) == (True, True)
    assert (await post.run(post.send(yes(first), yes(second)))).content == "sent to Cy"


@pytest.mark.parametrize("changes_first", [True, False])
async def test_an_approval_does_not_pass_between_changed_and_unchanged(*, changes_first: bool) -> None:
    """An approval of the model's own arguments is not one of a plugin's, nor the other way round."""
    changed, unchanged = (
        Post(to("Bob"), needs_approval=True),
        Post(before(lambda _: None), needs_approval=True),
    )
    earlier, later = (changed, unchanged) if changes_first else (unchanged, changed)
    question = await later.ask(later.send(yes(await earlier.ask(earlier.send()))))
    assert (earlier.sent, later.sent) == ([], [])
    assert unkeyed(question.id).startswith("call.1")


APPROVERS: Sequence[tuple[str, Sequence[str], str | None, str]] = [
    ("", [], "owner", "owner"),
    ("", [], SCOPE, SCOPE),
    ("", ["owner"], SCOPE, SCOPE),
    ("", ["owner", "tasks:approve"], SCOPE, "tasks:approve"),
    ("owner", [], None, "owner"),
    (SCOPE, [], None, SCOPE),
    (SCOPE, ["owner"], "owner", SCOPE),
    ("owner", [SCOPE], "owner", SCOPE),
    ("owner", [], SCOPE, SCOPE),
    (SCOPE, ["tasks:approve"], "tasks:approve", SCOPE),
]


@pytest.mark.parametrize(("of_task", "of_guards", "of_tool", "approvers"), APPROVERS)
async def test_who_approves(
    of_task: str, of_guards: Sequence[str], of_tool: str | None, approvers: str
) -> None:
    """The scope of approvers comes from the task, else a guard, else the tool.

    A scope wins over the owner.
    """
    sent: list[str] = []

    @tool(needs_approval=of_tool is not None, approvers=of_tool or "owner")
    async def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return f"sent to {to}"

    rig = ToolRig(send, plugins=[guard(approve=["send"], approvers=each) for each in of_guards])
    call = rig.call("send", ADA).model_copy(update={"approvers": of_task})
    question = await rig.ask(call)
    before_yes = [*sent]
    result = await rig.run(call.model_copy(update={"answers": (yes(question),)}))
    assert (question.purpose, question.approvers) == ("approval", approvers)
    assert (before_yes, sent, result.outcome) == ([], ["Ada"], "ok")

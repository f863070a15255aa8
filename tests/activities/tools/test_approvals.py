"""Calls that people approve before they run."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import pytest
from pydantic import JsonValue, PlainSerializer

from everloop.agents.agent import AgentApproval
from everloop.agents.errors import ToolDefinitionError
from everloop.agents.guard import guard
from everloop.agents.questions import InputRequired
from everloop.agents.tool import Tool, ToolApproval, tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.leases import Claim
from everloop.workflows.contract.events import ToolCompleted, ToolStarted
from everloop.workflows.contract.questions import Purpose, Question, QuestionKind, answer_with, no_answer
from tests.support.rigs.tool_rig import Decision, ToolRig, no, unkeyed, yes

TRANSFER = '{"amount": 200, "to": "Ada"}'

no_because: Decision = partial(answer_with, value=False, by="user", note="too much")
operators_no: Decision = partial(answer_with, value=False, by="operator", note="too much")


def _raise(*_: object) -> bool:
    raise KeyError("amount")


def _small(arguments: Mapping[str, JsonValue]) -> bool:
    return not _large(arguments)


def _large_transfer(name: str, arguments: Mapping[str, JsonValue]) -> bool:
    return name == "transfer" and _large(arguments)


def _other(name: str, arguments: Mapping[str, JsonValue]) -> bool:
    return name == "other"


def _transfer(effects: list[int], needs_approval: ToolApproval) -> Tool:
    @tool(needs_approval=needs_approval)
    def transfer(amount: int, to: str, currency: str = "EUR") -> str:
        """Send money."""
        effects.append(amount)
        return f"{amount} {currency} to {to}"

    return transfer


def _large(arguments: Mapping[str, JsonValue]) -> bool:
    return isinstance(amount := arguments["amount"], int) and amount > 100


POLICIES: list[tuple[ToolApproval, AgentApproval, bool]] = [
    (True, False, True),
    (False, False, False),
    (_large, False, True),
    (_small, False, False),
    (False, True, True),
    (False, _large_transfer, True),
    (False, _other, False),
    (_raise, False, True),
    (False, _raise, True),
]


@pytest.mark.parametrize(
    ("policy", "agent_policy", "asks"),
    POLICIES,
    ids=["tool", "none", "amount", "small", "agent", "agent_amount", "agent_other", "broken", "agent_broken"],
)
async def test_who_asks_for_an_approval(
    policy: ToolApproval, agent_policy: AgentApproval, *, asks: bool
) -> None:
    """The tool, or the agent, always or by the arguments; a policy that fails asks."""
    effects: list[int] = []
    rig = ToolRig(_transfer(effects, policy), needs_approval=agent_policy)
    reply = await rig.attempt_call(rig.call("transfer", TRANSFER))
    assert isinstance(reply, Question) == asks
    assert effects == ([] if asks else [200])


async def test_an_approval_shows_what_the_tool_would_get() -> None:
    """Arguments as validated, with defaults; what does not print is escaped. Nothing starts, no record."""
    rig = ToolRig(_transfer([], needs_approval=True))
    call = rig.call("transfer", '{"amount": "200", "to": "Ada\\u202e"}')
    question = await rig.ask(call)
    shown = '{\n  "amount": 200,\n  "to": "Ada\\u202e",\n  "currency": "EUR"\n}'
    assert question.text == f"Approve the call transfer?\n{shown}"
    assert (unkeyed(question.id), question.purpose, question.kind) == (
        "call",
        "approval",
        QuestionKind.CONFIRMATION,
    )
    assert question.call == call.call
    assert await rig.events() == []
    assert await rig.lose(call) is Claim.FIRST


async def test_what_cannot_be_shown_as_json_is_shown_somehow() -> None:
    """An argument of the tool's own type may refuse to be written; the question is asked all the same."""

    def refuse(_: object) -> str:
        raise ValueError

    @tool(needs_approval=lambda _: True)
    def act(what: Annotated[int, PlainSerializer(refuse)]) -> str:
        """Act."""
        return str(what)

    rig = ToolRig(act)
    assert '"what": "7"' in (await rig.ask(rig.call("act", '{"what": 7}'))).text


async def test_nobody_is_asked_to_approve_what_cannot_run() -> None:
    """Arguments are validated first."""
    rig = ToolRig(_transfer([], needs_approval=True))
    assert (await rig.run(rig.call("transfer", '{"to": "Ada"}'))).outcome == "invalid"


async def test_an_approved_call_runs_once() -> None:
    """It is announced when it runs; another attempt returns its result."""
    effects: list[int] = []
    rig = ToolRig(_transfer(effects, needs_approval=True))
    question = await rig.ask(rig.call("transfer", TRANSFER))
    results = [await rig.run(rig.call("transfer", TRANSFER, yes(question))) for _ in range(2)]
    assert [result.content for result in results] == ["200 EUR to Ada"] * 2
    assert effects == [200]
    assert (await rig.events())[0] == ToolStarted(call_id="call", name="transfer", attempt=1)


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
    """The model reads who said no, and why."""
    effects: list[int] = []
    rig = ToolRig(_transfer(effects, needs_approval=True))
    question = await rig.ask(rig.call("transfer", TRANSFER))
    result = await rig.run(rig.call("transfer", TRANSFER, decide(question)))
    assert (result.outcome, result.content) == ("rejected", expected)
    assert effects == []
    assert isinstance((await rig.events())[-1], ToolCompleted)


@tool
def predecessor(amount: int, to: str, context: ToolContext) -> str:
    """Ask, and fail."""
    if context.answer is None:
        raise InputRequired(f"Send {amount} to {to}?", "confirmation")
    raise OSError


@pytest.mark.parametrize("decide", [yes, no], ids=["yes", "no"])
@pytest.mark.parametrize("asked_for_approval", [True, False], ids=["approval", "input"])
async def test_an_answer_to_another_tool_does_not_approve(
    decide: Decision, *, asked_for_approval: bool
) -> None:
    """A fallback has the call id of the tool that failed, and its answers: it asks for itself."""
    effects: list[int] = []
    rig = ToolRig(
        predecessor,
        _transfer(effects, needs_approval=True),
        needs_approval=lambda name, _: name == "predecessor" and asked_for_approval,
    )
    answer = decide(await rig.ask(rig.call("predecessor", TRANSFER)))
    question = await rig.ask(rig.call("transfer", TRANSFER, answer))
    result = await rig.run(rig.call("transfer", TRANSFER, answer, yes(question)))
    assert (unkeyed(question.id), question.purpose, question.call.name) == ("call.1", "approval", "transfer")
    assert result.outcome == "ok"
    assert effects == [200]


@pytest.mark.parametrize("purpose", ["approval", "input", "outcome"])
@pytest.mark.parametrize("decide", [yes, no, no_answer], ids=["yes", "no", "no_answer"])
async def test_an_answer_to_another_tool_ends_nothing(decide: Decision, purpose: Purpose) -> None:
    """A fallback that needs no approval runs."""
    effects: list[int] = []
    rig = ToolRig(predecessor, _transfer(effects, needs_approval=False))
    question = await rig.ask(rig.call("predecessor", TRANSFER))
    answer = decide(question.model_copy(update={"purpose": purpose}))
    assert (await rig.run(rig.call("transfer", TRANSFER, answer))).outcome == "ok"
    assert effects == [200]


@pytest.mark.parametrize("purpose", ["input", "outcome"])
async def test_only_an_approval_approves(purpose: Purpose) -> None:
    """The tool may need one only since it asked something else: another version of it runs now."""
    effects: list[int] = []
    before = ToolRig(predecessor)
    asked = await before.ask(before.call("predecessor", TRANSFER))
    rig = ToolRig(predecessor, needs_approval=True)
    answer = yes(asked.model_copy(update={"purpose": purpose}))
    question = await rig.ask(rig.call("predecessor", TRANSFER, answer))
    assert question.purpose == "approval"
    assert effects == []


@pytest.mark.parametrize(
    ("decide", "outcome", "effects"),
    [(yes, "ok", [200]), (no, "rejected", []), (no_answer, "rejected", [])],
    ids=["yes", "no", "no_answer"],
)
async def test_a_decision_outlives_the_tool_records(
    decide: Decision, outcome: str, effects: list[int]
) -> None:
    """Redis may lose everything while a task waits: the answer itself says what it was for."""
    ran: list[int] = []
    before = ToolRig(_transfer(ran, needs_approval=True))
    question = await before.ask(before.call("transfer", TRANSFER))
    emptied = ToolRig(_transfer(ran, needs_approval=True))
    result = await emptied.run(emptied.call("transfer", TRANSFER, decide(question)))
    assert result.outcome == outcome
    assert ran == effects


async def test_a_call_that_an_earlier_run_has_made_keeps_its_outcome() -> None:
    """After a Reset somebody says no to what was done already: the model hears that it was done."""
    rig = ToolRig(_transfer([], needs_approval=True))
    question = await rig.ask(rig.call("transfer", TRANSFER))
    done = await rig.run(rig.call("transfer", TRANSFER, yes(question)))
    assert await rig.run(rig.call("transfer", TRANSFER, no(question))) == done


@pytest.mark.parametrize(
    ("guards", "of_tool", "approvers"),
    [
        ([], "owner", "owner"),
        ([], "refunds:approve", "refunds:approve"),
        (["owner"], "refunds:approve", "refunds:approve"),
        (["owner", "tasks:approve"], "refunds:approve", "tasks:approve"),
    ],
)
async def test_a_tool_or_a_guard_says_who_approves(guards: list[str], of_tool: str, approvers: str) -> None:
    """A scope wins over the owner, and that of a guard over that of the tool."""

    @tool(needs_approval=True, approvers=of_tool)
    def transfer(amount: int, to: str) -> str:
        """Send money."""
        return f"{amount} to {to}"

    plugins = [guard(approve=["transfer"], approvers=each) for each in guards]
    rig = ToolRig(transfer, plugins=plugins)
    assert (await rig.ask(rig.call("transfer", TRANSFER))).approvers == approvers


def test_approvers_whom_nobody_can_be_are_refused() -> None:
    """Where they are written."""
    with pytest.raises(ToolDefinitionError, match="approvers is 'agents:x'; give 'owner'"):

        @tool(approvers="agents:x")
        def transfer(amount: int) -> str:
            """Send money."""
            return str(amount)


async def test_a_rejection_does_not_outlive_its_run() -> None:
    """After a Reset the call may be approved."""
    rig = ToolRig(_transfer([], needs_approval=True))
    question = await rig.ask(rig.call("transfer", TRANSFER))
    await rig.run(rig.call("transfer", TRANSFER, no(question)))
    assert (await rig.run(rig.call("transfer", TRANSFER, yes(question)))).outcome == "ok"

"""Calls that people approve before they run."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated

import pytest
from pydantic import JsonValue, PlainSerializer

from everloop.agents.agent import AgentApproval
from everloop.agents.errors import ToolDefinitionError
from everloop.agents.guard import guard
from everloop.agents.hooks import NeedsApproval
from everloop.agents.plugins import Plugin
from everloop.agents.questions import InputRequired
from everloop.agents.tool import Tool, ToolApproval, tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.leases import Claim
from everloop.workflows.contract.events import ToolCompleted, ToolStarted
from everloop.workflows.contract.questions import Purpose, Question, QuestionKind, answer_with, no_answer
from tests.support.rigs.tool_plugins import ADA, before, send_tool, to
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


async def test_a_plugin_wants_an_approval() -> None:
    """Its reason stands in the question; what does not print is escaped. Approved, the call runs."""
    sent: list[str] = []
    rig = ToolRig(send_tool(sent), plugins=[before(lambda _: NeedsApproval("it is\u202e final"))])
    question = await rig.ask(rig.call("send", ADA))
    before_yes = [*sent]
    result = await rig.run(rig.call("send", ADA, yes(question)))
    assert question.text == 'Approve the call send?\nit is\\u202e final\n{\n  "to": "Ada"\n}'
    assert (unkeyed(question.id), question.purpose) == ("call", "approval")
    assert (before_yes, sent, result.content) == ([], ["Ada"], "sent to Ada")


async def test_one_approval_is_enough() -> None:
    """The tool, the agent and two plugins want one: people are asked once."""
    wants = [guard(approve=["send"]), before(lambda _: NeedsApproval())]
    rig = ToolRig(send_tool([], needs_approval=True), plugins=wants, needs_approval=True)
    question = await rig.ask(rig.call("send", ADA))
    assert (await rig.run(rig.call("send", ADA, yes(question)))).outcome == "ok"


async def test_people_approve_what_will_run() -> None:
    """The question shows the arguments that a plugin has put in, and its id stands for them."""
    sent: list[str] = []
    rig = ToolRig(send_tool(sent, needs_approval=True), plugins=[to("Bob")])
    question = await rig.ask(rig.call("send", ADA))
    result = await rig.run(rig.call("send", ADA, yes(question)))
    assert (json.loads(question.call.arguments), '"to": "Bob"' in question.text) == ({"to": "Bob"}, True)
    assert unkeyed(question.id).startswith("call~")
    assert (result.content, sent) == ("sent to Bob", ["Bob"])


@pytest.mark.parametrize(
    ("plugins", "shown", "ran"),
    [
        ([to("Bob", "Cy")], "Bob", "Cy"),
        ([before(lambda _: None)], "Ada", "Ada"),
    ],
    ids=["changed", "not_changed"],
)
async def test_an_approval_is_for_the_arguments_that_people_saw(
    plugins: list[Plugin], shown: str, ran: str
) -> None:
    """A plugin that then gives the call others brings another question; nothing runs unseen."""
    sent: list[str] = []
    rig = ToolRig(send_tool(sent, needs_approval=True), plugins=plugins)
    first = await rig.ask(rig.call("send", ADA))
    reply = await rig.attempt_call(rig.call("send", ADA, yes(first)))
    assert f'"to": "{shown}"' in first.text
    if shown == ran:
        assert sent == [ran]
        return
    assert isinstance(reply, Question)
    assert sent == []
    assert f'"to": "{ran}"' in reply.text
    assert (await rig.run(rig.call("send", ADA, yes(first), yes(reply)))).content == f"sent to {ran}"


@pytest.mark.parametrize("changes_first", [True, False])
async def test_an_approval_does_not_pass_between_changed_and_unchanged(*, changes_first: bool) -> None:
    """What people said to the model's own arguments is no yes to a plugin's, nor the other way round."""
    sent: list[str] = []
    unchanged, changed = before(lambda _: None), to("Bob")
    order = [changed, unchanged] if changes_first else [unchanged, changed]
    earlier = ToolRig(send_tool(sent, needs_approval=True), plugins=[order[0]])
    later = ToolRig(send_tool(sent, needs_approval=True), plugins=[order[1]])
    answer = yes(await earlier.ask(earlier.call("send", ADA)))
    question = await later.ask(later.call("send", ADA, answer))
    assert sent == []
    assert unkeyed(question.id).startswith("call.1")


async def test_spaces_and_order_of_changed_arguments_do_not_matter() -> None:
    """A plugin may write the same arguments anew each time it is asked."""
    written = ['{"to": "Bob", "again": 1}', '{ "again": 1,  "to": "Bob"}']

    @tool(needs_approval=True)
    async def send(to: str, again: int) -> str:
        """Send it."""
        return f"{to} {again}"

    rig = ToolRig(send, plugins=[before(lambda call: call.model_copy(update={"arguments": written.pop(0)}))])
    question = await rig.ask(rig.call("send", '{"to": "Ada", "again": 2}'))
    result = await rig.run(rig.call("send", '{"to": "Ada", "again": 2}', yes(question)))
    assert result.content == "Bob 1"


async def test_a_no_ends_a_changed_call() -> None:
    """Without asking the plugins again."""
    rig = ToolRig(send_tool([], needs_approval=True), plugins=[to("Bob")])
    question = await rig.ask(rig.call("send", ADA))
    result = await rig.run(rig.call("send", ADA, no(question)))
    assert (result.outcome, result.content) == ("rejected", "rejected by the user")


async def test_a_tools_own_question_shows_the_call_that_runs() -> None:
    """With the arguments that a plugin has put in; after the answer it goes on with them."""

    @tool
    async def send(to: str, context: ToolContext) -> str:
        """Send it."""
        if context.answer is None:
            raise InputRequired(f"Send to {to}?")
        return f"sent to {to}"

    rig = ToolRig(send, plugins=[to("Bob")])
    question = await rig.ask(rig.call("send", ADA))
    result = await rig.run(rig.call("send", ADA, yes(question)))
    assert (unkeyed(question.id), json.loads(question.call.arguments)) == ("call", {"to": "Bob"})
    assert result.content == "sent to Bob"


SCOPE = "refunds:approve"


@pytest.mark.parametrize(
    ("of_task", "of_guard", "of_tool", "approvers"),
    [
        ("owner", None, None, "owner"),
        (SCOPE, None, None, SCOPE),
        (SCOPE, "owner", "owner", SCOPE),
        ("owner", SCOPE, "owner", SCOPE),
        ("owner", None, SCOPE, SCOPE),
        (SCOPE, "tasks:approve", "tasks:approve", SCOPE),
    ],
)
async def test_what_the_task_wants_approved_is_asked_whatever_others_say(
    of_task: str, of_guard: str | None, of_tool: str | None, approvers: str
) -> None:
    """Once, together with what plugins and the tool want; the owner never takes the place of a scope."""
    sent: list[str] = []

    @tool(needs_approval=of_tool is not None, approvers=of_tool or "owner")
    async def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return f"sent to {to}"

    rig = ToolRig(send, plugins=[guard(approve=["send"], approvers=of_guard)] if of_guard else [])
    call = rig.call("send", ADA).model_copy(update={"approvers": of_task})
    question = await rig.ask(call)
    before_yes = [*sent]
    result = await rig.run(call.model_copy(update={"answers": (yes(question),)}))
    assert (question.purpose, question.approvers) == ("approval", approvers)
    assert (before_yes, sent, result.outcome) == ([], ["Ada"], "ok")


async def test_what_the_task_wants_approved_is_what_plugins_make_of_the_call() -> None:
    """People see the arguments that will run."""
    rig = ToolRig(send_tool([]), plugins=[to("Bob")])
    question = await rig.ask(rig.call("send", ADA).model_copy(update={"approvers": "owner"}))
    assert json.loads(question.call.arguments) == {"to": "Bob"}

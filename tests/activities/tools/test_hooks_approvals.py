"""Plugins before a tool call: what people are asked, and which call their answer is for."""

import json

import pytest

from everloop.agents.guard import guard
from everloop.agents.hooks import NeedsApproval
from everloop.agents.plugins import Plugin
from everloop.agents.questions import InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.questions import Question
from tests.support.rigs.tool_plugins import ADA, before, send_tool, to
from tests.support.rigs.tool_rig import ToolRig, no, unkeyed, yes


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

"""Plugins around a tool call: what runs, what people approve, and what is recorded."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from agents.guard import guard
from agents.hooks import HookContext, NeedsApproval, Veto
from agents.plugins import Plugin
from agents.questions import InputRequired
from agents.retries import Retries
from agents.tool import Tool, tool
from agents.tool_context import ToolContext
from stores.tool_records import Claim
from tests.support.tool_bench import ToolBench, no, yes
from workflows.contract.events import ToolCompleted, ToolStarted
from workflows.contract.messages import ToolCall, ToolMessage
from workflows.contract.names import call_key
from workflows.contract.questions import Question
from workflows.contract.tasks import Identity

ADA = '{"to": "Ada"}'


class Before(Plugin):
    """Says what a function makes of each call."""

    decide: Callable[[ToolCall], ToolCall | Veto | NeedsApproval | None]

    async def before_tool(
        self, context: HookContext, call: ToolCall
    ) -> ToolCall | Veto | NeedsApproval | None:
        return self.decide(call)


class After(Plugin):
    """Says what a function makes of each result, and hears of errors."""

    decide: Callable[[ToolMessage], ToolMessage | Veto | None]
    errors: Sequence[str] = ()

    async def after_tool(
        self, context: HookContext, call: ToolCall, result: ToolMessage
    ) -> ToolMessage | Veto | None:
        return self.decide(result)

    async def on_error(self, context: HookContext, error: str) -> None:
        self.errors = [*self.errors, error]


def before(decide: Callable[[ToolCall], ToolCall | Veto | NeedsApproval | None]) -> Before:
    plugin = Before()
    plugin.decide = decide
    return plugin


def after(decide: Callable[[ToolMessage], ToolMessage | Veto | None]) -> After:
    plugin = After()
    plugin.decide = decide
    return plugin


def to(*names: str) -> Before:
    """Put another receiver into each call; the next name every time it is asked."""
    left = [*names]
    return before(
        lambda call: call.model_copy(
            update={"arguments": json.dumps({"to": left.pop(0) if len(left) > 1 else left[0]})}
        )
    )


def _fail(_: object) -> None:
    raise KeyError("rules")


def _no_sundays(_: object) -> Veto:
    return Veto("not on Sundays")


def _send(sent: list[str], **settings: bool) -> Tool:
    @tool(needs_approval=settings.get("needs_approval", False), idempotent=settings.get("idempotent", False))
    async def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return f"sent to {to}"

    return send


async def test_a_tool_gets_the_arguments_that_a_plugin_gives_it() -> None:
    """They are parsed as the model's are."""
    sent: list[str] = []
    bench = ToolBench(_send(sent), plugins=[to("Bob")])

    result = await bench.run(bench.call("send", ADA))

    assert (result.content, sent) == ("sent to Bob", ["Bob"])


async def test_arguments_of_a_plugin_that_do_not_fit_run_nothing() -> None:
    """The model reads whose fault it is."""
    sent: list[str] = []
    bench = ToolBench(_send(sent), plugins=[before(lambda call: call.model_copy(update={"arguments": "{}"}))])

    result = await bench.run(bench.call("send", ADA))

    assert result.outcome == "error"
    assert result.content.startswith("send was not run: a plugin changed the call; invalid arguments")
    assert sent == []


async def test_plugins_are_not_asked_about_what_cannot_run() -> None:
    """The model corrects its arguments first."""
    bench = ToolBench(_send([]), plugins=[before(_fail)])

    assert (await bench.run(bench.call("send", "{}"))).outcome == "invalid"


@pytest.mark.parametrize(
    ("decide", "outcome", "content"),
    [
        (_no_sundays, "rejected", "not on Sundays"),
        (_fail, "error", "send was not run: plugin 'before' failed in before_tool: KeyError: 'rules'"),
    ],
    ids=["veto", "failure"],
)
async def test_a_plugin_stops_a_call(
    decide: Callable[[object], Veto | None], outcome: str, content: str
) -> None:
    """Nothing runs, and nothing is recorded; subscribers see the call start and end."""
    sent: list[str] = []
    bench = ToolBench(_send(sent), plugins=[before(decide)])
    call = bench.call("send", ADA)

    result = await bench.run(call)

    assert (result.outcome, result.content, sent) == (outcome, content, [])
    assert [type(event) for event in await bench.events()] == [ToolStarted, ToolCompleted]
    assert await bench.records.claim(bench.task_id, call_key(call.call)) is Claim.FIRST


async def test_a_veto_takes_no_outcome_back() -> None:
    """An attempt before this one has made the call: the model reads what it came to."""
    decisions = [None, Veto("too late")]
    bench = ToolBench(_send([]), plugins=[before(lambda _: decisions.pop(0))])

    results = [await bench.run(bench.call("send", ADA)) for _ in range(2)]

    assert [result.content for result in results] == ["sent to Ada"] * 2


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_veto_does_not_hide_what_may_have_happened(*, idempotent: bool) -> None:
    """An attempt before this one was lost while it ran: nobody knows what it has done."""
    sent: list[str] = []
    bench = ToolBench(_send(sent, idempotent=idempotent), plugins=[before(lambda _: Veto("too late"))])
    call = bench.call("send", ADA)
    await bench.records.claim(bench.task_id, call_key(call.call))

    result = await bench.run(call)

    assert (result.outcome, sent) == ("unknown", [])


async def test_a_plugin_wants_an_approval() -> None:
    """Its reason stands in the question; what does not print is escaped. Approved, the call runs."""
    sent: list[str] = []
    bench = ToolBench(_send(sent), plugins=[before(lambda _: NeedsApproval("it is\u202e final"))])
    question = await bench.ask(bench.call("send", ADA))
    before_yes = [*sent]

    result = await bench.run(bench.call("send", ADA, yes(question)))

    assert question.text == 'Approve the call send?\nit is\\u202e final\n{\n  "to": "Ada"\n}'
    assert (question.id, question.purpose) == ("call", "approval")
    assert (before_yes, sent, result.content) == ([], ["Ada"], "sent to Ada")


async def test_one_approval_is_enough() -> None:
    """The tool, the agent and two plugins want one: people are asked once."""
    wants = [guard(approve=["send"]), before(lambda _: NeedsApproval())]
    bench = ToolBench(_send([], needs_approval=True), plugins=wants, needs_approval=True)
    question = await bench.ask(bench.call("send", ADA))

    assert (await bench.run(bench.call("send", ADA, yes(question)))).outcome == "ok"


async def test_people_approve_what_will_run() -> None:
    """The question shows the arguments that a plugin has put in, and its id stands for them."""
    sent: list[str] = []
    bench = ToolBench(_send(sent, needs_approval=True), plugins=[to("Bob")])
    question = await bench.ask(bench.call("send", ADA))

    result = await bench.run(bench.call("send", ADA, yes(question)))

    assert (json.loads(question.call.arguments), '"to": "Bob"' in question.text) == ({"to": "Bob"}, True)
    assert question.id.startswith("call~")
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
    bench = ToolBench(_send(sent, needs_approval=True), plugins=plugins)
    first = await bench.ask(bench.call("send", ADA))
    reply = await bench.attempt_call(bench.call("send", ADA, yes(first)))

    assert f'"to": "{shown}"' in first.text
    if shown == ran:
        assert sent == [ran]
        return
    assert isinstance(reply, Question)
    assert sent == []
    assert f'"to": "{ran}"' in reply.text
    assert (await bench.run(bench.call("send", ADA, yes(first), yes(reply)))).content == f"sent to {ran}"


@pytest.mark.parametrize("changes_first", [True, False])
async def test_an_approval_does_not_pass_between_changed_and_unchanged(*, changes_first: bool) -> None:
    """What people said to the model's own arguments is no yes to a plugin's, nor the other way round."""
    sent: list[str] = []
    unchanged, changed = before(lambda _: None), to("Bob")
    order = [changed, unchanged] if changes_first else [unchanged, changed]
    earlier = ToolBench(_send(sent, needs_approval=True), plugins=[order[0]])
    later = ToolBench(_send(sent, needs_approval=True), plugins=[order[1]])
    answer = yes(await earlier.ask(earlier.call("send", ADA)))

    question = await later.ask(later.call("send", ADA, answer))

    assert sent == []
    assert question.id.startswith("call.1")


async def test_spaces_and_order_of_changed_arguments_do_not_matter() -> None:
    """A plugin may write the same arguments anew each time it is asked."""
    written = ['{"to": "Bob", "again": 1}', '{ "again": 1,  "to": "Bob"}']

    @tool(needs_approval=True)
    async def send(to: str, again: int) -> str:
        """Send it."""
        return f"{to} {again}"

    bench = ToolBench(
        send, plugins=[before(lambda call: call.model_copy(update={"arguments": written.pop(0)}))]
    )
    question = await bench.ask(bench.call("send", '{"to": "Ada", "again": 2}'))

    result = await bench.run(bench.call("send", '{"to": "Ada", "again": 2}', yes(question)))

    assert result.content == "Bob 1"


async def test_a_no_ends_a_changed_call() -> None:
    """Without asking the plugins again."""
    bench = ToolBench(_send([], needs_approval=True), plugins=[to("Bob")])
    question = await bench.ask(bench.call("send", ADA))

    result = await bench.run(bench.call("send", ADA, no(question)))

    assert (result.outcome, result.content) == ("rejected", "rejected by the user")


async def test_a_call_is_recorded_as_the_model_wrote_it() -> None:
    """A plugin that changes it differently after a crash does not make it another call."""
    sent: list[str] = []
    bench = ToolBench(_send(sent), plugins=[to("Bob", "Cy")])

    results = [await bench.run(bench.call("send", ADA)) for _ in range(2)]

    assert sent == ["Bob"]
    assert results[0] == results[1]


async def test_a_plugin_knows_where_the_call_belongs() -> None:
    """The task, its owner, and who started it."""
    contexts: list[HookContext] = []

    class Watching(Plugin):
        async def before_tool(self, context: HookContext, call: ToolCall) -> None:
            contexts.append(context)

    bench = ToolBench(_send([]), plugins=[Watching()])
    identity = Identity(scheme="bearer", subject="ann")
    await bench.run(bench.call("send", ADA).model_copy(update={"identity": identity}))

    assert contexts == [
        HookContext(task_id=bench.task_id, context_id="c", owner="owner", agent_id="agent", auth=identity)
    ]


async def test_the_result_is_what_plugins_make_of_it() -> None:
    """So it is recorded, cached, and told; another attempt does not ask them again."""
    asked: list[str] = []

    def shout(result: ToolMessage) -> ToolMessage:
        asked.append(result.content)
        return result.model_copy(update={"content": result.content.upper()})

    bench = ToolBench(_send([]), plugins=[after(shout)])
    results = [await bench.run(bench.call("send", ADA)) for _ in range(2)]

    assert [result.content for result in results] == ["SENT TO ADA"] * 2
    assert asked == ["sent to Ada"]
    assert (await bench.events())[-1] == ToolCompleted(
        call_id="call", name="send", outcome="ok", excerpt="SENT TO ADA"
    )


async def test_a_result_that_is_vetoed_is_not_read() -> None:
    """The model reads the reason; what the tool has written stays known."""

    @tool
    async def write(context: ToolContext) -> str:
        """Write."""
        await context.artifacts.write_file("report", "text")
        return "secret plans"

    bench = ToolBench(write, plugins=[after(lambda _: Veto("that is confidential"))])

    result = await bench.run(bench.call("write"))

    assert (result.content, result.outcome) == ("that is confidential", "rejected")
    assert result.artifacts == ("report",)


async def test_a_result_that_no_plugin_could_look_at_is_withheld() -> None:
    """The model learns that the tool ran; the tool does not run again."""
    sent: list[str] = []
    bench = ToolBench(_send(sent), plugins=[after(_fail)])

    results = [await bench.run(bench.call("send", ADA)) for _ in range(2)]

    expected = "the tool ran, but plugin 'after' failed in after_tool: KeyError: 'rules'; what it came to is"
    assert [result.outcome for result in results] == ["error"] * 2
    assert results[0].content.startswith(expected)
    assert "Ada" not in results[0].content
    assert sent == ["Ada"]


async def test_a_withheld_result_brings_no_tool_that_stands_in() -> None:
    """It would do again what was done: only a tool that failed itself is replaced."""
    sent: list[str] = []
    stand_in = _send([])
    failing = replace(_send(sent), name="first", fallback="send")
    bench = ToolBench(failing, stand_in, plugins=[after(_fail)])

    assert (await bench.run(bench.call("first", ADA))).outcome == "unknown"
    assert sent == ["Ada"]


async def test_plugins_look_at_errors_and_hear_of_them() -> None:
    """Once no attempt follows; then they are told, and the model reads what they made of it."""

    @tool(retries=Retries(2))
    async def fail() -> str:
        """Fail."""
        raise ValueError("the disk is full")

    plugin = after(lambda result: result.model_copy(update={"content": f"sorry: {result.content}"}))
    bench = ToolBench(fail, plugins=[plugin])

    failed, result = await bench.attempts(bench.call("fail"))

    assert isinstance(result, ToolMessage)
    assert [str(error) for error in failed] == ["ToolFailed: ValueError: the disk is full"]
    assert (result.content, result.outcome) == ("sorry: ValueError: the disk is full", "error")
    assert plugin.errors == ["fail: sorry: ValueError: the disk is full"]


async def test_nobody_hears_of_an_error_where_there_is_none() -> None:
    """Neither of a result, nor of a rejection."""
    plugin = after(lambda _: Veto("no"))
    bench = ToolBench(_send([]), plugins=[plugin])
    await bench.run(bench.call("send", ADA))

    assert plugin.errors == ()


async def test_a_tools_own_question_shows_the_call_that_runs() -> None:
    """With the arguments that a plugin has put in; after the answer it goes on with them."""

    @tool
    async def send(to: str, context: ToolContext) -> str:
        """Send it."""
        if context.answer is None:
            raise InputRequired(f"Send to {to}?")
        return f"sent to {to}"

    bench = ToolBench(send, plugins=[to("Bob")])
    question = await bench.ask(bench.call("send", ADA))

    result = await bench.run(bench.call("send", ADA, yes(question)))

    assert (question.id, json.loads(question.call.arguments)) == ("call", {"to": "Bob"})
    assert result.content == "sent to Bob"

"""Calls that wait for people: questions of tools, and lost calls."""

from datetime import timedelta
from functools import partial

import pytest

from everloop.agents.limits import Retries
from everloop.agents.plugins import request_input
from everloop.agents.question_exceptions import InputRequired
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.tool_records import Claim
from everloop.workflows.contract import failures
from everloop.workflows.contract.events import ToolCompleted, ToolStarted
from everloop.workflows.contract.names import call_key
from everloop.workflows.contract.questions import Answer, AnsweredBy, QuestionKind, answer_with, no_answer
from tests.support.rigs.tool_rig import Decision, ToolRig, no, unkeyed, yes


def _asking(runs: list[str], *, needs_approval: bool = False) -> Tool:
    @tool(needs_approval=needs_approval)
    def book(context: ToolContext) -> str:
        """Book a table for an hour that the user chooses."""
        runs.append(context.idempotency_key)
        if context.answer is None:
            raise InputRequired("When?", "selection", options=["noon", "night"], timeout=timedelta(hours=1))
        if len(context.answers) == 1:
            raise InputRequired("Outside?", "confirmation")
        return f"{context.answers[0].value}, outside: {context.answer}"

    return book


async def test_a_tool_asks_and_gets_the_answers() -> None:
    """A tool asks several questions with their own ids and one idempotency key, and completes once."""
    runs: list[str] = []
    rig = ToolRig(_asking(runs))

    first = await rig.ask(rig.call("book"))
    noon = answer_with(first, "noon", by="user")
    second = await rig.ask(rig.call("book", "{}", noon))
    result = await rig.run(rig.call("book", "{}", noon, no(second)))

    assert (unkeyed(first.id), first.purpose, first.options, first.timeout) == (
        "call",
        "input",
        ("noon", "night"),
        3600,
    )
    assert (unkeyed(second.id), second.kind) == ("call.1", QuestionKind.CONFIRMATION)
    assert (result.outcome, result.content) == ("ok", "noon, outside: False")
    assert len(runs) == 3
    assert len(set(runs)) == 1
    assert [type(event) for event in await rig.events()] == [ToolStarted] * 3 + [ToolCompleted]


async def test_a_question_is_asked_once() -> None:
    """A retry returns the question without running the tool again."""
    runs: list[str] = []
    rig = ToolRig(_asking(runs))
    questions = [await rig.ask(rig.call("book")) for _ in range(2)]
    assert questions[0] == questions[1]
    assert len(runs) == 1


async def test_an_approval_is_no_answer_to_the_tool() -> None:
    """The answer to an approval is not in the tool's context, which has only answers to its own questions."""
    rig = ToolRig(_asking([], needs_approval=True))
    approval = await rig.ask(rig.call("book"))
    question = await rig.ask(rig.call("book", "{}", yes(approval)))
    assert (unkeyed(question.id), question.text) == ("call.1", "When?")


async def test_an_answer_to_another_tool_is_none_of_its_own() -> None:
    """A fallback does not get the answers of its predecessor."""
    rig = ToolRig(*request_input().tools, _asking([]))
    answer = yes(await rig.ask(rig.call("request_input", '{"question": "Sure?", "kind": "confirmation"}')))
    question = await rig.ask(rig.call("book", "{}", answer))
    assert (unkeyed(question.id), question.text) == ("call.1", "When?")


@pytest.mark.parametrize(
    "decide", [partial(answer_with, value={"approved": False}, by="user"), no_answer], ids=["user", "timeout"]
)
async def test_a_tool_whose_question_is_declined_ends(decide: Decision) -> None:
    """A tool whose question is declined does not run again."""
    runs: list[str] = []
    rig = ToolRig(_asking(runs))
    question = await rig.ask(rig.call("book"))
    result = await rig.run(rig.call("book", "{}", decide(question)))
    assert result.outcome == "rejected"
    assert len(runs) == 1


def _no_by(by: AnsweredBy) -> Decision:
    return partial(answer_with, value=False, by=by)


@pytest.mark.parametrize(
    ("decide", "expected"),
    [
        (_no_by("user"), "said False"),
        (_no_by("operator"), "said False"),
        (_no_by("timeout"), "said False"),
        (no_answer, "rejected because nobody answered in time"),
    ],
    ids=["user", "operator", "default", "no_default"],
)
async def test_a_no_to_the_tools_own_question_is_its_answer(decide: Decision, expected: str) -> None:
    """A rejection is the answer to the tool's own question; a timeout without a default ends it."""

    @tool
    def confirm(context: ToolContext) -> str:
        """Ask."""
        if context.answer is None:
            raise InputRequired("Sure?", "confirmation")
        return f"said {context.answer}"

    rig = ToolRig(confirm)
    question = await rig.ask(rig.call("confirm"))
    assert (await rig.run(rig.call("confirm", "{}", decide(question)))).content == expected


@pytest.mark.parametrize("retries", [None, Retries(attempts=2)])
@pytest.mark.parametrize("how", ["ask", "fail"])
async def test_text_that_is_no_unicode_ends_the_call(how: str, retries: Retries | None) -> None:
    """Invalid Unicode in a question or an error does not prevent the end of a call."""

    @tool(retries=retries)
    def act(how: str) -> str:
        """Ask, or fail."""
        if how == "ask":
            raise InputRequired("\ud800?")
        raise ValueError("\ud800!")

    rig = ToolRig(act)
    failed, end = await rig.attempts(rig.call("act", f'{{"how": "{how}"}}'))
    told = [event.model_dump_json() for event in await rig.events()]
    assert all(error.message.encode() for error in failed)
    assert "tool-complete" in told[-1]
    assert {error.type for error in failed} == ({failures.TOOL_FAILED} if retries else set[str]())
    assert end.role == "tool"
    assert end.outcome == "error"


async def _lost(rig: ToolRig, *answers: Answer) -> None:
    call = rig.call("effect", "{}", *answers)
    assert await rig.lose(call) is Claim.FIRST


def _effect(keys: list[str]) -> Tool:
    @tool(unknown_outcome="ask")
    def effect(context: ToolContext) -> str:
        """Leave the key."""
        keys.append(context.idempotency_key)
        return "done"

    return effect


@pytest.mark.parametrize(
    ("decide", "outcome", "runs"),
    [(yes, "ok", 1), (no, "unknown", 0), (no_answer, "unknown", 0)],
    ids=["yes", "no", "no_answer"],
)
async def test_people_decide_about_a_call_that_was_lost(decide: Decision, outcome: str, runs: int) -> None:
    """An approval repeats a lost call with the same idempotency key.

    After a rejection its outcome is unknown.
    """
    keys: list[str] = []
    rig = ToolRig(_effect(keys))
    await _lost(rig)
    question = await rig.ask(rig.call("effect"))
    result = await rig.run(rig.call("effect", "{}", decide(question)))
    assert question.purpose == "outcome"
    assert "It may have taken effect" in question.text
    assert result.outcome == outcome
    assert keys == [f"{rig.task_id}/{call_key(question.call)}"] * runs


async def test_a_call_that_is_lost_twice_is_asked_about_twice() -> None:
    """An approval allows one more run: a call that is lost again needs another."""
    rig = ToolRig(_effect([]))
    await _lost(rig)
    once = yes(await rig.ask(rig.call("effect")))
    await _lost(rig, once)
    question = await rig.ask(rig.call("effect", "{}", once))
    result = await rig.run(rig.call("effect", "{}", once, yes(question)))
    assert (unkeyed(question.id), question.purpose) == ("call.1", "outcome")
    assert (result.outcome, result.content) == ("ok", "done")

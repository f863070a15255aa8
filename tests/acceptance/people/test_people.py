"""People in the loop: a task waits for them, hears them, and does what they said once."""

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from a2a.client import Client
from a2a.types.a2a_pb2 import GetTaskRequest, SubscribeToTaskRequest, TaskState
from a2a.utils.errors import InvalidParamsError
from pydantic import JsonValue

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.people import (
    Harness,
    asked_for,
    call,
    effects,
    question,
    questions,
    say,
    shown,
    until_done,
)

WORKING = TaskState.TASK_STATE_WORKING
COMPLETED = TaskState.TASK_STATE_COMPLETED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
AUTH_REQUIRED = TaskState.TASK_STATE_AUTH_REQUIRED

Arguments = dict[str, JsonValue]


@pytest_asyncio.fixture(loop_scope="session")
async def client(steady_harness: Harness) -> AsyncGenerator[Client]:
    """A client that waits for each reply."""
    async with connected(steady_harness.gateway.url, streaming=False) as connection:
        yield connection


class Policy(NamedTuple):
    """A call that its policy stops, the approval, and what the call does then."""

    tool: str
    arguments: Arguments
    approval: JsonValue
    effect: JsonValue
    result: str


POLICIES = {
    "on the arguments": Policy(
        "pay", {"amount": 5000.5, "to": "Ann"}, "yes", [5000.5, "Ann"], "paid 5000.5 to Ann"
    ),
    "on the tool": Policy("wipe", {"disk": "sda"}, {"approved": True}, "sda", "wiped sda"),
    "on the agent": Policy("deploy", {"version": "1.2"}, "yes", "1.2", "deployed 1.2"),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
async def test_an_approved_call_runs_once(
    steady_harness: Harness, client: Client, ledger: Path, policy: Policy
) -> None:
    """Nothing happens before people have seen the exact arguments and agreed."""
    exact = {**policy.arguments, "ledger": str(ledger)}
    steady_harness.expect(call(policy.tool, exact))

    parked = await send(client, request("Go."))
    before = effects(ledger)
    task = await send(client, say(parked.id, policy.approval))

    assert parked.status.state == INPUT_REQUIRED
    assert f"Approve the call {policy.tool}?\n{json.dumps(exact, indent=2)}\n" in shown(parked)
    asked = question(parked)
    assert asked["tool"] == policy.tool
    assert json.loads(str(asked["arguments"])) == exact
    assert before == []
    assert task.status.state == COMPLETED
    assert effects(ledger) == [policy.effect]
    assert steady_harness.tool_results == [policy.result]


async def test_a_rejected_call_does_not_run(steady_harness: Harness, client: Client, ledger: Path) -> None:
    """The model reads the rejection, with its note, as the result of its call, and goes on."""
    steady_harness.expect(call("pay", {"amount": 5000, "to": "Ann", "ledger": str(ledger)}))

    parked = await send(client, request("Go."))
    task = await send(client, say(parked.id, {"approved": False, "note": "too dear."}))

    assert response_of(task) == "Done."
    assert steady_harness.tool_results == ["rejected by the user: too dear."]
    assert effects(ledger) == []


class Asked(NamedTuple):
    """A kind of question, what is no answer to it, what the refusal says, an answer and what it means."""

    asks: str
    kind: str
    wrong: JsonValue
    expected: str
    answer: JsonValue
    value: JsonValue


KINDS = [
    Asked("book", "clarification", None, "a text or data part", {"a": "A"}, {"a": "A"}),
    Asked("request_input", "confirmation", "maybe", 'answer "yes" or "no"', "No.", False),
    Asked("request_input", "selection", "19:00", "one of: 18:00, 20:00", "20:00", "20:00"),
    Asked("book", "data", {"adults": 9}, '{"maximum": 8} at $.adults', {"adults": 2}, {"adults": 2}),
]


@pytest.mark.parametrize("asked", KINDS, ids=[asked.kind for asked in KINDS])
async def test_each_kind_of_question_takes_its_kind_of_answer(
    steady_harness: Harness, client: Client, ledger: Path, asked: Asked
) -> None:
    """Whether a tool asks or the model: what is no answer is refused and changes nothing."""
    arguments: dict[str, Arguments] = {
        "book": {"ledger": str(ledger)},
        "request_input": {"question": "Well?"},
    }
    if asked.kind == "selection":
        arguments["request_input"]["options"] = ["18:00", "20:00"]
    steady_harness.expect(call(asked.asks, {"kind": asked.kind, **arguments[asked.asks]}))

    parked = await send(client, request("Go."))
    with pytest.raises(InvalidParamsError) as refused:
        await send(client, say(parked.id, asked.wrong))
    still = await client.get_task(GetTaskRequest(id=parked.id))
    task = await send(client, say(parked.id, asked.answer))

    assert parked.status.state == INPUT_REQUIRED
    assert question(parked)["kind"] == asked.kind
    assert asked.expected in str(refused.value)
    assert still == parked
    assert response_of(task) == "Done."
    (result,) = steady_harness.tool_results
    if asked.asks == "book":
        assert effects(ledger) == [[asked.value, "user"]]
        assert result == f"booked {json.dumps(asked.value)}"
    else:
        assert asked.value == (result if isinstance(asked.value, str) else json.loads(result))


async def test_several_questions_are_open_at_once(
    steady_harness: Harness, client: Client, ledger: Path
) -> None:
    """Each is answered by its name, in any order, or without one as the oldest; the others stay open."""
    steady_harness.expect(
        call("pay", {"amount": 2000, "to": "Ann", "ledger": str(ledger)}, 0),
        call("book", {"kind": "selection", "ledger": str(ledger)}, 1),
        call("book", {"kind": "clarification", "ledger": str(ledger)}, 2),
        call("pay", {"amount": 1, "to": "Bob", "ledger": str(ledger)}, 3),
    )

    first = await asked_for(client, await send(client, request("Go.")), 3)
    before = await until_done(ledger, 1)
    by_tool = {(str(asked["tool"]), asked["kind"]): name for name, asked in questions(first).items()}
    pays, books = by_tool["pay", "confirmation"], by_tool["book", "selection"]
    names = by_tool["book", "clarification"]
    is_open = r"no question 'd' is open.*18:00, 20:00"
    with pytest.raises(InvalidParamsError, match=is_open):
        await send(client, say(first.id, "yes", question="d"))
    with pytest.raises(InvalidParamsError, match=f"this does not answer question '{pays}'"):
        await send(client, say(first.id, "20:00", question=pays))
    second = await send(client, say(first.id, "20:00", question=books))
    await until_done(ledger, 2)
    third = await send(client, say(first.id, {"question": names, "answer": "Ann"}))
    between = await until_done(ledger, 3)
    last = await send(client, say(first.id, "yes"))

    assert shown(first).startswith("1 of 3: ")
    assert shown(first).endswith("2 more follow.")
    assert [set(questions(task)) for task in (second, third)] == [{pays, names}, {pays}]
    assert last.status.state == COMPLETED
    assert before == [[1, "Bob"]]
    assert between == [*before, ["20:00", "user"], ["Ann", "user"]]
    assert effects(ledger) == [*between, [2000, "Ann"]]
    assert steady_harness.tool_results == [
        "paid 2000 to Ann",
        'booked "20:00"',
        'booked "Ann"',
        "paid 1 to Bob",
    ]


class Signal(NamedTuple):
    """A call, what the operator changes in the signal that the details show, its effects and its result."""

    tool: str
    arguments: Arguments
    changes: Arguments
    effects: list[JsonValue]
    result: str


SIGNALS = {
    "answer": Signal(
        "book", {"kind": "clarification"}, {"value": "Ann"}, [["Ann", "operator"]], 'booked "Ann"'
    ),
    "no secret": Signal("open_vault", {}, {}, [], "rejected by the operator"),
}


@pytest.mark.parametrize("signal", SIGNALS.values(), ids=SIGNALS.keys())
async def test_an_operator_sends_the_signal_that_the_details_show(
    steady_harness: Harness, ledger: Path, signal: Signal
) -> None:
    """Pasted into the CLI it answers, as it is or with other values; the client's subscription goes on.

    What is shown for a secret declines: a signal stands in the history.
    """
    steady_harness.expect(call(signal.tool, {**signal.arguments, "ledger": str(ledger)}))

    async with connected(steady_harness.gateway.url) as client:
        parked = await Answer().read(client.send_message(request("Go.")))
        details = await steady_harness.details(parked.task_id)
        pasted, _ = re.findall("```json\n(.*)\n```", details)  # the other one skips the call
        subscription = client.subscribe(SubscribeToTaskRequest(id=parked.task_id))
        rest = Answer()
        rest.add(await anext(subscription))
        changed = json.dumps({**json.loads(pasted), **signal.changes})
        await steady_harness.signal_approve(parked.task_id, changed if signal.changes else pasted)
        await rest.read(subscription)

    assert "-required**: waiting, iteration 1\n\nWaits for people." in details
    assert parked.states[-1] == rest.states[0] in {INPUT_REQUIRED, AUTH_REQUIRED}
    assert rest.states[-1] == COMPLETED
    assert steady_harness.tool_results == [signal.result]
    assert effects(ledger) == signal.effects


@pytest.mark.parametrize("streaming", [False, True], ids=["blocking", "streaming"])
async def test_sending_an_answer_returns_at_the_next_interruption(
    steady_harness: Harness, ledger: Path, *, streaming: bool
) -> None:
    """It does not return with the question that it answers, nor does it wait for the answer to the next."""
    arguments = {"disk": "sda", "ledger": str(ledger)}
    steady_harness.expect(call("wipe", arguments, 0), call("wipe", arguments, 1))

    async with connected(steady_harness.gateway.url, streaming=streaming) as client:
        first = await Answer().read(client.send_message(request("Go.")))
        both = await client.get_task(GetTaskRequest(id=first.task_id))
        one, other = questions(await asked_for(client, both, 2))
        second = await Answer().read(client.send_message(say(first.task_id, "yes", question=one)))
        between = await client.get_task(GetTaskRequest(id=first.task_id))
        last = await Answer().read(client.send_message(say(first.task_id, "yes")))

    assert first.states[-1] == second.states[-1] == INPUT_REQUIRED
    assert list(questions(between)) == [other]
    assert (last.states[-1], last.text) == (COMPLETED, "Done.")
    assert effects(ledger) == ["sda", "sda"]

"""The chaos suite itself: its plan follows from the seed alone, and its verdict misses nothing."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.load import Outcome
from tests.chaos.orders import FORGOTTEN, KINDS, SAID, Kind, Order
from tests.chaos.plan import _CLUSTER_DECK, _DECK, _Card, make_plan
from tests.chaos.story import Json, Story
from tests.chaos.verdict import Books, expected_paths, expected_results, judge, strangers
from tests.support.servers.webhook import Notification

SEED, TASK, RECEIPT = 7, "task", "receipt"


@pytest.mark.parametrize(("cluster", "deck"), [(False, _DECK), (True, _CLUSTER_DECK)])
def test_a_plan_follows_from_the_seed(deck: Sequence[_Card], *, cluster: bool) -> None:
    """The same seed gives the same faults, another one others; each kind comes before any comes again."""
    plan = make_plan(1, 600, 3, 2, cluster=cluster)
    kinds = [(harm.how, harm.target.partition("-")[0]) for harm in plan[: len(deck)]]

    assert plan == make_plan(1, 600, 3, 2, cluster=cluster)
    assert plan != make_plan(2, 600, 3, 2, cluster=cluster)
    assert {card.how for card in deck} == {how for how, _ in kinds}
    assert all(harm.at + harm.length < 600 for harm in plan)


def _order(kind: Kind) -> Order:
    """Return an order of a kind that notifies a webhook and, if people are asked, gets a yes."""
    orders = (Order(SEED, number) for number in range(1000))
    fits = (each for each in orders if each.is_pushed and each.approves and not each.is_at_once)
    return next(each for each in fits if each.kind == kind)


def _results(order: Order) -> dict[str, str]:
    said = expected_results(order)
    return {call.id: said.get(call.tool, RECEIPT) for call in order.calls.values()}


def _books(order: Order) -> Books:
    deposits = [call for call in order.calls.values() if call.tool.startswith("deposit")]
    charges = [call for call in order.calls.values() if call.tool.startswith("charge")]
    family = {
        f"{TASK}/{call.key}/r00001c01": [RECEIPT] for call in order.calls.values() if call.tool == "clerk"
    }
    return Books(
        {str(call.arguments.get("name", f"{TASK}/{call.id}")): [RECEIPT] for call in deposits} | family,
        {f"{TASK}/{call.id}": [RECEIPT] for call in charges},
    )


def _artifact(name: str, text: str) -> Json:
    return {"artifactId": name, "parts": [{"text": text}]}


def _events(order: Order) -> list[Json]:
    """Return a client's events of an order that ends right."""
    status = {"state": "TASK_STATE_SUBMITTED"}
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": SAID}]}
    cause = {"messageId": "f", "role": "ROLE_AGENT", "parts": [{"text": "wrong (400, invalid_prompt)"}]}
    *path, end = [{"state": state} for state in expected_paths(order)[0]]
    events: list[Json] = [{"task": {"id": TASK, "contextId": "c", "status": status}}]
    events += [{"statusUpdate": {"status": {**each, "message": message}}} for each in path]
    if order.kind == "files":
        events.append({"artifactUpdate": {"artifact": _artifact("lines", "".join(order.lines))}})
    if end["state"] == "TASK_STATE_COMPLETED":
        answer = _artifact("response", order.answer(_results(order)))
        events.append({"artifactUpdate": {"artifact": answer, "lastChunk": True}})
    last = {**end, "message": cause} if order.kind == "fails" else end
    return [*events, {"statusUpdate": {"status": last}}]


def _right(kind: Kind) -> Outcome:
    order, story = _order(kind), Story(clock=lambda: 0)
    for number, event in enumerate(_events(order)):
        story.take(event, str(number))
    status = next(e["statusUpdate"]["status"] for e in reversed(_events(order)) if "statusUpdate" in e)
    history = [{"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": SAID}]}] * len(order.turns)
    artifacts = [_artifact(name, text) for name, text in story.texts.items()]
    task: Json = {"id": TASK, "status": status, "history": history, "artifacts": artifacts}
    return Outcome(order, story, begun=0, ended=1, task=task, content=order.content)


def _told(order: Order) -> list[Notification]:
    news = [event for event in _events(order) if "task" not in event]
    return [
        Notification(f"/{order.number}", {"webhook-id": str(number)}, json.dumps(event).encode())
        for number, event in enumerate(news)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_ends_right_is_right(kind: Kind) -> None:
    """No problem is found, also if a call's end was lost and the model reads so."""
    outcome = _right(kind)
    books = _books(outcome.order)

    assert judge(outcome, books, _told(outcome.order)) == []
    assert strangers([outcome], books) == []


def test_a_redis_that_was_set_back_may_lose_what_the_agent_said() -> None:
    """The lost text is beside its calls, in the history alone."""
    outcome = _right("books")
    outcome.task["history"] = []
    books = _books(outcome.order)

    assert "its history is wrong" in "\n".join(judge(outcome, books, None))
    assert judge(outcome, books, None, was_set_back=True) == []


def test_a_redis_that_was_set_back_may_repeat_an_answer_to_a_webhook() -> None:
    """The same answer, with another id."""
    outcome = _right("talk")
    books, told = _books(outcome.order), _told(outcome.order)
    *before, answer, end = told
    told = [*before, answer, replace(answer, headers={"webhook-id": "again"}), end]

    assert "heard the answers" in "\n".join(judge(outcome, books, told))
    assert judge(outcome, books, told, was_set_back=True) == []


@pytest.mark.parametrize("may_be_shown_anew", [True, False])
def test_a_client_may_be_shown_the_task_again_after_a_loss(*, may_be_shown_anew: bool) -> None:
    """In its state before the last events, which then come again."""
    outcome = _right("asks")
    outcome.story = Story(clock=lambda: 0, may_be_shown_anew=may_be_shown_anew)
    *events, end = enumerate(_events(outcome.order), 1)
    again = (2, {"task": {"id": TASK, "status": {"state": "TASK_STATE_WORKING"}}})
    for number, event in (*events, again, *events[2:], end):
        outcome.story.take(event, str(number))
    problems = judge(outcome, _books(outcome.order), None)

    assert may_be_shown_anew is not any("only news were asked for" in each for each in problems)
    assert may_be_shown_anew is (problems == [])


def _lose_end(outcome: Outcome) -> None:
    outcome.ended, outcome.waits_for = None, ["waits for a model"]


def _say(state: str) -> Callable[[Outcome], None]:
    def change(outcome: Outcome) -> None:
        outcome.task["status"] = {"state": state}

    return change


def _hear_twice(outcome: Outcome) -> None:
    outcome.story.take({"statusUpdate": {"status": {"state": "TASK_STATE_WORKING"}}}, "1")


def _miss_message(outcome: Outcome) -> None:
    outcome.story.messages.clear()


def _misread(name: str) -> Callable[[Outcome], None]:
    def change(outcome: Outcome) -> None:
        outcome.story.texts[name] += "more"

    return change


def _spoil_bytes(outcome: Outcome) -> None:
    outcome.content = outcome.content[:-1]


def _answer(results: dict[str, str]) -> Callable[[Outcome], None]:
    def change(outcome: Outcome) -> None:
        text = outcome.order.answer({**_results(outcome.order), **results})
        outcome.task["artifacts"] = [_artifact("response", text)]

    return change


def _skip_state(outcome: Outcome) -> None:
    del outcome.story.states[-2]


def _go_on(outcome: Outcome) -> None:
    outcome.story.states += ["TASK_STATE_WORKING", "TASK_STATE_CANCELED"]


def _forget(outcome: Outcome) -> None:
    outcome.task["artifacts"] = [_artifact("response", FORGOTTEN)]


def _answer_at_once(outcome: Outcome) -> None:
    outcome.at_once = outcome.order.words


WRONG: dict[str, tuple[Kind, Callable[[Outcome], None], str]] = {
    "no end": ("talk", _lose_end, "did not end"),
    "what an open task waits for": ("talk", _lose_end, "waits for a model"),
    "another state": ("books", _say("TASK_STATE_FAILED"), "GetTask says"),
    "no cause": ("fails", _say("TASK_STATE_FAILED"), "does not tell the cause"),
    "work after the end": ("cancels", _go_on, "saw the states"),
    "not cancelled": ("cancels", _say("TASK_STATE_COMPLETED"), "GetTask says"),
    "an event twice": ("books", _hear_twice, "came twice"),
    "an event after the end": ("books", _hear_twice, "after the end"),
    "a message missed": ("books", _miss_message, "missed the messages"),
    "another answer streamed": ("talk", _misread("response"), "another answer"),
    "another text streamed": ("files", _misread("lines"), "another text artifact"),
    "other bytes": ("files", _spoil_bytes, "downloaded wrong"),
    "a state missed": ("asks", _skip_state, "saw the states"),
    "another receipt": ("posts", _answer({"r00001c01": "other"}), "the ledger does not know"),
    "a receipt of nothing": ("posts", _answer({"r00001c02": "other"}), "the ledger has"),
    "another sub-agent's": ("family", _answer({"r00001c01": "other"}), "the ledger does not know"),
    "another reply": ("asks", _answer({"r00003c01": "other"}), "expected"),
    "another secret": ("logs in", _answer({"r00001c01": "other"}), "expected"),
    "another receipt of a batch": ("variants", _answer({"r00006c01": "other"}), "the ledger does not know"),
    "nothing remembered": ("recalls", _forget, "its answer is wrong"),
    "no task": ("routed", _answer_at_once, "it was answered at once"),
}


@pytest.mark.parametrize(("kind", "spoil", "found"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_found(kind: Kind, spoil: Callable[[Outcome], Any], found: str) -> None:
    """Each problem has a text of its own."""
    outcome = _right(kind)
    spoil(outcome)

    assert found in "\n".join(judge(outcome, _books(outcome.order), _told(outcome.order)))


@pytest.mark.parametrize(
    ("said", "found"),
    [(None, ["it was answered by a task"]), ("other", ["its answer at once is wrong: 'other'"])],
)
def test_an_order_that_is_answered_at_once_has_no_task(said: str | None, found: list[str]) -> None:
    """Its answer is the message."""
    order = next(
        each for number in range(1000) if (each := Order(SEED, number)).agent == "porter" and each.is_at_once
    )
    right = Outcome(order, Story(clock=lambda: 0), begun=0, ended=1, at_once=order.words)

    assert judge(right, Books({}, {}), []) == []
    assert judge(replace(right, at_once=said), Books({}, {}), []) == found


@pytest.mark.parametrize("kind", ["books", "posts", "asks", "family", "variants", "doubts", "hands over"])
def test_an_effect_that_happens_twice_is_found(kind: Kind) -> None:
    """Whatever the answer says; so is an effect without an order."""
    outcome = _right(kind)
    books = _books(outcome.order)
    twice = Books(
        {owner: [*receipts, "again"] for owner, receipts in books.deposits.items()},
        {owner: [*receipts, "again"] for owner, receipts in books.charges.items()},
    )

    assert "happened 2 times" in "\n".join(judge(outcome, twice, _told(outcome.order)))
    assert strangers([], books)

"""The exact right result of each kind of order: for its client, GetTask, the ledger and the webhook."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

from tests.chaos.load import POSTED, Outcome
from tests.chaos.model import UNKNOWN
from tests.chaos.orders import SAID, Call, Kind, Order, in_place
from tests.chaos.story import Json, text_of
from tests.support.agents.chaos import Ledger
from tests.support.servers.webhook import Notification

SUBMITTED, WORKING, ASKS, NEEDS_AUTH, COMPLETED, CANCELED, FAILED = (
    f"TASK_STATE_{name}"
    for name in (
        "SUBMITTED",
        "WORKING",
        "INPUT_REQUIRED",
        "AUTH_REQUIRED",
        "COMPLETED",
        "CANCELED",
        "FAILED",
    )
)
AGENT = "ROLE_AGENT"
REJECTED = "rejected by the user"
CAUSE = "(400, invalid_prompt)"
"""The failure of a task whose model refused its prompt."""


@dataclass(frozen=True)
class Books:
    """The ledger: receipts of each kind of effect, by call: `{task id}/{call id}`."""

    deposits: Mapping[str, Sequence[str]]
    charges: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, ledger: Ledger) -> "Books":
        """Return the ledger with the receipts."""
        deposits, charges = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for owner, receipt in ledger.deposits():
            deposits[owner].append(receipt)
        for owner, receipt in ledger.charges():
            charges[owner].append(receipt)
        return cls(deposits, charges)


def judge(
    outcome: Outcome, books: Books, told: Sequence[Notification] | None, *, was_set_back: bool = False
) -> list[str]:
    """Return all problems of one task; empty if it ended right.

    `told`: notifications that its webhook accepted; None: there are no webhooks. `was_set_back`: whether
    Redis lost writes while the task ran, which may be a message of the agent beside its calls, or the record
    that its webhook has its answer.
    """
    if outcome.ended is None:
        return [f"it did not end; its client saw {outcome.story.state or 'nothing'}", *outcome.waits_for]
    problems = [*outcome.story.problems, *_judge_answer_at_once(outcome)]
    if not outcome.task:
        return problems
    problems += _judge_state(outcome)
    problems += _judge_answer(outcome, books)
    if not was_set_back:
        problems += _judge_history(outcome)
    problems += _judge_effects(outcome, books)
    if outcome.order.kind == "files":
        problems += _judge_files(outcome)
    if outcome.order.kind not in POSTED:
        problems += _judge_stream(outcome)
    if told is not None and outcome.order.is_pushed:
        problems += _judge_pushes(outcome, told, was_set_back=was_set_back)
    return problems


def unknown_outcomes(outcome: Outcome) -> int:
    """Return the number of calls whose outcome the model reads as unknown."""
    return list(_results(outcome).values()).count(UNKNOWN)


def strangers(outcomes: Sequence[Outcome], books: Books) -> list[str]:
    """Return effects without an order."""
    known = {owner for outcome in outcomes for _, owner in _effects(outcome)}
    return [f"an effect of nobody: {owner}" for owner in {*books.deposits, *books.charges} - known]


def expected_paths(order: Order) -> list[list[str]]:
    """Return the states that a task may go through after or before it is taken up; all end alike."""
    if order.kind == "cancels":
        asked = [[WORKING, ASKS, CANCELED]] if order.ending == "parked" else []
        return [[WORKING, CANCELED], [CANCELED], *asked]
    return _PATHS.get(order.kind, [[WORKING, COMPLETED]])


_PATHS: Mapping[Kind, list[list[str]]] = {
    "asks": [[WORKING, ASKS, WORKING, ASKS, WORKING, COMPLETED]],
    "logs in": [[WORKING, NEEDS_AUTH, WORKING, COMPLETED]],
    "doubts": [[WORKING, COMPLETED], [WORKING, ASKS, WORKING, COMPLETED]],
    "fails": [[WORKING, FAILED]],
}


def _judge_answer_at_once(outcome: Outcome) -> Iterator[str]:
    order, said = outcome.order, outcome.at_once
    if (said is not None) != (order.kind == "routed" and order.is_at_once):
        yield f"it was answered {'by a task' if said is None else 'at once'}"
    if said not in {None, order.words}:
        yield f"its answer at once is wrong: {said!r}"


def _judge_state(outcome: Outcome) -> Iterator[str]:
    order, story, task = outcome.order, outcome.story, outcome.task
    end = expected_paths(order)[0][-1]
    for who, state in (("its client saw", story.state), ("GetTask says", task["status"]["state"])):
        if state != end:
            yield f"{who} {state}, expected {end}"
    if order.kind == "fails" and CAUSE not in json.dumps(task["status"]):
        yield f"its failure does not tell the cause: {task['status']}"


def _judge_answer(outcome: Outcome, books: Books) -> Iterator[str]:
    """Check the answer, which has to fit the effects."""
    order, task = outcome.order, outcome.task
    if expected_paths(order)[0][-1] != COMPLETED:
        return
    answer, results = _response(task), _results(outcome)
    if list(results) != list(order.calls) or answer != order.answer(results):
        yield f"its answer is wrong: {answer!r}"
        return
    for call in order.calls.values():
        if problem := _problem_of_result(outcome, call, results[call.id], books):
            yield f"{call.id} ({call.tool}) came to {results[call.id]!r}, {problem}"


def _judge_history(outcome: Outcome) -> Iterator[str]:
    order, task = outcome.order, outcome.task
    if expected_paths(order)[0][-1] != COMPLETED:
        return
    said = [text for message in task["history"] if message["role"] == AGENT if (text := _text(message))]
    if said.count(SAID) != len(order.turns):
        yield f"its history is wrong: {said}"


def _problem_of_result(outcome: Outcome, call: Call, result: str, books: Books) -> str:
    order, owner = outcome.order, _owner(outcome, call)
    if call.tool.startswith(("deposit", "clerk")):
        return "" if list(books.deposits.get(owner, ())) == [result] else "which the ledger does not know"
    if call.tool == "charge_if_approved" and not order.approves:
        return "" if result.startswith(REJECTED) else "although it was rejected"
    if call.tool.startswith("charge"):
        known = books.charges.get(owner, ())
        # A worker that is frozen for longer than a tool's timeout leaves the call's result unknown.
        is_open = result in {UNKNOWN, f"{call.tool} did not finish within 30 s"}
        return "" if is_open or list(known) == [result] else f"the ledger has {known}"
    expected = expected_results(order)[call.tool]
    return "" if result == expected else f"expected {expected!r}"


def expected_results(order: Order) -> dict[str, str]:
    """Return the results of calls without an effect in the ledger, by tool."""
    return {
        "request_input": order.reply,
        "log_in": f"{len(order.secret)} characters",
        "write_lines": "lines",
        "write_bytes": f"{len(order.content)} bytes",
        "create_task": "The task is created. Now do the work.",
        "hand_over_to_closer": "The agent 'closer' goes on from here.",
    }


def _judge_effects(outcome: Outcome, books: Books) -> Iterator[str]:
    """Check that no effect happened twice, whatever the answer says, and no forbidden one."""
    for call, owner in _effects(outcome):
        happened = [*books.deposits.get(owner, ()), *books.charges.get(owner, ())]
        if len(happened) > 1:
            yield f"{owner} ({call.tool}) happened {len(happened)} times"
        if happened and call.tool == "charge_if_approved" and not outcome.order.approves:
            yield f"{owner} was rejected and happened"


def _judge_files(outcome: Outcome) -> Iterator[str]:
    lines = "".join(outcome.order.lines)
    artifacts = {artifact["artifactId"]: artifact for artifact in outcome.task.get("artifacts", [])}
    if text_of(artifacts.get("lines", {})) != lines:
        yield "GetTask shows another text artifact than was written"
    if outcome.story.texts.get("lines") != lines:
        yield "its client has read another text artifact than was written"
    if outcome.content != outcome.order.content:
        yield f"the bytes were downloaded wrong, {len(outcome.content)} of {len(outcome.order.content)}"


def _judge_stream(outcome: Outcome) -> Iterator[str]:
    """Check that the subscriber missed nothing, whatever connections it lost."""
    order, story, task = outcome.order, outcome.story, outcome.task
    seen = _taken_up(story.states)
    if not seen or not any(path[-len(seen) :] == seen for path in expected_paths(order)):
        yield f"its client saw the states {story.states}"
    if story.texts.get("response", "") != _response(task):
        yield f"its client has read another answer: {story.texts.get('response')!r}"
    if story.complete.count("response") > 1:  # others are written again when their tool runs again
        yield "its client was told more than once that its answer is complete"
    spoken = {each["messageId"] for each in task.get("history", []) if each["role"] == AGENT}
    if missed := spoken - story.messages:
        yield f"its client missed the messages {missed}"


def _judge_pushes(outcome: Outcome, told: Sequence[Notification], *, was_set_back: bool) -> Iterator[str]:
    """Check that the webhook got all events: new ones in order, and the end at last."""
    news = list({each.id: each for each in told}.values())
    states = [state for state, _ in groupby(each.state for each in news if each.state)]
    paths = expected_paths(outcome.order)
    if _taken_up(states) not in paths:
        yield f"its webhook heard the states {states}"
    if news and news[-1].state != paths[0][-1]:
        yield f"the last that its webhook heard is {news[-1].body}"
    answers = [text for each in news if (text := _pushed_answer(each)) is not None]
    answer = _response(outcome.task)
    if was_set_back:  # the record that the webhook has the answer may be lost
        answers = [text for text, _ in groupby(answers)]
    # The first notification is the whole task, which may have its answer already.
    tasks = [cast("Json", each.body["task"]) for each in news if "task" in each.body]
    is_in_task = not answers and any(_response(task) == answer for task in tasks)
    if paths[0][-1] == COMPLETED and answers != [answer] and not is_in_task:
        yield f"its webhook heard the answers {answers}"


def _taken_up(states: Iterable[str]) -> list[str]:
    """Return the states of a task after it was submitted."""
    return [state for state in states if state != SUBMITTED]


def _effects(outcome: Outcome) -> Iterator[tuple[Call, str]]:
    """Yield the calls of an order that may have an effect, with its name in the ledger."""
    for call in outcome.order.calls.values():
        if call.tool.startswith(("deposit", "clerk", "charge")):
            yield call, _owner(outcome, call)


def _owner(outcome: Outcome, call: Call) -> str:
    if name := call.arguments.get("name"):
        return str(name)
    if call.tool != "clerk":
        return f"{outcome.story.task_id}/{call.id}"
    ((theirs,),) = in_place([[("deposit", {})]])
    return f"{outcome.story.task_id}/{call.key}/{theirs.id}"


def _results(outcome: Outcome) -> dict[str, str]:
    """Return the answer's results by call; empty if the answer has another form."""
    if not outcome.order.calls:
        return {}
    try:
        results = json.loads(_response(outcome.task))
    except ValueError:
        return {}
    return cast("dict[str, str]", results) if isinstance(results, dict) else {}


def _response(task: Json) -> str:
    artifacts = [artifact for artifact in task.get("artifacts", []) if artifact["artifactId"] == "response"]
    return "".join(map(text_of, artifacts))


def _pushed_answer(notification: Notification) -> str | None:
    artifact = cast("Json", notification.body.get("artifactUpdate") or {}).get("artifact")
    return text_of(artifact) if artifact and artifact["artifactId"] == "response" else None


def _text(message: Json) -> str:
    return "".join(part.get("text", "") for part in message.get("parts", []))

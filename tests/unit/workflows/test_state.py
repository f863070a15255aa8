"""Changes of a task's state."""

from datetime import UTC, datetime

import pytest

from everloop.workflows import reporting
from everloop.workflows.contract import failures
from everloop.workflows.contract.events import REASON, Shown
from everloop.workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.questions import Answer, Question, QuestionKind
from everloop.workflows.contract.tasks import TaskState
from everloop.workflows.reporting import VIEW_BYTES, recent_history
from everloop.workflows.state import Phase, TaskRunState
from everloop.workflows.turns.model_turn import RESEND_CHUNK_BYTES, chunked

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def user(message_id: str, text: str = "Hi") -> UserMessage:
    return UserMessage(message_id=message_id, parts=(TextPart(text=text),))


def agent(message_id: str, text: str = "Working") -> AgentMessage:
    return AgentMessage(message_id=message_id, parts=(TextPart(text=text),))


def test_the_question_that_clients_see_first_stays_the_first() -> None:
    """An answer without a name must not answer a later question of an earlier call."""
    state = TaskRunState.begin(user("m1"), NOW)
    state.pending = [ToolCall(id=name, name="x", arguments="{}") for name in ("early", "late")]
    for call in reversed(state.pending):
        state.ask(Question(id=call.id, kind=QuestionKind.CONFIRMATION, text="?", call=call))
        state.status = state.status.model_copy(update={"questions": state.open_questions})
    assert [question.id for question in state.open_questions] == ["late", "early"]


def test_a_sub_agent_that_has_not_heard_the_answer_asks_nothing_again() -> None:
    """It may ask another question before the answer reaches it; a second answer would be ignored."""
    state, call = TaskRunState.begin(user("m1"), NOW), ToolCall(id="w", name="writer", arguments="{}")
    state.pending = [call]
    first, second = (Question(id=id_, kind=QuestionKind.AUTH, text="?", call=call) for id_ in "ab")
    state.relay_questions("w", [first])
    state.take_answer(Answer(question_id="w/a", kind=QuestionKind.AUTH, purpose="input", tool="writer"))
    state.relay_questions("w", [first, second])
    assert [question.id for question in state.open_questions] == ["w/b"]


def test_only_artifacts_of_calls_that_worked_count() -> None:
    """An artifact of a failed or refused call does not complete a task."""
    state = TaskRunState.begin(user("m1"), NOW)
    outcomes: list[ToolOutcome] = ["error", "ok", "invalid", "unknown"]

    state.fold_tool_results(
        [
            ToolMessage(call_id=each, name="write", content="", outcome=each, artifacts=(each,))
            for each in outcomes
        ]
    )

    assert state.artifact_ids == ["ok"]


def test_a_status_says_what_its_view_shows_besides() -> None:
    """Artifacts that calls have written, once; the answer from its start, until it is withdrawn."""
    state = TaskRunState.begin(user("m1"), NOW)
    calls = tuple(ToolCall(id=each, name="write", arguments="{}") for each in "abc")
    state.take_inbox()
    state.fold_reply(AssistantMessage(tool_calls=calls))
    shown = [_shown(state)]
    for call, (written, outcome) in zip(calls, WRITTEN, strict=True):
        result = call.result("", outcome).model_copy(
            update={"artifacts": tuple(written), "versions": written}
        )
        state.end_call(call, result)
        if call.id != "a":
            shown.append(_shown(state))
    state.fold_tool_results(list(state.results.values()))
    state.fold_reply(answer := AssistantMessage(text="Done."))
    state.hold_answer(answer)
    shown.append(_shown(state))
    state.take_back_answer()
    shown.append(_shown(state))
    state.hold_answer(AssistantMessage(closing="no"))
    shown.append(_shown(state))

    assert shown == [
        None,
        Shown(artifacts={"x": 3, "y": 1}),
        Shown(artifacts={"z": 1}),
        Shown(answer=5),
        None,
        None,
    ]


WRITTEN: list[tuple[dict[str, int], ToolOutcome]] = [
    ({"x": 1}, "ok"),
    ({"x": 3, "y": 1}, "ok"),
    ({"z": 1}, "error"),
]


def _shown(state: TaskRunState) -> Shown | None:
    return state.change_status(TaskState.WORKING, NOW).shows


def test_what_a_provider_wants_back_stays_with_the_reply() -> None:
    """Callers of tools and of guards get none of it."""
    state, call = TaskRunState.begin(user("m1"), NOW), ToolCall(id="a", name="x", arguments="{}", opaque="{}")
    state.fold_reply(AssistantMessage(tool_calls=(call,)))
    assert [each.opaque for each in state.pending] == [""]
    assert state.transcript[-1] == AssistantMessage(tool_calls=(call,))


@pytest.mark.parametrize("asks", [TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED])
def test_a_task_that_was_answered_has_resumed(asks: TaskState) -> None:
    """The first status after the question says so, and no other."""
    state = TaskRunState.begin(user("m0"), NOW)
    told = [
        state.change_status(each, NOW).resumed
        for each in (TaskState.WORKING, asks, asks, TaskState.WORKING, TaskState.WORKING)
    ]
    assert told == [None, None, None, "answer", None]


@pytest.mark.parametrize("letter", ["x", "é", "語"])
def test_a_view_fits_into_a_payload(letter: str) -> None:
    """The newest messages are kept that fit, in bytes, beside the status and the answer."""
    state = TaskRunState.begin(user("m1"), NOW)
    big = letter * (400_000 // len(letter.encode()))
    state.history = [user(f"m{n}", big) for n in range(5)]
    assert [message.message_id for message in recent_history(state)] == ["m2", "m3", "m4"]
    state.answer = AssistantMessage(text=big)
    state.change_status(TaskState.WORKING, NOW, message=agent("s1", big))
    assert [message.message_id for message in recent_history(state)] == ["m4"]
    size = sum(len(message.model_dump_json().encode()) for message in recent_history(state))
    assert size < VIEW_BYTES


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [([], []), ([10], [1]), ([400_000, 400_000, 400_000], [2, 1]), ([10, 2_000_000, 10], [1, 1, 1])],
)
def test_chunks_of_a_transcript_stay_under_the_limit(sizes: list[int], chunks: list[int]) -> None:
    """A message that is larger than a chunk is sent alone; nothing is lost and the order stays."""
    messages = [user(f"m{n}", "x" * size) for n, size in enumerate(sizes)]
    made = chunked(list(messages))
    assert [len(chunk) for chunk in made] == chunks
    assert [message for chunk in made for message in chunk] == messages
    for chunk in made:
        size = sum(len(message.model_dump_json()) for message in chunk)
        assert size <= RESEND_CHUNK_BYTES or len(chunk) == 1


@pytest.mark.parametrize(
    ("reason", "next_step"),
    [
        (failures.MODEL_REFUSED, "then Reset the workflow to before the failure"),
        (failures.ITERATION_LIMIT, "raise the limit in the agent's definition and start a new task"),
    ],
)
def test_an_operator_reads_why_a_task_failed(reason: str, next_step: str) -> None:
    """With the remedy; the text of foreign errors is not on the page."""
    state = TaskRunState.begin(user("m1"), NOW)
    message = AgentMessage(
        message_id="r", parts=(TextPart(text="401: # wrong key"),), metadata={REASON: reason}
    )
    state.change_status(TaskState.FAILED, NOW, message=message)
    state.iteration, state.phase = 1, Phase.DONE

    text = reporting.details(state)

    assert text.startswith(f"**failed** in iteration 1 ({reason}):\n\n```\n401: # wrong key\n```\n\nNext: ")
    assert next_step in text
    assert "\n\n- tokens" in text, "a list begins after an empty line"
    assert "waits for" not in text.lower()


def test_an_operator_reads_where_the_task_stands() -> None:
    """Details name the state, the iteration, the tokens and the awaited event."""
    state = TaskRunState.begin(user("m1"), NOW)
    state.change_status(TaskState.WORKING, NOW)
    state.iteration, state.phase = 3, Phase.TOOLS
    state.usage = Usage(input_tokens=1200, output_tokens=34)
    state.pending = [ToolCall(id="a", name="search", arguments='{"q": "x"}')]
    text = reporting.details(state)
    for expected in ("**working**: tools, iteration 3", "Waits for `search`.", "1200 in", "34 out"):
        assert expected in text


@pytest.mark.parametrize(
    ("asks", "answered", "line"),
    [
        (False, None, "tool refund {}"),
        (True, None, "check: refund {}"),
        (True, {"purpose": "approval"}, "approved: refund {}"),
        (True, {"purpose": "approval", "approved": False}, "rejected: refund {}"),
        (False, {"purpose": "input", "value": "x"}, "answered: refund {}"),
    ],
)
def test_a_call_that_asks_does_not_look_like_two(
    answered: dict[str, object] | None, line: str, *, asks: bool
) -> None:
    """The line of each activity has its purpose."""
    refund = ToolCall(id="a", name="refund", arguments="{}")
    fields = {"question_id": "a", "kind": "confirmation", "tool": "refund", "purpose": "input"}
    answers = () if answered is None else (Answer.model_validate({**fields, **answered}),)
    assert reporting.tool_summary(refund, asks=asks, answers=answers) == line

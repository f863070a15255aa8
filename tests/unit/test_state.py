"""How the state of a task changes."""

from datetime import UTC, datetime

import pytest

from workflows import display
from workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    Usage,
    UserMessage,
)
from workflows.contract.tasks import TaskState
from workflows.model_turn import RESEND_CHUNK_BYTES, chunked
from workflows.state import VIEW_BYTES, Phase, TaskRunState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def user(message_id: str, text: str = "Hi") -> UserMessage:
    return UserMessage(message_id=message_id, parts=(TextPart(text=text),))


def agent(message_id: str, text: str = "Working") -> AgentMessage:
    return AgentMessage(message_id=message_id, parts=(TextPart(text=text),))


def test_only_artifacts_of_calls_that_worked_count() -> None:
    """What a call wrote that failed, or was refused, is no artifact to end a task with."""
    state = TaskRunState.begin(user("m1"), NOW)
    outcomes: list[ToolOutcome] = ["error", "ok", "invalid", "unknown"]

    state.fold_tool_results(
        [
            ToolMessage(call_id=each, name="write", content="", outcome=each, artifacts=(each,))
            for each in outcomes
        ]
    )

    assert state.artifact_ids == ["ok"]


def test_a_task_begins_submitted_with_its_message_in_the_inbox() -> None:
    """Nothing is in the transcript before the loop takes the inbox."""
    state = TaskRunState.begin(user("m1"), NOW)

    assert state.status.state is TaskState.SUBMITTED
    assert state.transcript == []
    assert state.take_inbox() == (user("m1"),)
    assert state.new_messages == (user("m1"),)
    assert state.inbox == []


def test_a_reply_and_its_tool_results_count_as_cached() -> None:
    """The activities that made them have put them into the cache; only messages of the client are new."""
    state = TaskRunState.begin(user("m1"), NOW)
    state.take_inbox()
    state.fold_reply(AssistantMessage(tool_calls=(ToolCall(id="a", name="x", arguments="{}"),)))
    state.fold_tool_results([ToolMessage(call_id="a", name="x", content="1")])
    assert state.new_messages == ()

    state.inbox.append(user("m2"))
    state.take_inbox()

    assert state.new_messages == (user("m2"),)
    assert len(state.transcript) == 4


def test_usage_adds_up() -> None:
    """Every reply counts."""
    state = TaskRunState.begin(user("m1"), NOW)
    for _ in range(3):
        state.fold_reply(AssistantMessage(usage=Usage(input_tokens=5, output_tokens=2)))

    assert state.usage == Usage(input_tokens=15, output_tokens=6)


def test_a_replaced_status_message_moves_to_the_history() -> None:
    """In the order in which a view folds the same event: the old message, then what was received."""
    state = TaskRunState.begin(user("m1"), NOW)
    state.change_status(TaskState.WORKING, NOW, message=agent("s1"), received=(user("m1"),))
    event = state.change_status(TaskState.WORKING, NOW, received=(user("m2"),))

    assert event.version == 2
    assert event.received == (user("m2"),)
    assert [message.message_id for message in state.history] == ["m1", "s1", "m2"]


@pytest.mark.parametrize("letter", ["x", "é", "語"])
def test_a_view_fits_into_a_payload(letter: str) -> None:
    """The newest messages are kept that fit, in bytes, besides the status and the answer."""
    state = TaskRunState.begin(user("m1"), NOW)
    big = letter * (400_000 // len(letter.encode()))
    state.history = [user(f"m{n}", big) for n in range(5)]
    assert [message.message_id for message in state.recent_history] == ["m2", "m3", "m4"]

    state.answer = AssistantMessage(text=big)
    state.change_status(TaskState.WORKING, NOW, message=agent("s1", big))
    assert [message.message_id for message in state.recent_history] == ["m4"]
    size = sum(len(message.model_dump_json().encode()) for message in state.recent_history)
    assert size < VIEW_BYTES


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [
        ([], []),
        ([10], [1]),
        ([400_000, 400_000, 400_000], [2, 1]),
        ([10, 2_000_000, 10], [1, 1, 1]),
    ],
)
def test_chunks_of_a_transcript_stay_under_the_limit(sizes: list[int], chunks: list[int]) -> None:
    """A message that is larger than a chunk goes alone; nothing is lost and the order stays."""
    messages = [user(f"m{n}", "x" * size) for n, size in enumerate(sizes)]

    made = chunked(list(messages))

    assert [len(chunk) for chunk in made] == chunks
    assert [message for chunk in made for message in chunk] == messages
    for chunk in made:
        size = sum(len(message.model_dump_json()) for message in chunk)
        assert size <= RESEND_CHUNK_BYTES or len(chunk) == 1


def test_an_operator_reads_where_the_task_stands() -> None:
    """Details name the state, the iteration, the tokens and what is waited for."""
    state = TaskRunState.begin(user("m1"), NOW)
    state.change_status(TaskState.WORKING, NOW)
    state.iteration, state.phase = 3, Phase.TOOLS
    state.usage = Usage(input_tokens=1200, output_tokens=34)
    state.pending = [ToolCall(id="a", name="search", arguments='{"q": "x"}')]

    text = display.details(state)

    for expected in ("working", "tools", "iteration 3", "1200 in", "34 out", "`search`"):
        assert expected in text
    assert display.tool_summary(state.pending[0]) == 'tool search {"q": "x"}'
    assert (
        len(display.tool_summary(ToolCall(id="a", name="t", arguments="y" * 500))) == display.SUMMARY_LENGTH
    )

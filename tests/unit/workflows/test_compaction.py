"""Selection of messages that a summary replaces."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everloop.workflows.contract.agent_settings import Compaction
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)
from everloop.workflows.contract.tasks import AgentSpec
from everloop.workflows.turns.model_turn import find_end, is_over_budget


def user(text: str = "") -> UserMessage:
    return UserMessage(message_id="m", parts=(TextPart(text=text),))


def turn(calls: int, text: str = "") -> list[TranscriptMessage]:
    """One reply with tool calls, and their results."""
    asked = tuple(ToolCall(id=str(n), name="x", arguments="{}") for n in range(calls))
    results = (ToolMessage(call_id=str(n), name="x", content=text) for n in range(calls))
    return [AssistantMessage(tool_calls=asked), *results]


BIG = "x" * 10_000
TRANSCRIPTS: dict[str, tuple[Sequence[TranscriptMessage], int | None]] = {
    "one message": ([user()], None),
    "one turn": ([user(), *turn(1)], None),
    "two turns": ([user(), *turn(1), *turn(1)], 3),
    "the older half": ([user(), *turn(1), *turn(1), *turn(1), *turn(1)], 5),
    "one big result": ([user(), *turn(1, BIG), *turn(1), *turn(1)], 3),
    "a big end stays": ([user(), *turn(1), *turn(1), *turn(2, BIG)], 5),
    "after a summary": ([user(), *turn(1), SummaryMessage(end=3), *turn(1), *turn(1)], 6),
    "nothing since the summary": ([user(), *turn(1), *turn(1), SummaryMessage(end=3)], None),
}


@pytest.mark.parametrize("case", TRANSCRIPTS)
def test_about_the_older_half_goes(case: str) -> None:
    """As far as it may be removed."""
    transcript, end = TRANSCRIPTS[case]
    assert find_end(transcript) == end


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5000)), max_size=12))
def test_no_result_is_parted_from_its_call(turns: list[tuple[int, int]]) -> None:
    """The first message and the last reply always stay, and each round removes more."""
    transcript: list[TranscriptMessage] = [user()]
    for calls, size in turns:
        transcript += turn(calls, "x" * size)
    taken = 1
    while (end := find_end(transcript)) is not None:
        assert taken < end < len(transcript)
        assert isinstance(transcript[end], AssistantMessage | UserMessage)
        taken = end
        transcript.append(SummaryMessage(end=end))


@pytest.mark.parametrize(("budget", "tokens", "over"), [(None, 10**9, False), (10, 9, False), (10, 10, True)])
def test_the_budget_of_a_prompt(budget: int | None, tokens: int, *, over: bool) -> None:
    """An agent without a budget waits for the provider's refusal."""
    agent = AgentSpec(id="agent", compaction=Compaction(prompt_tokens=budget))
    assert is_over_budget(agent, tokens) is over
    assert not is_over_budget(AgentSpec(id="agent"), tokens)

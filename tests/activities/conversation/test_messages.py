"""The selection and the length of remembered messages of a transcript, and the range of the next summary."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everloop.activities.conversation.conversation_memory import MAX_BLOCK_CHARACTERS, SummaryStep, next_step
from everloop.activities.conversation.recall import (
    MAX_ARGUMENT_CHARACTERS,
    MAX_CHARACTERS,
    MAX_FILES,
    MAX_RESULT_CHARACTERS,
    remembered,
)
from everloop.stores.conversations.conversation_store import ConversationSummary
from everloop.workflows.contract.calls import CREATE_TASK, ConversationMessage
from everloop.workflows.contract.messages import (
    AssistantMessage,
    FilePart,
    Part,
    StoredPartRef,
    SummaryMessage,
    TaskReference,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolsMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
)


def said(text: str = "a") -> UserMessage:
    return UserMessage(message_id="m", parts=(TextPart(text=text),))


def told(text: str) -> UserMessage:
    """A notice to the model, which no client sees."""
    return said(text).model_copy(update={"message_id": ""})


def call(id_: str, name: str = "find", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=id_, name=name, arguments=arguments)


def asks(*calls: ToolCall, text: str = "") -> AssistantMessage:
    return AssistantMessage(text=text, tool_calls=calls)


def found(id_: str, name: str = "find", content: str = "x") -> ToolMessage:
    return ToolMessage(call_id=id_, name=name, content=content, outcome="error", artifacts=("a",))


def holds(*parts: Part) -> UserMessage:
    return UserMessage(message_id="m", parts=parts)


def refused(reply: AssistantMessage) -> AssistantMessage:
    return reply.model_copy(update={"refused": WHY})


A = TextPart(text="a")
DONE = AssistantMessage(text="Done.")
WHY = "no secrets, please"
FILE = FilePart(filename="f", size=3, stored=StoredPartRef(artifact_id="f1"))
INLINE = FilePart(media_type="image/png", filename="f", content="AA")
SECRETIVE = FILE.model_copy(update={"metadata": {"token": "t"}})
HI = AssistantMessage(text="Hi", reasoning="hm", model="m", usage=Usage(input_tokens=1))
EXTRAS = {"metadata": {"token": "t"}, "references": (TaskReference(task_id="t", state="s", text="t"),)}
BOTH = asks(call("1"), call("2"), text="Let me see.")
CREATES = asks(call("1", CREATE_TASK), text="I will.")
HM = asks(call("1"), text="Hm.")

REMEMBERED: dict[str, tuple[Sequence[TranscriptMessage], Sequence[ConversationMessage]]] = {
    "only what was said of a reply": ([HI], [AssistantMessage(text="Hi")]),
    "last words without an answer": ([AssistantMessage(closing="bye")], [AssistantMessage(text="bye")]),
    "no empty reply": ([said(), AssistantMessage()], [said()]),
    "neither summaries nor lists of tools": (
        [said(), ToolsMessage(tools=()), SummaryMessage(end=1, text="s"), DONE],
        [said(), DONE],
    ),
    "no refused reply, nor what told the model why": (
        [said(), refused(DONE), told(f"Refused: {WHY}"), DONE],
        [said(), DONE],
    ),
    "nothing else that only the model was told": (
        [said(), asks(call("1")), found("1"), told("No call worked."), DONE],
        [said(), asks(call("1")), found("1"), DONE],
    ),
    "what the user said after a refused reply": (
        [said(), refused(DONE), said("and this"), DONE],
        [said(), said("and this"), DONE],
    ),
    "no refused calls": ([said(), refused(asks(call("1"))), told(WHY), DONE], [said(), DONE]),
    "calls with their results": (
        [said(), BOTH, found("2"), found("1"), DONE],
        [said(), BOTH, found("2"), found("1"), DONE],
    ),
    "no call without a result": (
        [said(), asks(call("1"), call("2")), found("1")],
        [said(), asks(call("1")), found("1")],
    ),
    "no reply of such calls": ([said(), asks(call("1")), DONE], [said(), DONE]),
    "no result without a call": ([found("1"), said(), found("2"), DONE], [said(), DONE]),
    "no second result": (
        [said(), asks(call("1")), found("1"), found("1", content="y"), DONE],
        [said(), asks(call("1")), found("1"), DONE],
    ),
    "no result of a later call of the same id": (
        [said(), HM, asks(call("1")), found("1")],
        [said(), AssistantMessage(text="Hm."), asks(call("1")), found("1")],
    ),
    "not how it came to a task": (
        [said(), CREATES, found("1", CREATE_TASK), DONE],
        [said(), AssistantMessage(text="I will."), DONE],
    ),
    "of a file where it is": ([holds(FILE, A, TextPart(text="b"))], [holds(TextPart(text="a\n\nb"), FILE)]),
    "no content of a file": ([holds(INLINE)], [said("[file f, image/png]")]),
    "no metadata of a file": ([holds(SECRETIVE)], [holds(FILE)]),
    "no metadata of a message": ([said().model_copy(update=EXTRAS)], [said()]),
}


@pytest.mark.parametrize(("transcript", "expected"), REMEMBERED.values(), ids=REMEMBERED)
def test_what_was_said_is_remembered(
    transcript: Sequence[TranscriptMessage], expected: Sequence[ConversationMessage]
) -> None:
    """Messages are remembered in order, without those that a provider would refuse."""
    assert remembered(transcript) == [*expected]


def test_long_messages_are_cut() -> None:
    """Long results and arguments are cut before words; arguments stay JSON."""
    long = "é" * 50_000
    arguments = json.dumps({"text": long}, ensure_ascii=False)
    user, reply, result = remembered(
        [said(long), asks(call("1", arguments=arguments)), found("1", content=long)]
    )

    def cut(text: str, most: int) -> str:
        return f"{text[:most]}\n[{len(text) - most} more characters were cut off]"

    assert user == said(cut(long, MAX_CHARACTERS))
    assert isinstance(reply, AssistantMessage)
    assert json.loads(reply.tool_calls[0].arguments) == {"cut": cut(arguments, MAX_ARGUMENT_CHARACTERS)}
    assert result == found("1", content=cut(long, MAX_RESULT_CHARACTERS))


def test_of_results_only_the_words_are_remembered() -> None:
    """Only the text of results is remembered: no later task reads their pages or files."""
    shown = found("1").model_copy(update={"files": (linked("a", 9),), "whole": 70_000, "kept": "r1-x"})
    assert remembered([asks(call("1")), shown]) == [asks(call("1")), found("1")]


def linked(name: str, length: int) -> FilePart:
    return FilePart(filename=name, media_type="a/b", url="https://x.example/".ljust(length, "a"))


def test_of_many_files_only_lines_are_remembered() -> None:
    """Files beyond the first ones become lines in their place among the words."""
    files = [linked(f"f{n}", 20) for n in range(MAX_FILES + 1)]
    [message] = remembered([UserMessage(message_id="m", parts=(*files, TextPart(text="a")))])
    line = f"[file f{MAX_FILES}, a/b: https://x.example/aa]"
    assert isinstance(message, UserMessage)
    assert message.parts == (TextPart(text=f"{line}\n\na"), *files[:MAX_FILES])


def summary(start: int, end: int) -> ConversationSummary:
    return ConversationSummary(start=start, end=end, text=f"{start} to {end}")


def work(calls: int) -> list[ConversationMessage]:
    """Return a call of so many tools, and their results."""
    asked = tuple(ToolCall(id=str(n), name="t", arguments="{}") for n in range(calls))
    results = [ToolMessage(call_id=call.id, name="t", content="") for call in asked]
    return [AssistantMessage(tool_calls=asked), *results]


FIVE = [said(str(n)) for n in range(5)]


def test_the_next_summary_takes_in_the_earlier_one() -> None:
    """The next summary covers the earlier one and the messages after it."""
    assert next_step([summary(0, 12)], 12, FIVE) == SummaryStep(0, 17, "0 to 12", FIVE)
    assert next_step([summary(0, 12)], 12, []) is None


ONE_CALL = (ToolCall(id="0", name="t", arguments="{}"),)
BIG = said("x" * (MAX_BLOCK_CHARACTERS // 2))
BLOCKS: Sequence[tuple[Sequence[ConversationMessage], int]] = [
    (FIVE, 5),
    ([BIG, BIG], 1),
    ([said("x" * MAX_BLOCK_CHARACTERS), said()], 1),
    ([said(), *work(2), BIG, BIG], 5),
    ([BIG, *work(2), BIG], 4),
    ([AssistantMessage(text="x" * MAX_BLOCK_CHARACTERS, tool_calls=ONE_CALL), *work(1)[1:], said()], 2),
]


@pytest.mark.parametrize(("messages", "count"), BLOCKS)
def test_a_block_is_not_too_long_to_be_read(messages: Sequence[ConversationMessage], count: int) -> None:
    """A block has a bounded length, unless a call and its results exceed it together."""
    step = next_step([], 10, messages)
    assert step == SummaryStep(10, 10 + count, "", messages[:count])


@given(turns=st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30))
def test_all_messages_get_summed_up(turns: Sequence[tuple[int, bool]]) -> None:
    """Successive summaries cover all messages without a gap.

    One is left, and no range parts a call from its result.
    """
    messages = [message for calls, is_big in turns for message in [BIG if is_big else said(), *work(calls)]]
    kept, end = list[ConversationSummary](), 0
    while step := next_step(kept, end, messages[end:]):
        assert (step.start, step.end > end) == (0, True)
        end = step.end
        assert end == len(messages) or not isinstance(messages[end], ToolMessage)
        kept = [summary(0, end)]
    assert end == len(messages)

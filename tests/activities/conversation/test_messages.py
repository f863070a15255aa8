"""Which messages of a transcript are remembered, and how much of them."""

import json
from collections.abc import Sequence

import pytest

from everloop.activities.conversation.messages import (
    MAX_ARGUMENT_CHARACTERS,
    MAX_CHARACTERS,
    MAX_FILES,
    MAX_RESULT_CHARACTERS,
    MAX_URL_CHARACTERS,
    remembered,
)
from everloop.workflows.contract.calls import CREATE_TASK, ConversationMessage
from everloop.workflows.contract.messages import (
    AssistantMessage,
    FilePart,
    StoredPart,
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


def call(id_: str, name: str = "find", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=id_, name=name, arguments=arguments)


def asks(*calls: ToolCall, text: str = "") -> AssistantMessage:
    return AssistantMessage(text=text, tool_calls=calls)


def found(id_: str, name: str = "find", content: str = "x") -> ToolMessage:
    return ToolMessage(call_id=id_, name=name, content=content, outcome="error", artifacts=("a",))


DONE = AssistantMessage(text="Done.")
WHY = "no secrets, please"
FILE = FilePart(filename="f", size=3, stored=StoredPart(artifact_id="f1"))

REMEMBERED: Sequence[tuple[str, Sequence[TranscriptMessage], Sequence[ConversationMessage]]] = [
    (
        "only what was said of a reply",
        [AssistantMessage(text="Hi", reasoning="hm", model="m", usage=Usage(input_tokens=1))],
        [AssistantMessage(text="Hi")],
    ),
    ("last words without an answer", [AssistantMessage(closing="bye")], [AssistantMessage(text="bye")]),
    ("no empty reply", [said(), AssistantMessage()], [said()]),
    (
        "neither summaries nor lists of tools",
        [said(), ToolsMessage(tools=()), SummaryMessage(end=1, text="s"), DONE],
        [said(), DONE],
    ),
    (
        "no refused reply, nor what told the model why",
        [said(), DONE.model_copy(update={"refused": WHY}), said(f"Refused: {WHY}"), DONE],
        [said(), DONE],
    ),
    (
        "what the user said after a refused reply",
        [said(), DONE.model_copy(update={"refused": WHY}), said("and this"), DONE],
        [said(), said("and this"), DONE],
    ),
    (
        "no refused calls",
        [said(), asks(call("1")).model_copy(update={"refused": WHY}), said(WHY), DONE],
        [said(), DONE],
    ),
    (
        "calls with their results",
        [said(), asks(call("1"), call("2"), text="Let me see."), found("2"), found("1"), DONE],
        [said(), asks(call("1"), call("2"), text="Let me see."), found("2"), found("1"), DONE],
    ),
    (
        "no call without a result",
        [said(), asks(call("1"), call("2")), found("1")],
        [said(), asks(call("1")), found("1")],
    ),
    ("no reply of such calls", [said(), asks(call("1")), DONE], [said(), DONE]),
    ("no result without a call", [found("1"), said(), found("2"), DONE], [said(), DONE]),
    (
        "no second result",
        [said(), asks(call("1")), found("1"), found("1", content="y"), DONE],
        [said(), asks(call("1")), found("1"), DONE],
    ),
    (
        "no result of a later call of the same id",
        [said(), asks(call("1"), text="Hm."), asks(call("1")), found("1")],
        [said(), AssistantMessage(text="Hm."), asks(call("1")), found("1")],
    ),
    (
        "not how it came to a task",
        [said(), asks(call("1", CREATE_TASK), text="I will."), found("1", CREATE_TASK), DONE],
        [said(), AssistantMessage(text="I will."), DONE],
    ),
    (
        "of a file where it is",
        [UserMessage(message_id="m", parts=(FILE, TextPart(text="a"), TextPart(text="b")))],
        [UserMessage(message_id="m", parts=(TextPart(text="a\n\nb"), FILE))],
    ),
    (
        "no content of a file",
        [UserMessage(message_id="m", parts=(FilePart(media_type="image/png", filename="f", content="AA"),))],
        [said("[file f, image/png]")],
    ),
    (
        "no metadata of a file",
        [UserMessage(message_id="m", parts=(FILE.model_copy(update={"metadata": {"token": "t"}}),))],
        [UserMessage(message_id="m", parts=(FILE,))],
    ),
    (
        "no metadata of a message",
        [
            said().model_copy(
                update={
                    "metadata": {"token": "t"},
                    "references": (TaskReference(task_id="t", state="s", text="t"),),
                }
            )
        ],
        [said()],
    ),
]


@pytest.mark.parametrize(
    ("transcript", "expected"), [row[1:] for row in REMEMBERED], ids=[row[0] for row in REMEMBERED]
)
def test_what_was_said_is_remembered(
    transcript: Sequence[TranscriptMessage], expected: Sequence[ConversationMessage]
) -> None:
    """In its order; what a provider would refuse is left out."""
    assert remembered(transcript) == [*expected]


def test_long_messages_are_cut() -> None:
    """Results of tools and arguments sooner than words; arguments stay JSON."""
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


def linked(name: str, length: int) -> FilePart:
    return FilePart(filename=name, media_type="a/b", url="https://x.example/".ljust(length, "a"))


def test_of_many_files_only_lines_are_remembered() -> None:
    """Of those beyond the first ones, in their place among the words."""
    files = [linked(f"f{n}", 20) for n in range(MAX_FILES + 1)]
    [message] = remembered([UserMessage(message_id="m", parts=(*files, TextPart(text="a")))])
    line = f"[file f{MAX_FILES}, a/b: https://x.example/aa]"
    assert isinstance(message, UserMessage)
    assert message.parts == (TextPart(text=f"{line}\n\na"), *files[:MAX_FILES])


def test_of_a_file_with_a_long_url_only_a_line_is_remembered() -> None:
    """A URL that is cut leads nowhere."""
    short, long = linked("f1", MAX_URL_CHARACTERS), linked("f2", MAX_URL_CHARACTERS + 1)
    [message] = remembered([UserMessage(message_id="m", parts=(long, short))])
    line = f"[file f2, a/b: {short.url}\n[1 more characters were cut off]]"
    assert isinstance(message, UserMessage)
    assert message.parts == (TextPart(text=line), short)


def test_what_has_just_the_length_is_whole() -> None:
    """Nothing is cut off then."""
    transcript = [
        said("a" * MAX_CHARACTERS),
        asks(call("1", arguments="1" * MAX_ARGUMENT_CHARACTERS)),
        found("1", content="a" * MAX_RESULT_CHARACTERS),
    ]
    assert remembered(transcript) == transcript

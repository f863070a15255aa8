"""The model's input for the summary of a conversation."""

from everloop.activities.model.compaction import MAX_MESSAGE_CHARACTERS, SUMMARY_WORDS, summary_request
from everloop.workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    SummaryMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)

TRANSCRIPT: tuple[TranscriptMessage, ...] = (
    UserMessage(message_id="m0", parts=(TextPart(text="Start"),)),
    AssistantMessage(
        text="Let me see.",
        reasoning="Hm",
        tool_calls=(ToolCall(id="a", name="find", arguments='{"q": "é"}'),),
    ),
    ToolMessage(call_id="a", name="find", content="nothing", outcome="error"),
    UserMessage(message_id="m3", parts=(TextPart(text="Look:"), DataPart(data={"é": 1}))),
    AssistantMessage(text="Five"),
    AssistantMessage(text="Six"),
)


def conversation(transcript: tuple[TranscriptMessage, ...], end: int) -> str:
    """Return the text to summarize."""
    system, user = summary_request("m", transcript, end).messages
    assert system["role"] == "system"
    assert f"at most {SUMMARY_WORDS} words" in str(system.get("content"))
    content = str(user.get("content"))
    return content.removeprefix("<conversation>\n").removesuffix("\n</conversation>")


def test_everybody_is_heard() -> None:
    """Each message before the end is included, except the first, which stays; reasoning is left out."""
    assert conversation(TRANSCRIPT, 5) == (
        '[assistant]\nLet me see.\n(calls find with {"q": "é"})\n\n'
        "[result of find, error]\nnothing\n\n"
        '[user]\nLook:\n\n{"é": 1}\n\n'
        "[assistant]\nFive"
    )


def test_an_earlier_summary_is_the_beginning() -> None:
    """The messages that it covers are not sent again, in any position."""
    early = SummaryMessage(end=4, text="So far")
    for transcript in ((*TRANSCRIPT[:5], early, *TRANSCRIPT[5:]), (*TRANSCRIPT, early)):
        end = transcript.index(TRANSCRIPT[5])
        assert conversation(transcript, end) == "[Summary of what came before]\nSo far\n\n[assistant]\nFive"


def test_long_messages_lose_their_middle() -> None:
    """The prompt was too long already: the beginning and end of each message are sent."""
    result = ToolMessage(call_id="a", name="f", content="b" * 50_000 + "c" * 50_000)
    text = conversation((*TRANSCRIPT[:1], result), 2)
    assert len(text) < MAX_MESSAGE_CHARACTERS + 100
    assert text.startswith("[result of f, ok]\nbbb")
    assert "92000 characters left out" in text
    assert text.endswith("ccc")

"""The digest and the size of a transcript: changes that count, and changes that must not."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter
from temporalio.contrib.pydantic import pydantic_data_converter

from everloop.workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    FilePart,
    ListedTool,
    SummaryMessage,
    TaskReference,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolsMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
    extend_digest,
    measure,
)

ADAPTER: TypeAdapter[TranscriptMessage] = TypeAdapter(TranscriptMessage)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
PARTS = (
    st.builds(TextPart, text=TEXTS, media_type=TEXTS)
    | st.builds(DataPart, data=JSON)
    | st.builds(FilePart, url=TEXTS, size=st.none() | st.integers())
)
MESSAGES = (
    st.builds(UserMessage, message_id=TEXTS, parts=st.tuples(PARTS), metadata=st.dictionaries(TEXTS, JSON))
    | st.builds(
        AssistantMessage,
        text=TEXTS,
        tool_calls=st.tuples(st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=TEXTS)),
        usage=st.builds(Usage, cost=st.floats(allow_nan=False, allow_infinity=False)),
    )
    | st.builds(ToolMessage, call_id=TEXTS, name=TEXTS, content=TEXTS)
    | st.builds(SummaryMessage, end=st.integers(), text=TEXTS)
    | st.builds(ToolsMessage, tools=st.tuples(st.builds(ListedTool, parameters=st.just({"a": 1.5}))))
)

ONE_OF_EACH: Sequence[TranscriptMessage] = (
    UserMessage(
        message_id="m",
        parts=(TextPart(text="Hi"), DataPart(data={"n": 1}), FilePart(url="https://example.org/f")),
        references=(TaskReference(task_id="t", state="completed", text="done"),),
    ),
    AssistantMessage(text="Look", tool_calls=(ToolCall(id="c", name="x", arguments="{}"),)),
    ToolMessage(call_id="c", name="x", content="found " * 100),
    AssistantMessage(text="Look again", tool_calls=(ToolCall(id="d", name="x", arguments="{}"),)),
    ToolMessage(call_id="d", name="x", content="found"),
    SummaryMessage(end=3, text="so far"),
    ToolsMessage(tools=(ListedTool(name="t", description="d", parameters={}),)),
)


@given(st.lists(MESSAGES, max_size=4), st.integers(0, 4))
def test_a_digest_is_extended_or_made_at_once(messages: list[TranscriptMessage], cut: int) -> None:
    """The workflow extends it and activities compute it at once."""
    begun = extend_digest("", messages[:cut])
    assert extend_digest(begun, messages[cut:]) == extend_digest("", messages)


@settings(max_examples=50)
@given(st.lists(MESSAGES, max_size=2))
async def test_what_a_payload_and_the_cache_bring_back_has_one_digest(
    messages: list[TranscriptMessage],
) -> None:
    """The activity that writes a message puts it into the cache, and sends it to the workflow."""
    (payload,) = await pydantic_data_converter.encode([messages])
    (returned,) = await pydantic_data_converter.decode([payload], [list[TranscriptMessage]])
    cached = [ADAPTER.validate_json(message.model_dump_json()) for message in messages]
    assert extend_digest("", returned) == extend_digest("", cached)
    assert [measure(m) for m in returned] == [measure(m) for m in cached]


@pytest.mark.parametrize("index", range(len(ONE_OF_EACH)))
def test_a_byte_more_is_another_digest(index: int) -> None:
    """In each field of a message, and with each role."""
    message = ONE_OF_EACH[index]
    fields = json.loads(message.model_dump_json())
    for name, value in fields.items():
        if isinstance(value, str) and name not in {"role", "outcome"}:
            changed = message.model_copy(update={name: f"{value}."})
            assert extend_digest("", [changed]) != extend_digest("", [message])


@given(MESSAGES)
def test_a_size_is_about_that_of_its_json(message: TranscriptMessage) -> None:
    """No message is larger than its size, except for the names of fields."""
    assert len(message.model_dump_json().encode()) <= measure(message) + 600


def test_what_is_known_only_once_a_reply_is_cached_does_not_count() -> None:
    """For example, whether subscribers got its end."""
    told = AssistantMessage(text="Hi")
    assert extend_digest("", [told]) == extend_digest("", [told.model_copy(update={"is_published": False})])

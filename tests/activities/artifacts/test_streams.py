"""Artifacts that stream from half-written calls while the model writes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from everloop.activities.model.reply import ArgumentsDelta
from everloop.stores.artifacts.changes import Complete
from everloop.workflows.contract.messages import TextPart, ToolCall
from tests.support.cutting import cut
from tests.support.rigs.artifacts.drafting import CONTEXT, POSITION, Reader, update

CONTENT = st.one_of(st.text(), st.text('aé\n"\\😀\u2028'))
CUTS = st.sets(st.integers(1, 200), max_size=12)


@given(CONTENT, CONTENT, CUTS, st.booleans())
async def test_content_is_shown_byte_by_byte(
    first: str, second: str, cuts: set[int], is_escaped: object
) -> None:
    """For every cut of the JSON, each state is a prefix, chunks add up, and no draft is replaced."""
    markdown: JsonValue = {"media_type": "text/markdown", "text": first}
    html: JsonValue = {"media_type": "text/html", "text": second}
    call, reader = update(markdown, html, ascii_=bool(is_escaped)), Reader()
    await reader.begin()
    attempt = reader.attempt()
    for piece in cut(call.arguments, cuts):
        await attempt.write(call, piece)
        shown = "".join(part.text for part in await _texts(reader))
        assert (first + second).startswith(shown)
    await attempt.end(call)

    chunks = await reader.chunks()
    assert "".join(chunk.part.text for chunk in chunks if isinstance(chunk.part, TextPart)) == first + second
    assert {(chunk.position, chunk.attempt, chunk.mode) for chunk in chunks} <= {(POSITION, 10, "draft")}
    texts = [(part.media_type, part.text) for part in await _texts(reader)]
    assert texts == [("text/markdown", first), ("text/html", second)]


async def _texts(reader: Reader) -> list[TextPart]:
    shown = await reader.shown()
    return [part for part in shown.parts if isinstance(part, TextPart)] if shown else []


@pytest.mark.parametrize(
    "parts",
    [
        [{"text": "a"}, {"raw": "aGk="}],
        [{"text": "a"}, {"url": "https://example.org/"}],
        [{"text": "a" * 1_000_001}],
        [{"data": ["a" * 200_000]}],
        [{"text": "a", "data": 1}],
        [{"text": "a"}, 7],
        [{}],
        [{"data": 10**400}],
        [{"data": json.loads("[" * 32 + "]" * 32)}],
        [{"data": 1}] * 1001,
    ],
)
async def test_what_cannot_be_shown_waits_for_its_call(parts: list[JsonValue]) -> None:
    """Content that cannot be streamed waits for its call; no draft is left at the end of the reply."""
    reader = Reader()
    await reader.begin()
    attempt, call = reader.attempt(), update(*parts)
    for piece in cut(call.arguments, set(range(0, 200, 7))):
        await attempt.write(call, piece)
    await attempt.end(call)
    shown = await reader.shown()
    assert shown is None or shown.parts == (TextPart(text=""),)


@pytest.mark.parametrize("artifact_id", ["response", "a\nb", "a" * 300])
async def test_no_artifact_of_an_unusable_id_is_shown(artifact_id: str) -> None:
    """A call with an invalid artifact id, which will be refused, shows no draft."""
    reader = Reader()
    await reader.begin()
    attempt, call = reader.attempt(), update({"text": "a"}, artifact_id=artifact_id)
    await attempt.write(call, call.arguments)
    await attempt.end(call)
    assert await reader.chunks() == []


@pytest.mark.parametrize("change", ["missing", "complete", "too large"])
async def test_what_takes_no_more_is_not_extended(change: str) -> None:
    """An artifact that takes no more content is not extended.

    The append will be refused or shown as a link.
    """
    reader = Reader()
    await reader.begin("b" * 999_999 if change == "too large" else "base")
    if change == "missing":
        await reader.artifacts.delete_artifact(CONTEXT, "doc")
    if change == "complete":
        await reader.artifacts.apply(CONTEXT, "doc", Complete())
    before = await reader.chunks()
    attempt, call = reader.attempt(), update({"text": "more"}, append=True)
    await attempt.write(call, call.arguments)
    await attempt.end(call)

    assert await reader.chunks() == before


async def test_only_the_first_call_for_an_artifact_is_shown() -> None:
    """Only the first call for an artifact streams.

    The effect of the second depends on the first, which has not run.
    """
    reader = Reader()
    await reader.begin("base. ")
    first, second = update({"text": "One. "}, append=True), update({"text": "Two. "}, append=True)
    attempt = reader.attempt()
    await attempt.write(first, first.arguments)
    attempt.streams.add(ArgumentsDelta(second.arguments, 1, second.name))
    assert await attempt.streams.chunks() == []
    assert await reader.text() == "base. One. "
    await attempt.end(first, second)

    assert await reader.text() == "base. One. "


async def test_a_call_waits_for_those_before_it() -> None:
    """A call streams once each earlier call has named its artifact, which may be the same."""
    reader = Reader()
    await reader.begin()
    first, second = update({"text": "One."}), update({"text": "Two."}, artifact_id="other")
    attempt = reader.attempt()
    await attempt.write(first, "{", number=0)
    await attempt.write(second, second.arguments, number=1)
    assert await reader.chunks() == []
    await attempt.write(first, first.arguments[1:], number=0)
    assert [await reader.text("doc"), await reader.text("other")] == ["One.", "Two."]


async def test_a_call_that_cannot_be_shown_keeps_later_ones_back() -> None:
    """Calls after one that cannot stream wait, because that one changes the artifact first."""
    reader = Reader()
    await reader.begin("base. ")
    first = ToolCall(id="1", name="replace_artifact_part", arguments='{"artifact_id": "doc", "index": 0}')
    second = ToolCall(id="2", name="append_artifact", arguments='{"artifact_id": "doc", "content": "Two."}')
    attempt = reader.attempt()
    await attempt.write(second, second.arguments, number=1)
    assert await reader.text() == "base. Two."
    await attempt.end(first, second)
    assert await reader.text() == "base. "

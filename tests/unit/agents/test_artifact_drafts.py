"""Reading an unfinished tool call of the model: the content of its artifact."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from everloop.agents.artifact_drafts import (
    ArtifactDraft,
    DraftReader,
    read_claim,
    read_creation,
    read_data_append,
    read_text_append,
    read_update,
)
from everloop.workflows.contract.messages import DataPart, TextPart

HEAD = '{"append": false, "last_chunk": true, "artifact": {"artifact_id": "poem", '
PLAIN = TextPart(text="a")
NAMED = TextPart(text="a", media_type="text/html")
DATA = DataPart(data={"a": [1]})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", None),
        ("{", None),
        (HEAD, ArtifactDraft("poem")),
        (HEAD.replace("false", "true"), ArtifactDraft("poem", extends=True)),
        (HEAD + '"parts": [{"text": "a', ArtifactDraft("poem", parts=(PLAIN,))),
        (HEAD + '"parts": [{"text": "a\\', ArtifactDraft("poem", parts=(PLAIN,))),
        (HEAD + '"parts": [{"text": "a\\ud83d\\ude', ArtifactDraft("poem", parts=(PLAIN,))),
        (HEAD + '"parts": [{"media_type": "text/html", "text": "a', ArtifactDraft("poem", parts=(NAMED,))),
        (HEAD + '"parts": [{"text": "a", "media_type": "text/html"', ArtifactDraft("poem", parts=(NAMED,))),
        (HEAD + '"parts": [{"filename": "../a", "text": "a', ArtifactDraft("poem")),
        (HEAD + '"parts": [{"data": {"a": [1]}}, {', ArtifactDraft("poem", parts=(DATA,))),
        (HEAD + '"parts": [{"data": {"a": [1]}}]}}', ArtifactDraft("poem", parts=(DATA,))),
        (HEAD + '"parts": [{"text": "a"}, {"raw": "aG', ArtifactDraft("poem", parts=None)),
    ],
)
def test_an_update_is_read_while_it_is_written(written: str, expected: ArtifactDraft | None) -> None:
    """Only final values are used: complete names, and data at their end."""
    assert read_update(written) == expected


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        (
            read_creation,
            '{"artifact_id": "p", "name": "N", "media_type": "text/html", "content": "a',
            ArtifactDraft("p", name="N", parts=(NAMED,)),
        ),
        (read_text_append, '{"artifact_id": "p", "content": ""}', ArtifactDraft("p", extends=True)),
        (
            read_data_append,
            '{"artifact_id": "p", "data": {"a": [1]}}',
            ArtifactDraft("p", parts=(DATA,), extends=True),
        ),
        (read_claim, '{"artifact_id": "p", "index": 1', ArtifactDraft("p", parts=None, extends=True)),
        (read_claim, '{"index": 1', None),
    ],
)
def test_small_tools_are_read_too(read: DraftReader, written: str, expected: ArtifactDraft | None) -> None:
    """Each tool of the granular style is read as early as possible."""
    assert read(written) == expected


@given(st.text(), st.booleans(), st.data())
def test_what_is_read_grows(text: str, is_escaped: object, data: st.DataObject) -> None:
    """With any part of the arguments and any escapes: no text is taken back."""
    call: dict[str, JsonValue] = {"artifact_id": "p", "content": text}
    written = json.dumps(call, ensure_ascii=bool(is_escaped))
    before = ""
    for end in sorted(data.draw(st.sets(st.integers(0, len(written)), max_size=20))):
        draft = read_text_append(written[:end])
        now = _text(draft)
        assert text.startswith(now)
        assert now.startswith(before)
        before = now
    assert _text(read_text_append(written)) == text


def _text(draft: ArtifactDraft | None) -> str:
    return "".join(part.text for part in (draft and draft.parts) or () if isinstance(part, TextPart))

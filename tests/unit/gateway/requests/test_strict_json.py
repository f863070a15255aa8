"""What is JSON, and what other readers might read differently."""

import json

import pytest
from a2a.utils.errors import JSONParseError

from everloop.gateway.requests.json import MAX_VALUES, read_json


@pytest.mark.parametrize(
    ("body", "value"),
    [(b"{}", {}), (b' [1, "\xc3\xa9"] ', [1, "é"]), (b"null", None), (b'{"a": {"a": 1}}', {"a": {"a": 1}})],
)
def test_json_is_read(body: bytes, value: object) -> None:
    """Any value, in UTF-8."""
    assert read_json(body) == value


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{secret", "line 1 column 2"),
        (b'{"secret": 1} 2', "not JSON"),
        (b'{"secret": 1, "secret": 2}', "the same name twice"),
        (b'[{"a": {"secret": 1, "secret": 1}}]', "the same name twice"),
        (b'{"secret": NaN}', "NaN is not JSON"),
        (b"-Infinity", "-Infinity is not JSON"),
        (b'"\xff"', "not in UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "too many digits"),
        (b'["secret"' + b",[]" * MAX_VALUES + b"]", "more than 100000 values"),
        (b'{"secret":[' + b"[[1,2]]," * (MAX_VALUES // 4) + b"0]}", "more than 100000 values"),
        ("{}".encode("utf-16"), "not in UTF-8"),
    ],
)
def test_what_is_no_json_is_refused(body: bytes, words: str) -> None:
    """The text says what is wrong, and repeats nothing of the body."""
    with pytest.raises(JSONParseError, match=words) as refusal:
        read_json(body)

    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "body",
    [
        b'["secret"' + b",{}" * 2 * MAX_VALUES + b"}",
        b'["secret"' + b',""' * 2 * MAX_VALUES + b"}",
        b"[" + b'"secret"' * 4 * MAX_VALUES + b",1" * MAX_VALUES,
        b"[" + b",1" * 4 * MAX_VALUES,
    ],
    ids=["objects", "texts", "texts that touch", "numbers"],
)
def test_far_too_many_values_are_refused_unparsed(body: bytes) -> None:
    """These would take the most memory: that they are no JSON is not even found out."""
    with pytest.raises(JSONParseError, match="more than 100000 values"):
        read_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":{"b":"' + b"[,{" * MAX_VALUES + b'"}}',
        b'["' + b'\\",{\\\\' * MAX_VALUES + b'"]',
        b"[" + b'{"a":"b"},' * (MAX_VALUES // 2 - 1) + b"{}]",
        b"[" + b"0," * (MAX_VALUES - 1) + b"0]",
    ],
    ids=["brackets in a text", "quotes in a text", "objects", "numbers"],
)
def test_what_stands_in_a_text_is_no_value(body: bytes) -> None:
    """However large texts are; and as many values as are allowed are read."""
    assert read_json(body) == json.loads(body)

"""Requests that are almost right: JSON with a value replaced, left out, doubled or enlarged."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from hypothesis import strategies as st

DEPTH = 100_000

BROKEN = [
    b'"\xff\xfe"',  # no UTF-8
    b'"\xed\xa0\x80"',  # a surrogate in UTF-8
    b'"\xc0\x80"',  # NUL in too many bytes
    b'"\\ud800"',
    b'"a\\udfffb"',
    b'"\\u0000"',
    b'"a\\u0001\\u007fb\\r\\nX: y"',
    b'"\\u202e\\u2028"',
    b'"' + b"x" * 1_000_000 + b'"',
    b'"' + b"x" * 300 + b'"',
    b'".."',
    b'"../../etc/passwd"',
    b'"%2e%2e%2f"',
    b'""',
    b'" "',
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1.5",
    b"-0.0",
    b"1e308",
    b"1e999",
    b"2147483648",
    b"9223372036854775808",
    b"123456789012345678901234567890",
    b"9" * 4000,
    b"9" * 5000,
    b"NaN",
    b"-Infinity",
    b"[]",
    b"{}",
    b"[[]]",
    b"[null]",
    b'{"":null}',
    b'{"__class__":"x","$ref":"#"}',
    b'{"a":1,"a":2}',
    b"[" * 90 + b"]" * 90,
    b"[" * 300 + b"]" * 300,
    b"[" * 900 + b"]" * 900,
    b'{"a":' * 60 + b"1" + b"}" * 60,
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b"[" * DEPTH,
    b"[" * DEPTH + b"]" * DEPTH,
    b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
    b"[" + b",".join([b'{"text":"x"}'] * 10_000) + b"]",
    b"[" + b",".join([b'{"kind":"text","text":"x"}'] * 10_000) + b"]",
    b"[" + b",".join([b'{"raw":"aGk="}'] * 101) + b"]",
    b'{"text":"a","raw":"aGk="}',
    b'{"data":{"x":[1e400]}}',
    b'[{"data":{"k\\ud800":"v"}}]',
    b'[{"data":"\\ud800"}]',
    b'[{"data":' + b"[" * 80 + b"]" * 80 + b"}]",
    b'[{"kind":"data","data":{"k\\ud800":"v\\udfff"}}]',
    b'[{"kind":"data","data":{"a":' + b"[" * 80 + b"]" * 80 + b"}}]",
    b'[{"kind":"file","file":{"uri":"http://a/","bytes":"aGk="}}]',
    b'[{"url":"http://a\\u0000/"}]',
    b'"ROLE_NOBODY"',
    b'"TASK_STATE_NONE"',
    b'"2026-01-31T12:00:00Z"',
    b'"0000-00-00T00:00:00Z"',
    b'"9999-12-31T23:59:59.999999999Z"',
    b'"1e3"',
    b'"\xd9\xa3"',  # a digit, but not of ASCII
]
"""Replacements of a value; some of them are invalid JSON."""

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)

Path = tuple[str | int, ...]


def paths(tree: object, at: Path = ()) -> list[Path]:
    """Return the paths of all values, the root first."""
    found: list[Path] = [at]
    if isinstance(tree, Mapping):
        for key, value in cast("Mapping[str, object]", tree).items():
            found += paths(value, (*at, key))
    elif isinstance(tree, list):
        for index, value in enumerate(cast("list[object]", tree)):
            found += paths(value, (*at, index))
    return found


def exchanges(original: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the bytes of a tree with each of its values replaced by a third of the wrong ones.

    It is another third for each neighbour.
    """
    for number, path in enumerate(paths(original)):
        for content in BROKEN[number % 3 :: 3]:
            yield written(_replaced(original, path), [content])


@st.composite
def mutated(draw: st.DrawFn, original: Mapping[str, Any]) -> bytes:
    """Return the bytes of a tree that was changed in one to three places."""
    tree: Any = json.loads(json.dumps(original))
    marks: list[bytes] = []
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths(tree)))
        tree = _changed(draw, tree, path, marks)
    body = written(tree, marks)
    return draw(st.sampled_from([body] * 8 + [body[: len(body) // 2], body + b"}", b"\xef\xbb\xbf" + body]))


def _changed(draw: st.DrawFn, tree: Any, path: Path, marks: list[bytes]) -> Any:  # noqa: ANN401 -- JSON
    if not path:
        return _other(draw, tree, marks)
    parent, key = tree, path[-1]
    for step in path[:-1]:
        parent = parent[step]
    match draw(st.sampled_from(["other", "other", "other", "gone", "twice", "renamed"])):
        case "gone":
            del parent[key]
        case "twice" if isinstance(key, str):
            value = json.dumps(parent[key]).encode()
            parent[key] = _mark(value + b"," + json.dumps(key).encode() + b":" + value, marks)
        case "renamed" if isinstance(key, str):
            parent[draw(st.text(max_size=12)) or key.upper()] = parent.pop(key)
        case _:
            parent[key] = _other(draw, parent[key], marks)
    return tree


def _other(draw: st.DrawFn, value: object, marks: list[bytes]) -> object:
    if draw(st.integers(0, 3)) == 0:
        return draw(_JSON)
    if draw(st.integers(0, 7)) == 0:
        return [value]
    return _mark(draw(st.sampled_from(BROKEN)), marks)


def _mark(content: bytes, marks: list[bytes]) -> str:
    """Return the mark for bytes that no encoder of JSON would write."""
    marks.append(content)
    return _name(len(marks) - 1)


def _name(number: int) -> str:
    return f"@mark-{number}@"


def written(tree: object, marks: Sequence[bytes]) -> bytes:
    body = json.dumps(tree).encode()
    for number, content in enumerate(marks):
        body = body.replace(f'"{_name(number)}"'.encode(), content)
    return body


def _replaced(tree: object, path: Path) -> object:
    """Return a copy with the first mark replaced."""
    if not path:
        return _name(0)
    step, *rest = path
    if isinstance(tree, Mapping):
        members = cast("Mapping[str, object]", tree)
        return {key: _replaced(value, (*rest,)) if key == step else value for key, value in members.items()}
    items = enumerate(cast("list[object]", tree))
    return [_replaced(value, (*rest,)) if index == step else value for index, value in items]

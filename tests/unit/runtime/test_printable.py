"""Texts for people's decisions: no character is invisible or reorders the rest."""

import pytest

from everloop.runtime.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("to alice", "to alice"),
        ("to \u202eecila", r"to \u202eecila"),
        ("\u2066alice\u2069", r"\u2066alice\u2069"),
        ("ali\u200bce", r"ali\u200bce"),
        ("ali\u00adce\ufeff", r"ali\u00adce\ufeff"),
        ("ali\ufe0fce", r"ali\ufe0fce"),
        ("alice\u3164\u2800\u034f", r"alice\u3164\u2800\u034f"),
        ("alice\U000e0061\U000e0100", r"alice\udb40\udc61\udb40\udd00"),
        ("a\u00a0b\u3000c", r"a\u00a0b\u3000c"),
        ("a\tb\nc\rd\x1b[2J\x00", r"a\tb\nc\rd\u001b[2J\u0000"),
        ("a\u2028b\u0085", r"a\u2028b\u0085"),
        ("half \ud800", r"half \ud800"),
        ("Müller, 東京, שלום, ⚠️ ❤️ 👍🏽, e\u0301", "Müller, 東京, שלום, ⚠️ ❤️ 👍🏽, e\u0301"),
    ],
)
def test_what_is_not_seen_is_escaped_as_in_json(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_line_breaks_stay_where_a_text_has_lines() -> None:
    assert printable("a\nb\u200b\r\n", lines=True) == "a\nb\\u200b\\r\n"

"""Escape invisible characters, and those that reorder others.

A module of its own, because activities and the command line share it. The console has the same in
TypeScript: `printable` in `everloop/gateway/console/web/src/state/printable.ts`.
"""

import json
import re

_DRAWN = "\u2190-\u27ff\u2900-\u2bff\U0001f000-\U0001faff"
"""Symbols that U+FE0F draws as emoji."""

_SUSPECT = re.compile(rf"(?<![{_DRAWN}])\ufe0f|[^ -~\ufe0f]")

_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
"""Blank characters that Python regards as printable: fillers, joiners and variation selectors, which
programs may ignore (Default_Ignorable_Code_Point of Unicode), and two blank symbols."""


def printable(text: str, *, lines: bool = False) -> str:
    """Escape, as in JSON, invisible characters and those that control a terminal or reorder others.

    `lines`: keep line breaks.
    """
    return _SUSPECT.sub(lambda found: _escaped(found[0], lines=lines), text)


def _escaped(sign: str, *, lines: bool) -> str:
    is_visible = (sign.isprintable() and not _UNSEEN.fullmatch(sign)) or (lines and sign == "\n")
    return sign if is_visible else json.dumps(sign)[1:-1]

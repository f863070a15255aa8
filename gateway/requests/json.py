"""JSON as clients have to send it. Pure.

Source: RFC 8259, and RFC 7493 (I-JSON) for names that are sent twice: readers differ on which one counts.
"""

import json
import re
from typing import cast

from a2a.utils.errors import JSONParseError

MAX_VALUES = 100_000
"""Of members and elements, at all depths together. Each costs some ten microseconds until it is stored."""

_MARK = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)
"""A text, or what stands before a value: the comma or the bracket."""

_MARKS_OF_A_VALUE = 3
"""At most: the comma, the name, and the text or the bracket that it begins with."""


def read_json(body: bytes) -> object:
    """Return what a body holds.

    Raises:
        JSONParseError: it is no JSON; the text repeats nothing of it.
    """
    try:
        text = body.decode("utf-8-sig")
        _check_marks(text)
        value = json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise JSONParseError(
            f"the body is not JSON: {error.msg}, line {error.lineno} column {error.colno}"
        ) from None
    except UnicodeDecodeError:
        raise JSONParseError("the body is not in UTF-8") from None
    except RecursionError:
        raise JSONParseError("the body is nested too deeply") from None
    except ValueError:
        raise JSONParseError("a number in the body has too many digits") from None
    if _is_countable(value):
        return value
    del value  # else it would live as long as the error, whose traceback has this frame
    raise _too_many()


def _too_many() -> JSONParseError:
    return JSONParseError(
        f"the body has more than {MAX_VALUES} values; send large data as a file, or in several messages"
    )


def _check_marks(text: str) -> None:
    """Refuse a text with so many values that parsing it alone would take too long, and too much memory.

    A text that passes has three times as many as are allowed at most.
    """
    if sum(map(text.count, ",[{")) <= MAX_VALUES:
        return
    for count, _ in enumerate(_MARK.finditer(text)):
        if count > _MARKS_OF_A_VALUE * MAX_VALUES:
            raise _too_many()


def _is_countable(value: object) -> bool:
    """Whether there are so few values that reading them keeps no other request waiting for long."""
    count, rest = 0, [value]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            inside = list(cast("dict[str, object]", each).values())
        elif isinstance(each, list):
            inside = cast("list[object]", each)
        else:
            continue
        count += len(inside)
        if count > MAX_VALUES:
            return False
        rest += inside
    return True


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JSONParseError("an object in the body has the same name twice; send each name once")
    return members


def _refuse_constant(name: str) -> object:
    raise JSONParseError(f"{name} is not JSON; send a number, a text or null")

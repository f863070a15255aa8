"""Whether bytes are a message that is worth reading: counted before anything is made of them. Pure.

Source: protobuf.dev, "Encoding". Two bytes make an empty part, which takes a hundred in memory: what a
message becomes is bounded by how many fields it has, not by its size.
"""

from collections import Counter
from typing import TypeVar, cast

from a2a.utils.errors import InvalidParamsError
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from everloop.gateway.requests import MAX_PARTS
from everloop.gateway.strict_json import MAX_VALUES

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES = 10

_M = TypeVar("_M", bound=Message)


def read_message(kind: type[_M], content: bytes) -> _M:
    """Return the message that bytes are.

    Raises:
        DecodeError: they are none.
        InvalidParamsError: it has too many fields, or too many entries in one of them.
    """
    _count(cast("Descriptor", kind.DESCRIPTOR), content)
    return kind.FromString(content)


def _count(message: Descriptor, content: bytes) -> None:
    """Walk over all fields, without recursion, and stop as soon as they are too many."""
    total, entries = 0, Counter[str]()
    rest = [(message, 0, len(content))]
    while rest:
        inside, position, end = rest.pop()
        fields = inside.fields_by_number
        while position < end:
            total += 1
            if total > MAX_VALUES:
                raise InvalidParamsError(
                    f"the request has more than {MAX_VALUES} values; "
                    "send large data as a file, or in several messages"
                )
            number, start, position = _next_field(content, position, end)
            field = fields.get(number)
            if field is None or start is None:
                continue
            if field.is_repeated and not inside.full_name.startswith("google.protobuf."):
                _count_entry(field, entries)
            if field.message_type:
                rest.append((field.message_type, start, position))


def _count_entry(field: FieldDescriptor, entries: Counter[str]) -> None:
    entries[field.full_name] += 1
    if entries[field.full_name] > MAX_PARTS:
        raise InvalidParamsError(
            f"{field.name} has more than {MAX_PARTS} entries; send fewer, or several messages"
        )


def _next_field(content: bytes, position: int, end: int) -> tuple[int, int | None, int]:
    """Return the number of a field, where its content begins (None: a number) and where it ends."""
    tag, position = _read_varint(content, position, end)
    number, wire_type = tag >> 3, tag & 7
    start = None
    if wire_type == _VARINT:
        _, position = _read_varint(content, position, end)
    elif wire_type == _DELIMITED:
        size, start = _read_varint(content, position, end)
        position = start + size
    elif wire_type in _FIXED_SIZES:
        position += _FIXED_SIZES[wire_type]
    else:  # groups, which no client of proto3 sends
        raise DecodeError("a field is of no known kind")
    if position > end:
        raise DecodeError("a field is cut off")
    return number, start, position


def _read_varint(content: bytes, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(min(_MAX_VARINT_BYTES, end - position)):
        byte = content[position + shift]
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:  # noqa: PLR2004 -- the bit that says that more follows
            return value, position + shift + 1
    raise DecodeError("a number is cut off")

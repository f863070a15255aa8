"""Parsing and validation of JSON and protobuf requests against messages of A2A. Pure.

Sources: RFC 8259, and RFC 7493 (I-JSON) for duplicate names: parsers differ on the one that counts.
ProtoJSON (protobuf.dev, "ProtoJSON Format"). The protobuf decoder repeats the sent values in errors, in
its own terms; it accepts unknown enum values, and skips invalid base64. Unknown fields are accepted:
clients may be newer than this server (A2A 1.0 §3.6).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from a2a.utils.errors import InvalidParamsError, JSONParseError
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import JsonValue

from everloop.gateway.requests.fields import MAX_PARTS
from everloop.runtime.outbound.bounds import AnswerBound, AnswerTooLargeError
from everloop.workflows.contract.parts import NO_DOUBLE, has_doubles

MAX_VALUES = 100_000
"""Maximum members and elements, at all depths together; an empty object or list counts twice. Each costs
some ten microseconds until it is stored."""

_PIECE = 65_536
"""Bytes whose values are counted at a time; the counter copies them."""


def read_json(body: bytes) -> object:
    """Parse a JSON body.

    Raises:
        JSONParseError: the body is not JSON. The text repeats nothing of it.
    """
    _check_values(body)
    try:
        text = body.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
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


def _check_values(body: bytes) -> None:
    """Reject, before it is parsed, a body with so many values that it would delay other requests."""
    if sum(map(body.count, (b",", b"[", b"{"))) <= MAX_VALUES:
        return  # those in texts included
    bound = AnswerBound(limit=len(body), values=MAX_VALUES)
    try:
        for start in range(0, len(body), _PIECE):
            bound.feed(body[start : start + _PIECE])
    except AnswerTooLargeError:
        raise JSONParseError(
            f"the body has more than {MAX_VALUES} values; send large data as a file, or in several messages"
        ) from None


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JSONParseError("an object in the body has the same name twice; send each name once")
    return members


def _refuse_constant(name: str) -> object:
    raise JSONParseError(f"{name} is not JSON; send a number, a text or null")


# Validation of the base64 of file parts. Pure.
#
# Source: RFC 4648 §4 and §5 (both alphabets), ProtoJSON (padding may be left out). Decoders skip invalid
# characters: a file that was sent as plain text would become another file.

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*+(={0,2})")


def is_base64(text: str) -> bool:
    """Whether a text is base64 in either alphabet, padded or not."""
    found = _BASE64.fullmatch(text)
    return found is not None and (len(text) % 4 == 0 or (not found[1] and len(text) % 4 != 1))


def is_strict_base64(text: str) -> bool:
    """Whether a text is padded base64 in the standard alphabet: the decoder of A2A 0.3 accepts no other."""
    return is_base64(text) and len(text) % 4 == 0 and not set("-_") & set(text)


INT32_MAX = 2**31 - 1

_M = TypeVar("_M", bound=Message)


def read_params(kind: type[_M], params: object) -> _M:
    """Convert parameters to a message.

    Raises:
        InvalidParamsError: they do not match. The text names the first field, and the expected value.
    """
    if found := problem_in(kind, params):
        raise InvalidParamsError(found)
    sent = cast("dict[str, Any]", params)
    _drop_nulls(cast("Descriptor", kind.DESCRIPTOR), sent)
    return ParseDict(sent, kind(), ignore_unknown_fields=True)


def _drop_nulls(message: Descriptor, sent: dict[str, Any]) -> None:
    """Remove the nulls beside the chosen member of a oneof.

    The decoder reads null as the JSON value of `data`, and so as the content of a part that has a text.
    """
    for oneof in message.oneofs:
        members = {name for field in oneof.fields for name in (field.json_name, field.name)} & sent.keys()
        nulls = {name for name in members if sent[name] is None}
        for name in nulls if members - nulls else ():
            del sent[name]
    for field in message.fields:
        if field.message_type and field.message_type.full_name not in _WELL_KNOWN:
            value: Any = sent.get(field.json_name) or sent.get(field.name) or []
            for each in value if field.is_repeated else [value] if value else []:
                _drop_nulls(field.message_type, each)


def problem_in(kind: type[Message], value: object) -> str:
    """Return the problem of the first invalid field, with the expected value; empty if all are valid."""
    return _message_problem(cast("Descriptor", kind.DESCRIPTOR), value, "")


def _message_problem(message: Descriptor, value: object, path: str) -> str:
    if not isinstance(value, dict):
        return _violation(path or "params", value, "has to be an object")
    sent = cast("dict[str, object]", value)
    chosen: dict[str, str] = {}
    for field in message.fields:
        names = [each for each in dict.fromkeys((field.json_name, field.name)) if sent.get(each) is not None]
        if not names:
            continue
        if len(names) > 1:
            return f"{path or 'params'} has both {names[0]} and {names[1]}; send one of them"
        name = names[0]
        where = f"{path}.{name}" if path else name
        if found := _field_problem(field, sent[name], where):
            return found
        if field.containing_oneof and chosen.setdefault(field.containing_oneof.name, name) != name:
            other = chosen[field.containing_oneof.name]
            return f"{path or 'params'} has both {other} and {name}; send one of them"
    return ""


def _field_problem(field: FieldDescriptor, value: object, path: str) -> str:
    if not field.is_repeated:
        return _single_problem(field, value, path)
    if not isinstance(value, list):
        return _violation(path, value, "has to be a list")
    sent = cast("list[object]", value)
    if len(sent) > MAX_PARTS:
        kind = "parts" if field.message_type else "entries"
        return f"{path} has {len(sent)} {kind}; one message may have {MAX_PARTS}"
    elements = enumerate(sent)
    return next(filter(None, (_single_problem(field, each, f"{path}[{n}]") for n, each in elements)), "")


def _single_problem(field: FieldDescriptor, value: object, path: str) -> str:
    if field.message_type and field.message_type.full_name not in _WELL_KNOWN:
        return _message_problem(field.message_type, value, path)
    if field.message_type:
        fits, rule = _WELL_KNOWN[field.message_type.full_name]
        if fits(value) and not has_doubles(cast("JsonValue", value)):
            return f"{path} {NO_DOUBLE}"
    elif field.enum_type:
        names = [each.name for each in field.enum_type.values]
        fits, rule = _is_named(field.enum_type), f"has to be one of {', '.join(names[1:])}"
    else:
        fits, rule = _SCALARS[field.type]
    return "" if fits(value) else _violation(path, value, rule)


def _is_named(enum: EnumDescriptor) -> Callable[[object], bool]:
    allowed: Sequence[object] = [*(each.name for each in enum.values), *(each.number for each in enum.values)]
    return lambda value: not isinstance(value, bool) and value in allowed


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value)


def _is_bytes(value: object) -> bool:
    return isinstance(value, str) and is_base64(value)


def _is_int32(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return False
    return -INT32_MAX - 1 <= number <= INT32_MAX and (isinstance(value, str) or number == value)


def _is_time(value: object) -> bool:
    try:
        Timestamp().FromJsonString(cast("str", value))
    except (ValueError, TypeError, AttributeError):
        return False
    return True


def _violation(path: str, value: object, rule: str) -> str:
    """Return the type of the sent value and the expected one, without the value itself."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", bool: "a boolean", type(None): "null"}
    if isinstance(value, str):
        return f"{path} {rule}"
    return f"{path} is {kinds.get(type(value), 'a number')}; it {rule}"


_INT32 = (_is_int32, "has to be a whole number of 32 bits")
_TEXT = (_is_text, "has to be a text, in whole characters")

_SCALARS: dict[int, tuple[Callable[[object], bool], str]] = {
    FieldDescriptor.TYPE_STRING: _TEXT,
    FieldDescriptor.TYPE_BYTES: (_is_bytes, "is no base64; encode the bytes of the file (RFC 4648)"),
    FieldDescriptor.TYPE_BOOL: (lambda value: isinstance(value, bool), "has to be true or false"),
    FieldDescriptor.TYPE_INT32: _INT32,
}
"""All types of requests of A2A 1.0 and 0.3."""

_WELL_KNOWN: dict[str, tuple[Callable[[object], bool], str]] = {
    "google.protobuf.Struct": (lambda value: isinstance(value, dict), "has to be an object"),
    "google.protobuf.Value": (lambda _: True, "has to be JSON"),
    "google.protobuf.Timestamp": (_is_time, "has to be a time as 2026-01-31T12:00:00Z (RFC 3339)"),
}


# Limits on protobuf messages, checked before they are decoded. Pure.
#
# Source: protobuf.dev, "Encoding". Two bytes make an empty part, which takes a hundred in memory: the size of
# a decoded message is bounded by its number of fields, not by its bytes.

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES = 10


def read_message(kind: type[_M], content: bytes) -> _M:
    """Decode a protobuf message.

    Raises:
        DecodeError: the bytes are malformed.
        InvalidParamsError: it has too many fields, or too many entries in one of them.
    """
    _count(cast("Descriptor", kind.DESCRIPTOR), content)
    return kind.FromString(content)


def _count(message: Descriptor, content: bytes) -> None:
    """Count all fields, without recursion, and stop at the limit."""
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
    """Return the number of a field, the start of its content (None for a number) and its end."""
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
    else:  # groups, which clients of proto3 do not send
        raise DecodeError("a field is of no known kind")
    if position > end:
        raise DecodeError("a field is cut off")
    return number, start, position


def _read_varint(content: bytes, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(min(_MAX_VARINT_BYTES, end - position)):
        byte = content[position + shift]
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:  # noqa: PLR2004 -- the continuation bit
            return value, position + shift + 1
    raise DecodeError("a number is cut off")

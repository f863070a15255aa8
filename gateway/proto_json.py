"""Messages of the protocol as JSON: whether what was sent fits one, and pages of tasks. Pure.

Source: ProtoJSON (protobuf.dev, "ProtoJSON Format"). The protobuf decoder tells of misfits with what was
sent and in words of its own; it lets unknown words pass for enums, and leaves out what is no base64.
Unknown fields pass: clients may be newer than we are (A2A 1.0 §3.6).
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from a2a.types import a2a_pb2 as pb
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from everloop.gateway.raw_parts import is_base64
from everloop.gateway.requests import MAX_PARTS

INT32_MAX = 2**31 - 1


def flaw(kind: type[Message], value: object) -> str:
    """Return what is wrong with the first field that does not fit, and what was expected; empty: nothing."""
    return _message_flaw(cast("Descriptor", kind.DESCRIPTOR), value, "")


def page_of_tasks(response: pb.ListTasksResponse) -> dict[str, Any]:
    """Return a page as JSON: all that A2A 1.0 §3.1.4 requires of it, and tasks as GetTask shows them."""
    return {
        "tasks": [MessageToDict(task) for task in response.tasks],
        "nextPageToken": response.next_page_token,
        "pageSize": response.page_size,
        "totalSize": response.total_size,
    }


def _message_flaw(message: Descriptor, value: object, path: str) -> str:
    if not isinstance(value, dict):
        return _misfit(path or "params", value, "has to be an object")
    sent = cast("dict[str, object]", value)
    chosen: dict[str, str] = {}
    for field in message.fields:
        name = next((each for each in (field.json_name, field.name) if sent.get(each) is not None), "")
        if not name:
            continue
        where = f"{path}.{name}" if path else name
        if found := _field_flaw(field, sent[name], where):
            return found
        if field.containing_oneof and chosen.setdefault(field.containing_oneof.name, name) != name:
            other = chosen[field.containing_oneof.name]
            return f"{path or 'params'} has both {other} and {name}; send one of them"
    return ""


def _field_flaw(field: FieldDescriptor, value: object, path: str) -> str:
    if not field.is_repeated:
        return _single_flaw(field, value, path)
    if not isinstance(value, list):
        return _misfit(path, value, "has to be a list")
    sent = cast("list[object]", value)
    if len(sent) > MAX_PARTS:
        kind = "parts" if field.message_type else "entries"
        return f"{path} has {len(sent)} {kind}; one message may have {MAX_PARTS}"
    elements = enumerate(sent)
    return next(filter(None, (_single_flaw(field, each, f"{path}[{n}]") for n, each in elements)), "")


def _single_flaw(field: FieldDescriptor, value: object, path: str) -> str:
    if field.message_type and field.message_type.full_name not in _WELL_KNOWN:
        return _message_flaw(field.message_type, value, path)
    if field.message_type:
        fits, rule = _WELL_KNOWN[field.message_type.full_name]
    elif field.enum_type:
        names = [each.name for each in field.enum_type.values]
        fits, rule = _is_named(field.enum_type), f"has to be one of {', '.join(names[1:])}"
    else:
        fits, rule = _SCALARS[field.type]
    return "" if fits(value) else _misfit(path, value, rule)


def _is_named(enum: EnumDescriptor) -> Callable[[object], bool]:
    known: Sequence[object] = [*(each.name for each in enum.values), *(each.number for each in enum.values)]
    return lambda value: not isinstance(value, bool) and value in known


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


def _misfit(path: str, value: object, rule: str) -> str:
    """Say what was sent and what was expected, without repeating what was sent."""
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
"""Every type that a request of A2A 1.0 or 0.3 has."""

_WELL_KNOWN: dict[str, tuple[Callable[[object], bool], str]] = {
    "google.protobuf.Struct": (lambda value: isinstance(value, dict), "has to be an object"),
    "google.protobuf.Value": (lambda _: True, "has to be JSON"),
    "google.protobuf.Timestamp": (_is_time, "has to be a time as 2026-01-31T12:00:00Z (RFC 3339)"),
}

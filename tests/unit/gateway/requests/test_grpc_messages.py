"""Limits of a request over gRPC, and malformed ones."""

from collections.abc import Callable

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Value

from everloop.gateway.requests.fields import MAX_PARTS
from everloop.gateway.requests.proto import MAX_VALUES, read_message


def full_request() -> pb.SendMessageRequest:
    """A request with texts, bytes, numbers, data, lists and fields of newer clients."""
    request = pb.SendMessageRequest()
    request.message.message_id = "ü" * 200
    request.message.parts.add(text="hello").metadata.update({"a": [1, {"b": None}, "c", True, 0.5]})
    request.message.parts.add(raw=b"\xff\x00" * 300, filename="x")
    request.message.reference_task_ids.extend(["one", "two"])
    request.configuration.history_length = 5
    request.configuration.return_immediately = True
    unknown = b"\xf8\x7f\x01\xf9\x7f12345678\xfd\x7f1234\xfa\x7f\x02ab"
    return pb.SendMessageRequest.FromString(request.SerializeToString() + unknown)


def values(count: int) -> pb.SendMessageRequest:
    request = pb.SendMessageRequest()
    request.message.parts.add().data.list_value.values.extend([Value()] * count)
    return request


def test_a_request_that_is_cut_off_anywhere_is_none() -> None:
    """At exactly the positions at which protobuf refuses it."""
    content = full_request().SerializeToString()
    for end in range(len(content)):
        assert is_read(read_message, content[:end]) == is_read(_parse, content[:end])


def is_read(read: Callable[[type[pb.SendMessageRequest], bytes], Message], content: bytes) -> bool:
    try:
        read(pb.SendMessageRequest, content)
    except DecodeError:
        return False
    return True


def _parse(kind: type[pb.SendMessageRequest], content: bytes) -> Message:
    return kind.FromString(content)


@pytest.mark.parametrize("content", [b"\x0b\x0c", b"\xff" * 11, b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_no_message_is_refused(content: bytes) -> None:
    """Groups, endless numbers, and lengths beyond the end."""
    with pytest.raises(DecodeError):
        read_message(pb.SendMessageRequest, content)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (pb.SendMessageRequest(message=pb.Message(parts=[pb.Part()] * (MAX_PARTS + 1))), "parts"),
        (pb.SendMessageRequest(message=pb.Message(extensions=[""] * (MAX_PARTS + 1))), "extensions"),
        (old.SendMessageRequest(request=old.Message(content=[old.Part()] * (MAX_PARTS + 1))), "content"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_list_of_the_protocol_is_too_long(request_: Message, name: str) -> None:
    """The error names it; one entry fewer is accepted."""
    with pytest.raises(InvalidParamsError, match=f"^{name} has more than 1000 entries"):
        read_message(type(request_), request_.SerializeToString())


def test_a_list_may_not_be_sent_in_pieces_to_be_longer() -> None:
    """Protobuf joins a repeated field of a message."""
    piece = pb.SendMessageRequest(message=pb.Message(parts=[pb.Part()] * MAX_PARTS)).SerializeToString()
    assert len(read_message(pb.SendMessageRequest, piece).message.parts) == MAX_PARTS
    with pytest.raises(InvalidParamsError, match="parts has more"):
        read_message(pb.SendMessageRequest, piece * 2)


def test_data_may_have_as_many_values_as_in_json() -> None:
    """They are counted before any object is made of them."""
    assert read_message(pb.SendMessageRequest, values(10_000).SerializeToString()) == values(10_000)
    with pytest.raises(InvalidParamsError, match=f"more than {MAX_VALUES} values"):
        read_message(pb.SendMessageRequest, values(MAX_VALUES).SerializeToString())

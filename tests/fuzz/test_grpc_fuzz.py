"""Any input to the gRPC services ends with a known status, and without internals."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.types import a2a_pb2 as pb
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.insides import MAX_REFUSAL, insides
from tests.fuzz.target import CONFIG, FUZZ, HOOK, Target
from tests.gateway.harness import unique
from tests.support.wires.operations import LEGACY, OPERATIONS, legacy_proto, params_of

TASK = "the-task-that-there-is-of-thirty-six"
"""A placeholder for its id, of the same length."""

_KNOWN = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"}

_SERVICES = (pb.DESCRIPTOR.services_by_name["A2AService"], pb03.DESCRIPTOR.services_by_name["A2AService"])
_METHODS: list[MethodDescriptor] = [method for service in _SERVICES for method in service.methods]


def _same(content: bytes) -> bytes:
    return content


@dataclass(frozen=True)
class End:
    """The end of a call: its status and details."""

    status: str
    text: str
    metadata: bytes


async def call(target: Target, path: str, content: bytes, metadata: Mapping[str, str] | None = None) -> End:
    """Send bytes; of a stream the first answer is enough."""
    dial: Callable[..., Any] = target.channel.unary_stream
    answers = dial(path, request_serializer=_same, response_deserializer=_same)(
        content, metadata=tuple((metadata or {}).items()), timeout=20
    )
    try:
        async for _ in answers:
            answers.cancel()
            return End("OK", "", b"")
    except grpc.aio.AioRpcError as error:
        trailing = repr([*(error.trailing_metadata() or ())]).encode()
        return End(error.code().name, error.details() or "", trailing)
    return End("OK", "", b"")


def check(end: End) -> None:
    """Assert that it is a status of the services, with a text for clients."""
    assert end.status in _KNOWN, end
    assert len(end.text) + len(end.metadata) <= MAX_REFUSAL
    assert not insides(end.text), end


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _kind(method: MethodDescriptor) -> type[Message]:
    return GetMessageClass(method.input_type)


def _filled(method: MethodDescriptor) -> list[bytes]:
    """Return valid or nearly valid requests of a method."""
    kind = _kind(method)
    params: list[dict[str, Any]] = [
        {},
        {"id": TASK},
        {"taskId": TASK, "id": CONFIG, "url": HOOK},
        {"name": f"tasks/{TASK}"},
    ]
    params.append({"name": f"tasks/{TASK}/pushNotificationConfigs/{CONFIG}"})
    params += [{"id": TASK, "historyLength": -1}, {"taskId": TASK, "pageSize": -1, "pageToken": "x"}]
    if method.name in OPERATIONS:
        params += [params_of(method.name, "nobody"), params_of(method.name)]
        if method.name in LEGACY and kind.DESCRIPTOR.file.name == pb03.DESCRIPTOR.name:
            params.append(legacy_proto(method.name, params_of(method.name, "nobody")))
    return [_serialized(kind, each) for each in params]


def _serialized(kind: type[Message], params: Mapping[str, object]) -> bytes:
    try:
        return ParseDict(
            json.loads(json.dumps(params)), kind(), ignore_unknown_fields=True
        ).SerializeToString()
    except ValueError:
        return b""


_PIECES = [
    b"",
    b"\xff" * 10,
    b"\x0a\x02\xff\xfe",  # a text that is not UTF-8 a surrogate
    b"\x0a\x03\xed\xa0\x80",  # a surrogate
    b"\x0a\x01\x00",
    b"\x0a\xff\xff\xff\xff\x0f",  # a length of 4 GB
    b"\x0a" + b"\xc0\x84\x3d" + b"x" * 1_000_000,
    b"\x0b" * 1000,  # groups that begin and do not end
    b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
]


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return the path of a method and bytes for it: valid ones with some cut, doubled, changed or new."""
    method = draw(st.sampled_from(_METHODS))
    content = draw(st.sampled_from(_filled(method)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        until = draw(st.integers(at, min(len(content), at + 12)))
        piece = draw(st.binary(max_size=12) | st.sampled_from(_PIECES))
        content = content[:at] + piece + content[until:]
    return path_of(method), content


@pytest.mark.slow
@given(request=requests())
@settings(FUZZ, max_examples=400)
async def test_bytes_that_are_almost_a_request(target: Target, request: tuple[str, bytes]) -> None:
    """Every method of both versions answers, or ends with a status that names the problem."""
    path, content = request
    if path.endswith("/CancelTask"):  # the task is for the other examples too
        content = content.replace(TASK.encode(), b"x" * len(TASK))
    check(await call(target, path, content.replace(TASK.encode(), target.task_id.encode())))


_NAMES = st.sampled_from(
    ["a2a-version", "a2a-extensions", "x-a2a-extensions", "last-event-id", "idempotency-key", "traceparent"]
)
_VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60) | st.sampled_from(
    ["", "1.0", "0.3", "99.0", "9" * 4000, "x," * 1000, "0-0", "18446744073709551616-0", "..", "1.0, 0.3"]
)


@pytest.mark.slow
@given(method=st.sampled_from(_METHODS), metadata=st.dictionaries(_NAMES, _VALUES, max_size=3))
@settings(FUZZ, max_examples=150)
async def test_any_metadata(target: Target, method: MethodDescriptor, metadata: dict[str, str]) -> None:
    """Metadata are validated like bodies."""
    content = _filled(method)[-1].replace(TASK.encode(), b"x" * len(TASK))

    check(await call(target, path_of(method), content, metadata))


async def test_messages_of_any_depth(target: Target) -> None:
    """Data may be nested as deep as protobuf reads; deeper data are refused."""
    ends: set[str] = set()
    for depth in (1, 20, 40, 45, 60, 90, 1_000, 20_000):
        message = pb.Message(message_id=unique("m"), role=pb.ROLE_USER)
        value = b""
        for _ in range(depth):  # a Value that is a list of one Value
            value = _field(6, _field(1, value))
        content = _field(2, message.SerializeToString() + _field(5, _field(4, value)))
        end = await call(target, "/lf.a2a.v1.A2AService/SendMessage", content)
        check(end)
        ends.add(end.status)

    assert ends == {"OK", "INVALID_ARGUMENT"}
    assert await target.is_well()


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a message in protobuf's length-delimited form."""
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


async def test_methods_that_there_are_not(target: Target) -> None:
    """UNIMPLEMENTED, as in gRPC."""
    for path in ("/lf.a2a.v1.A2AService/Nothing", "/nobody/SendMessage", "/", "/" + "x" * 5000):
        end = await call(target, path, b"")
        assert end.status == "UNIMPLEMENTED"
        check(end)

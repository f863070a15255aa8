"""Whether parameters fit an operation: the same as the protobuf decoder finds, said better."""

import pytest
from a2a.types.a2a_pb2 import ListTasksRequest, SendMessageRequest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from everloop.gateway.requests.messages import MAX_PARTS
from everloop.gateway.requests.proto import flaw


def part(**fields: object) -> dict[str, object]:
    return {"message": {"parts": [{"text": "first"}, fields]}}


FITTING: list[tuple[type[Message], object]] = [
    (SendMessageRequest, {}),
    (SendMessageRequest, part(text="é😀", mediaType="x", media_type="x")),
    (SendMessageRequest, part(data=[1, None, {"a": "b"}])),
    (SendMessageRequest, part(data=None, text="x")),
    (SendMessageRequest, part(raw="YQ")),
    (SendMessageRequest, part(unknown={"x": 1})),
    (SendMessageRequest, {"message": {"role": "ROLE_USER"}, "newer": 1}),
    (SendMessageRequest, {"message": {"role": 1, "metadata": {"a": 1}}}),
    (SendMessageRequest, {"configuration": {"historyLength": 3.0, "returnImmediately": True}}),
    (SendMessageRequest, {"configuration": {"history_length": "7", "acceptedOutputModes": ["a"]}}),
    (ListTasksRequest, {"statusTimestampAfter": "2026-01-31T12:00:00.5+01:00"}),
]

MISFITS: list[tuple[type[Message], object, str]] = [
    (SendMessageRequest, [], "params is a list; it has to be an object"),
    (SendMessageRequest, None, "params is null; it has to be an object"),
    (SendMessageRequest, {"message": "x"}, "message has to be an object"),
    (SendMessageRequest, {"message": {"parts": {}}}, "message.parts is an object; it has to be a list"),
    (SendMessageRequest, {"message": {"parts": [None]}}, "message.parts[0] is null; it has to be an object"),
    (SendMessageRequest, part(text=5), "message.parts[1].text is a number; it has to be a text"),
    (SendMessageRequest, part(text=True), "message.parts[1].text is a boolean; it has to be a text"),
    (SendMessageRequest, part(text="\ud800"), "message.parts[1].text has to be a text, in whole characters"),
    (SendMessageRequest, part(raw="nope!"), "message.parts[1].raw is no base64; encode the bytes"),
    (SendMessageRequest, part(text="x", url="y"), "message.parts[1] has both text and url; send one of them"),
    (
        SendMessageRequest,
        {"message": {"role": "KING"}},
        "message.role has to be one of ROLE_USER, ROLE_AGENT",
    ),
    (SendMessageRequest, {"message": {"role": True}}, "message.role is a boolean; it has to be one of"),
    (SendMessageRequest, {"message": {"metadata": []}}, "message.metadata is a list; it has to be an object"),
    (SendMessageRequest, {"message": {"message_id": 5}}, "message.message_id is a number"),
    (SendMessageRequest, {"configuration": {"returnImmediately": "true"}}, "has to be true or false"),
    (SendMessageRequest, {"configuration": {"historyLength": "x"}}, "has to be a whole number of 32 bits"),
    (SendMessageRequest, {"configuration": {"historyLength": 1.5}}, "has to be a whole number of 32 bits"),
    (SendMessageRequest, {"configuration": {"historyLength": 2**31}}, "has to be a whole number of 32 bits"),
    (SendMessageRequest, {"configuration": {"historyLength": True}}, "has to be a whole number of 32 bits"),
    (SendMessageRequest, {"configuration": {"historyLength": float("inf")}}, "has to be a whole number"),
    (
        SendMessageRequest,
        {"message": {"parts": [5] * (MAX_PARTS + 1)}},
        "message.parts has 1001 parts; one message may have 1000",
    ),
    (
        SendMessageRequest,
        {"message": {"extensions": [5] * (MAX_PARTS + 1)}},
        "message.extensions has 1001 entries; one message may have 1000",
    ),
    (ListTasksRequest, {"statusTimestampAfter": "yesterday"}, "has to be a time as 2026-01-31T12:00:00Z"),
    (ListTasksRequest, {"statusTimestampAfter": 5}, "has to be a time as"),
]


@pytest.mark.parametrize(("kind", "params"), FITTING)
def test_what_fits_is_taken(kind: type[Message], params: object) -> None:
    """In camelCase and snake_case, with fields that we do not know, and the decoder takes it too."""
    assert flaw(kind, params) == ""
    ParseDict(params, kind(), ignore_unknown_fields=True)  # pyright: ignore[reportArgumentType] -- any JSON


@pytest.mark.parametrize(("kind", "params", "words"), MISFITS)
def test_what_does_not_fit_is_named(kind: type[Message], params: object, words: str) -> None:
    """The field, what was sent and what was expected; nothing of what was sent."""
    found = flaw(kind, params)

    assert words in found
    for secret in ("nope", "KING", "yesterday"):
        assert secret not in found

"""Requests of clients, translated into our own types."""

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from everloop.agents.agent import Agent
from everloop.gateway.requests.fields import MAX_ID_BYTES, check_id
from everloop.gateway.requests.incoming_messages import content_of, read_message
from everloop.workflows.contract.messages import DataPart, FilePart, TextPart, UserMessage

AGENT = Agent(id="a", name="A", description="A.")


def send(**changes: object) -> pb.SendMessageRequest:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], **changes}
    return ParseDict({"message": message}, pb.SendMessageRequest())


@pytest.mark.parametrize(("size", "fits"), [(200, True), (199, False)])
def test_the_limit_counts_the_whole_message_as_json(size: int, *, fits: bool) -> None:
    """Up to the limit a message is accepted; one byte more is an error with both sizes."""
    frame = len(UserMessage(message_id="m", parts=(TextPart(text=""),)).model_dump_json())
    request = send(parts=[{"text": "x" * (200 - frame)}])
    if fits:
        assert read_message(request, "o", AGENT, max_bytes=size).message.message_id == "m"
    else:
        with pytest.raises(InvalidParamsError, match="has 200 bytes as JSON; this server takes 199"):
            read_message(request, "o", AGENT, max_bytes=size)


@given(st.text())
def test_an_id_that_is_taken_is_fit_to_be_one(value: str) -> None:
    """A valid id is not empty, not too long, and printable on one line."""
    try:
        taken = check_id(value, "id")
    except (InvalidParamsError, UnicodeEncodeError):
        return
    assert taken == value != ""
    assert len(taken.encode()) <= MAX_ID_BYTES
    assert "\n" not in taken
    assert "\x00" not in taken


@pytest.mark.parametrize("value", ["", ".", "..", "a\n", "\x00", "x" * 256, "é" * 128])
def test_an_id_that_nothing_can_have_is_refused(value: str) -> None:
    """Among them ids that addresses cannot hold: clients and proxies resolve dot segments of a path."""
    with pytest.raises(InvalidParamsError, match=r"^contextId "):
        check_id(value, "contextId")


def test_the_same_content_has_the_same_bytes() -> None:
    """The order of keys does not matter; parts, their kinds and the context do."""

    def content(*parts: TextPart | DataPart, context_id: str = "c") -> bytes:
        return content_of(UserMessage(message_id="m", parts=parts), context_id)

    assert content(DataPart(data={"a": 1, "b": 2})) == content(DataPart(data={"b": 2, "a": 1}))
    different = [
        content(TextPart(text="ab")),
        content(TextPart(text="a"), TextPart(text="b")),
        content(TextPart(text="ab"), context_id="d"),
        content(DataPart(data="ab")),
    ]
    assert len(set(different)) == len(different)


def test_content_without_names_has_the_bytes_that_it_always_had() -> None:
    """Task ids are made of them: an unused field must not change the task that a repeated message finds."""
    named = FilePart(media_type="image/png", filename="a", url="https://a/b")
    parts = (TextPart(text="hi"), DataPart(data=1), named)
    content = content_of(UserMessage(message_id="m", parts=parts), "c")
    assert content == (
        b'["c",[{"kind":"text","text":"hi"},{"data":1,"kind":"data"},{"content":"","filename":"a","kind":"file",'
        b'"media_type":"image/png","size":null,"stored":null,"url":"https://a/b"}]]'
    )

"""A client sends its input unchanged, or refuses it."""

import pytest
from google.protobuf.json_format import MessageToDict

from everloop.client import InvalidError
from everloop.client.content import Json, Part, plain, struct


@pytest.mark.parametrize("value", [{"id": 2**53 + 1}, [[-(2**63) + 1]], {"a": ({"b": 10**400},)}])
def test_a_whole_number_that_no_double_is_is_refused(value: Json) -> None:
    """A2A carries doubles: the agent would silently get another number."""
    with pytest.raises(
        InvalidError,
        match=r"data cannot be sent as JSON: .* is a number that no double is",
    ):
        Part(data=value).to_proto()  # pyright: ignore[reportArgumentType] -- a tuple is sent as a list
    with pytest.raises(
        InvalidError,
        match=r"metadata cannot be sent as JSON: .* is a number that no double is",
    ):
        struct({"x": value})


@pytest.mark.parametrize("number", [2**53, 10**18, -(2**63), 0.1, True])
def test_other_numbers_come_as_they_are(number: float) -> None:
    """Of any size."""
    assert plain(Part(data=[number]).to_proto().data) == [number]
    assert MessageToDict(struct({"x": number}))["x"] == number

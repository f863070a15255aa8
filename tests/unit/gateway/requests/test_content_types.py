"""What an agent takes and gives (A2A 1.0 §3.3.2)."""

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError

from everloop.agents.agent import Agent
from everloop.gateway.requests.messages import check_content_types


def agent(*modes: str) -> Agent:
    return Agent(id="a", name="A", description="A.", input_modes=modes, output_modes=modes)


def sends(*parts: pb.Part, accepts: tuple[str, ...] = ()) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(
        message=pb.Message(parts=parts),
        configuration=pb.SendMessageConfiguration(accepted_output_modes=accepts),
    )


@pytest.mark.parametrize(
    ("modes", "part"),
    [
        (("text/plain",), pb.Part(text="x")),
        (("text/plain",), pb.Part(text="x", media_type="Text/Plain; charset=utf-8")),
        (("text/*",), pb.Part(text="x", media_type="text/markdown")),
        (("text",), pb.Part(text="x")),
        (("image/png",), pb.Part(raw=b"x", media_type="image/png")),
        (("*/*",), pb.Part(url="http://x", media_type="a/b")),
        ((), pb.Part(raw=b"x", media_type="application/x-anything")),
    ],
)
def test_a_part_of_a_type_that_the_agent_takes_passes(modes: tuple[str, ...], part: pb.Part) -> None:
    """Types are compared without case and parameters; modes may be ranges; no modes mean anything."""
    check_content_types(sends(part), agent(*modes))


@pytest.mark.parametrize(
    ("modes", "part", "words"),
    [
        (("text/plain",), pb.Part(raw=b"x", media_type="image/png"), "parts[0] is 'image/png'"),
        (("text/plain",), pb.Part(raw=b"x"), "'application/octet-stream'; agent 'a' takes text/plain"),
        (("image/*",), pb.Part(text="x"), "'text/plain'"),
        (("text/plain",), pb.Part(media_type="x" * 5000, text="x"), "x"),
    ],
)
def test_a_part_of_another_type_is_refused(modes: tuple[str, ...], part: pb.Part, words: str) -> None:
    """The error names the part, its type, and what the agent takes."""
    with pytest.raises(ContentTypeNotSupportedError) as refused:
        check_content_types(sends(part), agent(*modes))

    assert words in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("accepts", "fits"),
    [
        ((), True),
        (("text/plain",), True),
        (("image/png", "text/*"), True),
        (("text",), True),
        (("*/*",), True),
        (("image/png", "video/*"), False),
    ],
)
def test_a_client_has_to_accept_something_that_the_agent_gives(
    accepts: tuple[str, ...], *, fits: bool
) -> None:
    """One mode that both know is enough; a client that says nothing accepts all."""
    request = sends(pb.Part(text="x"), accepts=accepts)

    if fits:
        check_content_types(request, agent("text/plain"))
    else:
        with pytest.raises(ContentTypeNotSupportedError, match="acceptedOutputModes"):
            check_content_types(request, agent("text/plain"))

"""Input and output modes of an agent (A2A 1.0 §3.3.2)."""

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError

from everloop.agents.agent import Agent
from everloop.gateway.requests.incoming_parts import check_content_types

MODES = [
    (("text/plain",), "Text/Plain; charset=utf-8", True),
    (("image/png", "text/*"), "text/markdown", True),
    (("text",), "text/plain", True),
    (("*/*",), "a/b", True),
    ((), "a/b", True),
    (("text/plain",), "text/markdown", False),
    (("image/*",), "text/plain", False),
    (("text/plain",), "x" * 5000, False),
]


@pytest.mark.parametrize(("modes", "media_type", "fits"), MODES)
def test_an_agent_takes_parts_of_its_modes(modes: tuple[str, ...], media_type: str, *, fits: bool) -> None:
    """Types are compared without case and parameters; modes may be ranges; no modes allow any type."""
    agent = Agent(id="a", name="A", description="A.", input_modes=modes)
    message = pb.Message(parts=[pb.Part(text="x", media_type=media_type)])
    if fits:
        check_content_types(pb.SendMessageRequest(message=message), agent)
        return
    with pytest.raises(ContentTypeNotSupportedError) as refused:
        check_content_types(pb.SendMessageRequest(message=message), agent)
    assert f"parts[0] is '{media_type[:9]}" in str(refused.value)
    assert f"agent 'a' takes {modes[0]}" in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("accepted", "fits"),
    [("text/plain", True), ("text/*", True), ("text", True), ("*/*", True), ("video/*", False)],
)
def test_a_client_has_to_accept_something_that_the_agent_gives(accepted: str, *, fits: bool) -> None:
    """One common mode is enough, also if the client names a range."""
    agent = Agent(id="a", name="A", description="A.", output_modes=("text/plain",))
    wanted = pb.SendMessageConfiguration(accepted_output_modes=["image/png", accepted])
    request = pb.SendMessageRequest(message=pb.Message(parts=[pb.Part(text="x")]), configuration=wanted)
    if fits:
        check_content_types(request, agent)
        return
    with pytest.raises(ContentTypeNotSupportedError, match="acceptedOutputModes"):
        check_content_types(request, agent)

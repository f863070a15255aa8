"""Whether an agent can take what a message brings, and give what its client can take. Pure.

Source: A2A 1.0 §3.1.1 and §3.3.2 (ContentTypeNotSupportedError), §3.2.2 (acceptedOutputModes).
"""

from collections.abc import Sequence

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError

from everloop.agents.agent import Agent

TEXT = "text/plain"
JSON = "application/json"
BYTES = "application/octet-stream"

_UNNAMED = {"text": TEXT, "data": JSON, "raw": BYTES, "url": BYTES}
"""What a part without a media type is."""


def check_content_types(params: pb.SendMessageRequest, agent: Agent) -> None:
    """Pass if the agent takes every part of the message, and the client something that the agent gives.

    An agent that names no modes takes and gives anything.

    Raises:
        ContentTypeNotSupportedError: it names the part or the modes, and what would do.
    """
    for index, part in enumerate(params.message.parts):
        media_type = part.media_type or _UNNAMED.get(part.WhichOneof("content") or "", TEXT)
        if agent.input_modes and not _fits_any(media_type, agent.input_modes):
            raise ContentTypeNotSupportedError(
                f"message.parts[{index}] is {_shown(media_type)}; agent {agent.id!r} takes "
                f"{', '.join(agent.input_modes)}"
            )
    accepted = params.configuration.accepted_output_modes
    if accepted and agent.output_modes and not any(_meet(mode, agent.output_modes) for mode in accepted):
        raise ContentTypeNotSupportedError(
            f"configuration.acceptedOutputModes has nothing that agent {agent.id!r} gives: "
            f"{', '.join(agent.output_modes)}; accept one of these, or leave it out"
        )


def _meet(accepted: str, given: Sequence[str]) -> bool:
    """Whether a mode that a client accepts, which may be a range, is one that an agent gives."""
    return _fits_any(accepted, given) or any(_fits(mode, accepted) for mode in given)


def _fits_any(media_type: str, modes: Sequence[str]) -> bool:
    return any(_fits(media_type, mode) for mode in modes)


def _fits(media_type: str, mode: str) -> bool:
    """Whether a type is what a mode says. Modes may be ranges (`image/*`), and, as 0.3 wrote, `text`."""
    kind, _, subtype = media_type.partition(";")[0].strip().lower().partition("/")
    wanted, _, wanted_subtype = mode.partition(";")[0].strip().lower().partition("/")
    return wanted in {"*", kind} and (wanted_subtype in {"", "*", subtype} or not subtype)


def _shown(media_type: str) -> str:
    return repr(media_type[:100])

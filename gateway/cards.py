"""Agent cards: what an agent tells about itself (A2A 1.0 §4.4, §8)."""

from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import PROTOCOL_VERSION_1_0, TransportProtocol

from agents.agent import Agent
from stores.a2a_tasks import EVENTS_EXTENSION

VERSION = "0.1.0"
"""The version in agent cards: Everloop's own, as in pyproject.toml."""

TEXT = "text/plain"
JSON = "application/json"
BYTES = "application/octet-stream"
"""Any file: what the model cannot be given itself, tools can read."""

_CONCRETE = {"image/*": ("image/png", "image/jpeg", "image/gif", "image/webp")}
"""What OpenAI's models take for a range of types (their guide to images and vision)."""


def agent_card(agent: Agent, url: str) -> pb.AgentCard:
    """Return the card of an agent that is served at `url`."""
    return pb.AgentCard(
        name=agent.name,
        description=agent.description,
        version=VERSION,
        supported_interfaces=[
            pb.AgentInterface(
                url=url,
                protocol_binding=TransportProtocol.JSONRPC.value,
                protocol_version=PROTOCOL_VERSION_1_0,
            )
        ],
        capabilities=pb.AgentCapabilities(
            streaming=True,
            extensions=[
                pb.AgentExtension(
                    uri=EVENTS_EXTENSION,
                    description="Every event of a task (tool calls, thoughts, usage, retries), as metadata "
                    "of status updates under this URI.",
                )
            ],
        ),
        default_input_modes=_input_modes(agent),
        default_output_modes=[TEXT, JSON, BYTES],
        skills=[_skill(agent)],
    )


def _input_modes(agent: Agent) -> list[str]:
    """Return media types, not ranges of them: A2A 1.0 §4.4.1 wants types, and clients compare them as such.

    What the model is given as it is comes before "any file", so that clients see what is best.
    """
    taken = [mode for pattern in agent.model_takes for mode in _CONCRETE.get(pattern, (pattern,))]
    return list(dict.fromkeys([TEXT, JSON, *(mode for mode in taken if "*" not in mode), BYTES]))


def _skill(agent: Agent) -> pb.AgentSkill:
    """Return the agent as its own one skill: its tools are its own business."""
    return pb.AgentSkill(id=agent.id, name=agent.name, description=agent.description, tags=[agent.id])

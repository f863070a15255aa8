"""Agent cards: what an agent tells about itself (A2A 1.0 §4.4, §8)."""

from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import PROTOCOL_VERSION_1_0, TransportProtocol

from agents.agent import Agent
from gateway.translate import EVENTS_EXTENSION

VERSION = "0.1.0"
"""The version in agent cards: Everloop's own, as in pyproject.toml."""

TEXT = "text/plain"
JSON = "application/json"


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
        default_input_modes=[TEXT, JSON],
        default_output_modes=[TEXT, JSON],
        skills=[_skill(agent)],
    )


def _skill(agent: Agent) -> pb.AgentSkill:
    """Return the agent as its own one skill: its tools are its own business."""
    return pb.AgentSkill(id=agent.id, name=agent.name, description=agent.description, tags=[agent.id])

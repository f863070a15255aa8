"""Agent cards: descriptions of agents for clients (A2A 1.0 §4.4, §8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, TransportProtocol
from a2a.utils.errors import UnsupportedOperationError
from google.protobuf.struct_pb2 import Struct

from everloop.agents.agent import Agent
from everloop.agents.registry import AgentRegistry
from everloop.gateway.cards.signing import CardKey
from everloop.version import __version__
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION, HTTP_BASE, HTTP_EXTENSION

# Which media types the card of an agent names. Pure.

TEXT = "text/plain"
JSON = "application/json"
BYTES = "application/octet-stream"
"""Any file: tools can read those that the model does not accept."""

_CONCRETE = {"image/*": ("image/png", "image/jpeg", "image/gif", "image/webp")}
"""Concrete types of a range, as OpenAI's models accept them (their guide to images and vision)."""


def input_modes(agent: Agent) -> Sequence[str]:
    """Return media types, not ranges: A2A 1.0 §4.4.1 has types, and clients compare them as such.

    Unless the agent names its own, types that the model accepts come before "any file", the preferred
    first.
    """
    if agent.input_modes:
        return agent.input_modes
    taken = [mode for pattern in agent.model_takes for mode in _CONCRETE.get(pattern, (pattern,))]
    return list(dict.fromkeys([TEXT, JSON, *(mode for mode in taken if "*" not in mode), BYTES]))


def output_modes(agent: Agent) -> Sequence[str]:
    """Return the agent's own, or text, JSON, and any file that a tool may write."""
    return agent.output_modes or (TEXT, JSON, BYTES)


VERSION = __version__
"""Version in cards of agents without one."""

BOTH = (PROTOCOL_VERSION_1_0, PROTOCOL_VERSION_0_3)

OF_A_TOOL = "tool"
"""Tag of skills that are tools of the agent, and prefix of their ids."""


@dataclass(frozen=True)
class CardSettings:
    """Properties of the gateway in all its cards.

    `url`: its public address, with a slash at its end; `grpc_url`: the same as `host:port`, empty
    without gRPC. Any one of the `schemes` authenticates; without schemes no authentication is required.
    """

    url: str
    grpc_url: str = ""
    push: bool = False
    schemes: Mapping[str, pb.SecurityScheme] = field(default_factory=dict[str, pb.SecurityScheme])


class Cards:
    """The cards of a gateway's agents, signed if there is a `key`."""

    def __init__(self, agents: AgentRegistry, settings: CardSettings, key: CardKey | None = None) -> None:
        self.agents = agents
        self.key = key
        self._settings = settings
        self._extended = {agent.id: self._signed(self._with_tools(agent)) for agent in agents}

    def merged(self, agent: Agent) -> pb.AgentCard:
        """Return the card with the interfaces of A2A 0.3 too, which clients of 1.0 skip."""
        return self._signed(self._card(agent, BOTH))

    def pure(self, agent: Agent) -> pb.AgentCard:
        """Return the card of A2A 1.0 alone."""
        return self._signed(self._card(agent, (PROTOCOL_VERSION_1_0,)))

    def over_http(self, agent: Agent, *, streaming: bool = True) -> pb.AgentCard:
        """Return the merged card without gRPC, whose address is not a URL: some clients refuse such a card.

        Without `streaming` it suits clients that print each piece of an answer, and then the whole.
        """
        card = self._card(agent, BOTH, grpc=False)
        card.capabilities.streaming = streaming
        return self._signed(card)

    def extended(self, agent: Agent) -> pb.AgentCard:
        """Return the card for authenticated clients: the merged one, with the agent's tools as skills.

        Raises:
            UnsupportedOperationError: no authentication is configured (A2A 1.0 §13.3 requires it).
        """
        if not self._settings.schemes:
            raise UnsupportedOperationError(
                "there is no extended card: this server does not ask who calls; read the public card"
            )
        return self._extended[agent.id]

    def signed(self, content: dict[str, Any]) -> dict[str, Any]:
        """Add a signature over the card as it is served."""
        if not self.key:
            return content
        signature = self.key.signature_of(content, self._settings.url)
        return {**content, "signatures": [*content["signatures"], signature]}

    def address(self, agent: Agent) -> str:
        """Return the URL of an agent, with a slash at its end: the default one's is the root."""
        return self._settings.url if self._is_default(agent) else f"{self._settings.url}agents/{agent.id}/"

    def _signed(self, card: pb.AgentCard) -> pb.AgentCard:
        return self.key.sign(card, self._settings.url) if self.key else card

    def _is_default(self, agent: Agent) -> bool:
        return agent.id == self.agents.default.id

    def _with_tools(self, agent: Agent) -> pb.AgentCard:
        card = self._card(agent, BOTH)
        card.skills.extend(
            pb.AgentSkill(
                id=f"{OF_A_TOOL}.{tool.name}", name=tool.name, description=tool.description, tags=[OF_A_TOOL]
            )
            for tool in agent.tools.values()
        )
        return card

    def _card(self, agent: Agent, versions: Sequence[str], *, grpc: bool = True) -> pb.AgentCard:
        return pb.AgentCard(
            name=agent.name,
            description=agent.description,
            version=agent.version or VERSION,
            supported_interfaces=self._interfaces(agent, versions, grpc=grpc),
            capabilities=pb.AgentCapabilities(
                streaming=True,
                push_notifications=self._settings.push,
                extended_agent_card=bool(self._settings.schemes),
                extensions=[
                    pb.AgentExtension(
                        uri=EVENTS_EXTENSION,
                        description="Every event of a task (tool calls, thoughts, usage, retries), as "
                        "metadata of status updates under this URI.",
                    ),
                    self._http_extension,
                ],
            ),
            security_schemes=self._settings.schemes,
            security_requirements=[
                pb.SecurityRequirement(schemes={name: pb.StringList()}) for name in self._settings.schemes
            ],
            default_input_modes=input_modes(agent),
            default_output_modes=output_modes(agent),
            skills=_skills(agent),
        )

    @property
    def _http_extension(self) -> pb.AgentExtension:
        params = Struct()
        params["base"] = urlsplit(self._settings.url).path.rstrip("/") + HTTP_BASE
        return pb.AgentExtension(
            uri=HTTP_EXTENSION,
            description="What A2A has no words for (approvals and more), as JSON over HTTP below the path "
            "`base` of this server.",
            params=params,
        )

    def _interfaces(self, agent: Agent, versions: Sequence[str], *, grpc: bool) -> list[pb.AgentInterface]:
        """Return the interfaces of an agent, preferred first: clients take the first that they support.

        A 0.3 client has no tenant to name an agent by: over gRPC it reaches the default one only.
        """
        address, is_default = self.address(agent), self._is_default(agent)
        interfaces: list[pb.AgentInterface] = []
        for version in versions:
            urls = {TransportProtocol.JSONRPC: address, TransportProtocol.HTTP_JSON: address.rstrip("/")}
            tenant = "" if is_default else agent.id
            if grpc and self._settings.grpc_url and (is_default or version == PROTOCOL_VERSION_1_0):
                urls[TransportProtocol.GRPC] = self._settings.grpc_url
            interfaces.extend(
                pb.AgentInterface(
                    url=url,
                    protocol_binding=binding.value,
                    protocol_version=version,
                    tenant=tenant if binding is TransportProtocol.GRPC else "",
                )
                for binding, url in urls.items()
            )
        return interfaces


def _skills(agent: Agent) -> list[pb.AgentSkill]:
    """Return the skills of the definition, or the agent itself as one."""
    if not agent.skills:
        return [pb.AgentSkill(id=agent.id, name=agent.name, description=agent.description, tags=[agent.id])]
    return [
        pb.AgentSkill(
            id=skill.id,
            name=skill.name,
            description=skill.description,
            tags=skill.tags or (skill.id,),
            examples=skill.examples,
            input_modes=skill.input_modes,
            output_modes=skill.output_modes,
        )
        for skill in agent.skills
    ]

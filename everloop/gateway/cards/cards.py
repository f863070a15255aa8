"""Agent cards: what an agent tells about itself (A2A 1.0 §4.4, §8)."""

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
from everloop.runtime.protocol.tasks import EVENTS_EXTENSION, HTTP_BASE, HTTP_EXTENSION
from everloop.version import __version__

# Which media types the card of an agent names. Pure.

TEXT = "text/plain"
JSON = "application/json"
BYTES = "application/octet-stream"
"""Any file: what the model cannot be given itself, tools can read."""

_CONCRETE = {"image/*": ("image/png", "image/jpeg", "image/gif", "image/webp")}
"""What OpenAI's models take for a range of types (their guide to images and vision)."""


def input_modes(agent: Agent) -> Sequence[str]:
    """Return media types, not ranges of them: A2A 1.0 §4.4.1 wants types, and clients compare them as such.

    Unless the agent names its own, what the model is given as it is comes before "any file", so that clients
    see what is best.
    """
    if agent.input_modes:
        return agent.input_modes
    taken = [mode for pattern in agent.model_takes for mode in _CONCRETE.get(pattern, (pattern,))]
    return list(dict.fromkeys([TEXT, JSON, *(mode for mode in taken if "*" not in mode), BYTES]))


def output_modes(agent: Agent) -> Sequence[str]:
    """Return the agent's own, or text, JSON, and any file that a tool may write."""
    return agent.output_modes or (TEXT, JSON, BYTES)


VERSION = __version__
"""The version in cards of agents that have none: Everloop's own, as in pyproject.toml."""

BOTH = (PROTOCOL_VERSION_1_0, PROTOCOL_VERSION_0_3)

OF_A_TOOL = "tool"
"""The tag of skills that are tools of the agent; their ids begin with it."""


@dataclass(frozen=True)
class CardSettings:
    """What a gateway offers with each of its agents.

    `url` is where clients reach it, with a slash at its end, `grpc_url` the same as `host:port`, empty where
    it does not speak gRPC. Any one of the `schemes` is enough to get in; none: everybody does.
    """

    url: str
    grpc_url: str = ""
    push: bool = False
    schemes: Mapping[str, pb.SecurityScheme] = field(default_factory=dict[str, pb.SecurityScheme])


class Cards:
    """The cards of the agents of a gateway, signed if there is a `key`."""

    def __init__(self, agents: AgentRegistry, settings: CardSettings, key: CardKey | None = None) -> None:
        self.agents = agents
        self.key = key
        self._settings = settings
        self._extended = {agent.id: self._signed(self._with_tools(agent)) for agent in agents}

    def merged(self, agent: Agent) -> pb.AgentCard:
        """Return the card that has the interfaces of A2A 0.3 too, which clients of 1.0 pass over."""
        return self._signed(self._card(agent, BOTH))

    def pure(self, agent: Agent) -> pb.AgentCard:
        """Return the card that knows of A2A 1.0 only."""
        return self._signed(self._card(agent, (PROTOCOL_VERSION_1_0,)))

    def over_http(self, agent: Agent, *, streaming: bool = True) -> pb.AgentCard:
        """Return the merged card without gRPC, whose address is no URL: some clients refuse such a card.

        Without `streaming` it is for those that print each piece of an answer, and then all of it.
        """
        card = self._card(agent, BOTH, grpc=False)
        card.capabilities.streaming = streaming
        return self._signed(card)

    def extended(self, agent: Agent) -> pb.AgentCard:
        """Return the card for those who authenticated: the merged one, with the agent's tools as skills.

        Raises:
            UnsupportedOperationError: nobody can authenticate here (A2A 1.0 §13.3: it has to be kept from
                those who have not).
        """
        if not self._settings.schemes:
            raise UnsupportedOperationError(
                "there is no extended card: this server does not ask who calls; read the public card"
            )
        return self._extended[agent.id]

    def signed(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return a card as it is served, with a signature over all of that beside those that it has."""
        if not self.key:
            return content
        signature = self.key.signature_of(content, self._settings.url)
        return {**content, "signatures": [*content["signatures"], signature]}

    def address(self, agent: Agent) -> str:
        """Return where an agent is served, with a slash at its end: the default one at the root."""
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
        """Return where the agent is reached, the best first: clients take the first that they can use.

        A 0.3 client has no tenant to name an agent by, so that over gRPC it reaches the default one only.
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
    """Return the skills that the definition names, or the agent as its own one."""
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

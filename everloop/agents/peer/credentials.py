"""What a call to a peer carries to show who asks."""

import inspect
from dataclasses import dataclass, field

from everloop.agents.peer.errors import PeerCredentialsError, PeerError
from everloop.agents.peer.plugin import Peer
from everloop.agents.questions import AuthRequired
from everloop.agents.tool_context import ToolContext

SHORTEST = 6
"""Characters; a shorter value would be found in texts that have nothing to do with it."""

_HIDDEN = "[secret]"


@dataclass(frozen=True)
class Credentials:
    """The headers of the requests of one call; names are in lower case, as gRPC wants them."""

    headers: dict[str, str] = field(repr=False)

    def hide(self, text: str) -> str:
        """Return what a peer says without the values of the headers: it may repeat what it was sent."""
        for value in sorted(self._values(), key=len, reverse=True):
            text = text.replace(value, _HIDDEN)
        return text

    def _values(self) -> set[str]:
        """Return the values, and what stands behind the scheme in one such as `Bearer …`."""
        whole = set(self.headers.values())
        return {
            value for value in whole | {value.rpartition(" ")[2] for value in whole} if len(value) >= SHORTEST
        }


async def read_credentials(peer: Peer, call: ToolContext) -> Credentials:
    """Return what the agent's author, and the user, let the call carry.

    Raises:
        PeerError: the author's function failed.
    """
    headers = {name.lower(): value for name, value in (await _headers(peer, call)).items()}
    token = await call.secret(peer.token) if peer.token else None
    if isinstance(token, str) and (bare := token.strip()):
        headers["authorization"] = f"Bearer {bare.removeprefix('Bearer ')}"
    return Credentials(headers)


def ask_for_token(peer: Peer, call: ToolContext, refusal: str) -> Exception:
    """Return what to raise when a peer refuses the credentials: a question to the user, or an error."""
    if not peer.token:
        return PeerCredentialsError(
            f"the agent at {peer.label} refuses the credentials of this agent ({refusal}); whoever runs this "
            "agent has to give others (headers= or token= of peer)"
        )
    again = any(answer.secret_name == peer.token for answer in call.answers)
    problem = "did not accept the token" if again else "wants to know who asks"
    return AuthRequired(f"The agent at {peer.label} {problem}. Please give a token for it.", peer.token)


async def _headers(peer: Peer, call: ToolContext) -> dict[str, str]:
    if not callable(peer.headers):
        return dict(peer.headers)
    try:
        made = peer.headers(call.auth)
        return dict(await made if inspect.isawaitable(made) else made)
    except Exception as error:  # noqa: BLE001 -- its message may hold what it is there to keep
        problem = f"the headers for the agent at {peer.label} could not be made ({type(error).__name__})"
        raise PeerError(problem) from None

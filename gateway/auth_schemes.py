"""Ways to prove who one is, and the authenticator that takes any of several.

Source: RFC 9110 §11 (challenges), RFC 6750 §3 (those of bearer tokens), A2A 1.0 §7.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from a2a.types import a2a_pb2 as pb

from everloop.gateway.callers import Caller
from everloop.gateway.guards import Authenticator
from everloop.gateway.refusals import UnauthenticatedError

REALM = "everloop"
"""What the challenges call the place that is guarded."""


class CredentialsError(Exception):
    """What the caller shows proves nothing. The client reads the text, which repeats nothing of it."""


class Scheme(ABC):
    """One way to prove who one is.

    `name` is what cards call it, and the `scheme` of its callers. `challenge_name` begins its challenges.
    `request` tells people what to send.
    """

    name: str
    challenge_name: str
    request: str

    @abstractmethod
    async def recognise(self, headers: Mapping[str, str], peer: str) -> Caller | None:
        """Return who calls, None if nothing of this scheme was sent.

        Raises:
            CredentialsError: what was sent is wrong, or holds no more.
            UnavailableNowError: a server that we have to ask does not answer.
        """

    @abstractmethod
    def security_scheme(self) -> pb.SecurityScheme:
        """Return what agent cards say of it."""

    @property
    def parameters(self) -> str:
        """What its challenges say besides the realm."""
        return ""


class AnyScheme(Authenticator):
    """Takes who proves it in any of several ways.

    The first scheme of which something was sent decides. What is wrong there is refused, whatever else was
    sent: a client whose token has expired does not turn into somebody else.
    """

    def __init__(self, schemes: Sequence[Scheme]) -> None:
        self._schemes = schemes

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        for scheme in self._schemes:
            try:
                caller = await scheme.recognise(headers, peer)
            except CredentialsError as error:
                raise self._refusal(str(error), scheme) from None
            if caller:
                return caller
        wanted = ", or ".join(scheme.request for scheme in self._schemes)
        raise self._refusal(f"nothing says who calls; send {wanted}")

    def security_schemes(self) -> Mapping[str, pb.SecurityScheme]:
        return {scheme.name: scheme.security_scheme() for scheme in self._schemes}

    def _refusal(self, text: str, wrong: Scheme | None = None) -> UnauthenticatedError:
        challenges = [_challenge(each, text if each is wrong else "") for each in self._schemes]
        return UnauthenticatedError(text, challenge=", ".join(challenges))


def _challenge(scheme: Scheme, error: str) -> str:
    """Return a challenge; `error` is why what was sent is refused, without quotes or backslashes."""
    known = f'{scheme.challenge_name} realm="{REALM}"{scheme.parameters}'
    return f'{known}, error="invalid_token", error_description="{error}"' if error else known

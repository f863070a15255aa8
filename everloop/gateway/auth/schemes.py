"""Authentication schemes, and an authenticator that accepts any of several.

Source: RFC 9110 §11 (challenges), RFC 6750 §3 (those of bearer tokens), A2A 1.0 §7.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from a2a.types import a2a_pb2 as pb

from everloop.gateway.context import Caller, problem_of_owner
from everloop.gateway.errors import UnauthenticatedError

REALM = "everloop"
"""The realm of challenges."""


class CredentialsError(Exception):
    """The credentials are invalid. The client receives the text, which repeats none of them."""


class Scheme(ABC):
    """One way to authenticate.

    `name` is the scheme's name in cards, and the `scheme` of its callers. `challenge_name` begins its
    challenges. `request` tells people what to send.
    """

    name: str
    challenge_name: str
    request: str

    @abstractmethod
    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller | None:
        """Return the caller, None without credentials of this scheme.

        Raises:
            CredentialsError: the credentials are invalid or expired.
            UnavailableNowError: a server needed for authentication does not answer.
        """

    @abstractmethod
    def security_scheme(self) -> pb.SecurityScheme:
        """Return the scheme as agent cards describe it."""

    @property
    def parameters(self) -> str:
        """Return the parameters of challenges besides the realm."""
        return ""


class Authenticator:
    """Authenticates callers by the headers (or gRPC metadata) of their calls, in any of several ways.

    The first scheme with credentials decides. Invalid ones are refused, whatever else was sent: a
    client whose token has expired must not become another caller. Without schemes every caller is
    anonymous.
    """

    def __init__(self, schemes: Sequence[Scheme] = ()) -> None:
        self._schemes = schemes

    @property
    def is_open(self) -> bool:
        """True if no authentication is required."""
        return not self.security_schemes()

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        """Return the caller. Header names are lower case; `peer` is the address of the connection.

        Raises:
            UnauthenticatedError: the credentials are missing or invalid; it carries the challenge.
            UnavailableNowError: a server needed for authentication does not answer.
        """
        if not self._schemes:
            return Caller()
        for scheme in self._schemes:
            try:
                caller = await scheme.authenticate(headers, peer)
            except CredentialsError as error:
                raise self._refusal(str(error), scheme) from None
            if caller:
                return caller
        requests = ", or ".join(scheme.request for scheme in self._schemes)
        raise self._refusal(f"nothing says who calls; send {requests}")

    def security_schemes(self) -> Mapping[str, pb.SecurityScheme]:
        """Return the schemes for agent cards, by name (A2A 1.0 §4.5); any one of them is enough."""
        return {scheme.name: scheme.security_scheme() for scheme in self._schemes}

    def _refusal(self, text: str, wrong: Scheme | None = None) -> UnauthenticatedError:
        challenges = [_challenge(each, text if each is wrong else "") for each in self._schemes]
        return UnauthenticatedError(text, challenge=", ".join(challenges))


def _challenge(scheme: Scheme, error: str) -> str:
    """Return a challenge; `error`: why the credentials are refused, without quotes or backslashes."""
    challenge = f'{scheme.challenge_name} realm="{REALM}"{scheme.parameters}'
    return f'{challenge}, error="invalid_token", error_description="{error}"' if error else challenge


# Callers whose certificate a proxy has verified (mutual TLS), which tells us the subject in a header.
#
# X-Client-Subject: CN=billing,O=Acme                            the subject, as nginx writes it
# X-Forwarded-Client-Cert: Hash=…;Subject="CN=billing";URI=…     Envoy's way
#
# Anybody can write such a header. It counts only where it comes from the address of a trusted proxy, which
# has to put its own in the place of what the client sent.

FORWARDED_CERTIFICATE = "x-forwarded-client-cert"

Network = IPv4Network | IPv6Network

_PAIR = re.compile(r'([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^;,"]*))(?:;|$)')


class ProxyCertificateScheme(Scheme):
    """Takes the certificate's subject as the owner, with every scope: certificates have none."""

    name = "mutualTLS"
    challenge_name = "MutualTLS"
    request = "a client certificate to the proxy of this server"

    def __init__(self, header: str, proxies: Sequence[Network]) -> None:
        self._header = header.lower()
        self._proxies = proxies

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller | None:
        sent = headers.get(self._header)
        if not sent or not self._is_proxy(peer):
            return None
        if self._header in getattr(headers, "repeated", ()):
            raise CredentialsError(
                "the header with the subject of the certificate came more than once; let the proxy replace "
                "what clients send"
            )
        subject = forwarded_subject(sent) if self._header == FORWARDED_CERTIFICATE else sent
        if problem := problem_of_owner(subject):
            raise CredentialsError(f"the subject of the certificate cannot be an owner: {problem}")
        return Caller(owner=subject, scheme=self.name, subject=subject)

    def security_scheme(self) -> pb.SecurityScheme:
        return pb.SecurityScheme(
            mtls_security_scheme=pb.MutualTlsSecurityScheme(
                description="A client certificate that the proxy of this server trusts."
            )
        )

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._proxies)


def forwarded_subject(value: str) -> str:
    """Return the subject of the only certificate in X-Forwarded-Client-Cert, or its URI, or nothing.

    Raises:
        CredentialsError: it lists several certificates, one of which the client may have written.
    """
    fields: dict[str, str] = {}
    position = 0
    while position < len(value):
        pair = _PAIR.match(value, position)
        if pair is None or pair[1].lower() in fields.keys() & {"subject", "uri"}:
            raise CredentialsError(
                "the proxy has to tell of one certificate; let it replace what clients send"
            )
        fields[pair[1].lower()] = pair[3] if pair[2] is None else re.sub(r"\\(.)", r"\1", pair[2])
        position = pair.end()
    return fields.get("subject") or fields.get("uri", "")

"""Callers whose certificate a proxy has verified (mutual TLS), which tells us the subject in a header.

    X-Client-Subject: CN=billing,O=Acme                            the subject, as nginx writes it
    X-Forwarded-Client-Cert: Hash=…;Subject="CN=billing";URI=…     Envoy's way

Anybody can write such a header. It counts only where it comes from the address of a trusted proxy, which has
to put its own in the place of what the client sent.
"""

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from a2a.types import a2a_pb2 as pb

from everloop.gateway.auth_schemes import CredentialsError, Scheme
from everloop.gateway.callers import Caller
from everloop.gateway.owner_names import flaw_of_owner

FORWARDED_CERTIFICATE = "x-forwarded-client-cert"

Network = IPv4Network | IPv6Network

_PAIR = re.compile(r'([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^;,"]*))(?:;|$)')


class ProxyCertificateScheme(Scheme):
    """Takes the subject's name for the owner. It has every scope: certificates tell of none."""

    name = "mutualTLS"
    challenge_name = "MutualTLS"
    request = "a client certificate to the proxy of this server"

    def __init__(self, header: str, proxies: Sequence[Network]) -> None:
        self._header = header.lower()
        self._proxies = proxies

    async def recognise(self, headers: Mapping[str, str], peer: str) -> Caller | None:
        sent = headers.get(self._header)
        if not sent or not self._is_proxy(peer):
            return None
        if self._header in getattr(headers, "repeated", ()):
            raise CredentialsError(
                "the header with the subject of the certificate came more than once; let the proxy replace "
                "what clients send"
            )
        subject = forwarded_subject(sent) if self._header == FORWARDED_CERTIFICATE else sent
        if flaw := flaw_of_owner(subject):
            raise CredentialsError(f"the subject of the certificate cannot be an owner: {flaw}")
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
        CredentialsError: it tells of several certificates, of which the client may have written one.
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

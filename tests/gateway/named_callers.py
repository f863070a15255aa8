"""Callers who are taken for whom they say they are."""

from collections.abc import Mapping

from a2a.types import a2a_pb2 as pb

from everloop.gateway.auth.access import Authenticator
from everloop.gateway.context import ANONYMOUS, Caller


class Named(Authenticator):
    """Reads the owner from the header `owner`."""

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        return Caller(owner=headers.get("owner", ANONYMOUS))

    def security_schemes(self) -> Mapping[str, pb.SecurityScheme]:
        return {}

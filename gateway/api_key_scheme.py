"""Callers who send an API key in the header X-API-Key."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import structlog
from a2a.types import a2a_pb2 as pb

from everloop.gateway.api_key_file import ApiKey, ApiKeyFileError, id_of, is_expired, read_keys
from everloop.gateway.auth_schemes import CredentialsError, Scheme
from everloop.gateway.callers import Caller

HEADER = "X-API-Key"

_log = structlog.get_logger()


class ApiKeyScheme(Scheme):
    """Knows the keys of a file, and looks at each call whether it was changed.

    A file that is broken or gone changes nothing: what it said last holds, and the error is logged once.
    """

    name = "apiKey"
    challenge_name = "ApiKey"
    request = f"an API key in the header {HEADER}"

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ApiKeyFileError: it cannot be used.
        """
        self._path = path
        self._version = _version_of(path)
        self._keys: Mapping[str, ApiKey] = read_keys(path)

    async def recognise(self, headers: Mapping[str, str], peer: str) -> Caller | None:
        sent = headers.get(HEADER.lower())
        if sent is None:
            return None
        self._reread_if_changed()
        key = self._keys.get(id_of(sent))
        if key is None or not key.matches(sent):
            raise CredentialsError("this server does not know the API key")
        if is_expired(key, datetime.now(UTC)):
            raise CredentialsError("the API key has expired")
        return Caller(owner=key.owner, scheme=self.name, subject=key.id, scopes=frozenset(key.scopes))

    def security_scheme(self) -> pb.SecurityScheme:
        return pb.SecurityScheme(
            api_key_security_scheme=pb.APIKeySecurityScheme(
                description="A key that the operator of this server gives out.",
                location="header",
                name=HEADER,
            )
        )

    @property
    def parameters(self) -> str:
        return f', header="{HEADER}"'

    def _reread_if_changed(self) -> None:
        version = _version_of(self._path)
        if version == self._version:
            return
        self._version = version  # before it is read: a later change is seen at the next call
        try:
            self._keys = read_keys(self._path)
        except ApiKeyFileError as error:
            _log.error("API keys cannot be read again; those known before hold", error=str(error))
        else:
            _log.info("API keys read again", keys=len(self._keys))


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with a file; None: there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino

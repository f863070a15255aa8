"""The file of API keys: one JSON object per line, with hashes in place of keys.

    {"id": "5f0c", "owner": "acme", "sha256": "9a", "scopes": ["tasks:read"], "expires": "2027-01-31T00:00Z"}

A key is `everloop_<id>_<secret>`. Its secret has 256 random bits, so a plain SHA-256 of the whole key
is enough. Slow hashes are made for passwords, and would cost time.
"""

import fcntl
import hashlib
import hmac
import os
import secrets
import shlex
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import structlog
from a2a.types import a2a_pb2 as pb
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from everloop.gateway.auth.schemes import CredentialsError, Scheme
from everloop.gateway.auth.scopes import problem_of_scope
from everloop.gateway.context import Caller, problem_of_owner
from everloop.runtime.environment import OURS, warn_of_readers

MARK = "everloop"
"""Prefix of our keys, for people and secret scanners."""

_ID_BYTES = 8
_SECRET_BYTES = 32


class ApiKeyFileError(Exception):
    """The file of API keys is invalid; the message names file, line and remedy."""


def _check_owner(name: str) -> str:
    if problem := problem_of_owner(name):
        raise ValueError(f"no owner can be called {name!r}: {problem}")
    return name


def _check_scope(scope: str) -> str:
    if problem := problem_of_scope(scope):
        raise ValueError(problem)
    return scope


class ApiKey(BaseModel):
    """One line of the file. `scopes` are those of `auth.scopes`. Without `expires` it never expires."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    id: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{1,64}$")]
    owner: Annotated[str, AfterValidator(_check_owner)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", repr=False)]
    scopes: tuple[Annotated[str, AfterValidator(_check_scope)], ...]
    expires: AwareDatetime | None = None

    def matches(self, key: str) -> bool:
        """Compare a key in constant time."""
        return hmac.compare_digest(_hash(key), self.sha256)


def new_key(owner: str, scopes: Sequence[str], expires: datetime | None) -> tuple[str, ApiKey]:
    """Return a new key, which is stored nowhere, and its line."""
    key_id = secrets.token_hex(_ID_BYTES)
    key = f"{MARK}_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    return key, ApiKey(id=key_id, owner=owner, sha256=_hash(key), scopes=tuple(scopes), expires=expires)


def id_of(key: str) -> str:
    """Return the id in a key, empty if it is not one of ours."""
    match key.split("_", 2):
        case [mark, key_id, _] if mark == MARK:
            return key_id
        case _:
            return ""


def read_keys(path: Path) -> dict[str, ApiKey]:
    """Read a file of keys, by id.

    Raises:
        ApiKeyFileError: it cannot be read, or a line is invalid.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        warn_of_readers(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ApiKeyFileError(
            f"cannot read the API keys in {path}: {reason}; make it with: "
            f"everloop keys add OWNER --file {shlex.quote(str(path))}"
        ) from None
    keys: dict[str, ApiKey] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            key = _read_line(line, f"{path}, line {number}")
            if key.id in keys:
                raise ApiKeyFileError(
                    f"{path}, line {number}: a line before has the id {key.id!r} too; remove one"
                )
            keys[key.id] = key
    return keys


def add_key(path: Path, key: ApiKey) -> None:
    """Append a key, atomically; a missing file is created.

    Raises:
        ApiKeyFileError: the file is invalid, or cannot be written.
    """
    with _changing(path) as keys:
        keys[key.id] = key


def remove_key(path: Path, key_id: str) -> None:
    """Remove a key.

    Raises:
        ApiKeyFileError: the key is missing, or the file is invalid or cannot be written.
    """
    with _changing(path) as keys:
        if keys.pop(key_id, None) is None:
            raise ApiKeyFileError(f"{path} has no key of the id {key_id!r}; see: everloop keys list")


@contextmanager
def _changing(path: Path) -> Generator[dict[str, ApiKey]]:
    """Yield the keys, then replace the file; changes of one machine are serialized."""
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # until it is closed
            keys = read_keys(path) if path.exists() else {}
            yield keys
            _replace(path, keys)
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ApiKeyFileError(
            f"cannot write the API keys to {path}: {error.strerror}; correct that"
        ) from None


def _replace(path: Path, keys: dict[str, ApiKey]) -> None:
    """Replace the file atomically, with its old permissions; a new file is readable for its owner only."""
    target = path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(key.model_dump_json(exclude_none=True) + "\n" for key in keys.values())
            file.flush()
            if target.exists():
                os.fchmod(handle, target.stat().st_mode & 0o777)
            os.fsync(handle)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read_line(line: str, where: str) -> ApiKey:
    try:
        return ApiKey.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(each) for each in problem["loc"])
        text = problem["msg"].removeprefix(OURS)
        raise ApiKeyFileError(f"{where}: {field or 'the line'}: {text}; correct it") from None


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def is_expired(key: ApiKey, now: datetime | None = None) -> bool:
    return key.expires is not None and key.expires <= (now or datetime.now(UTC))


# Callers who send an API key in the header X-API-Key.

HEADER = "X-API-Key"

_log = structlog.get_logger()


class ApiKeyScheme(Scheme):
    """Authenticates keys of a file, and rereads it when it has changed.

    A file that is invalid or missing later on changes nothing: the last keys stay valid, and the error
    is logged once.
    """

    name = "apiKey"
    challenge_name = "ApiKey"
    request = f"an API key in the header {HEADER}"

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ApiKeyFileError: it is invalid.
        """
        self._path = path
        self._version = _version_of(path)
        self._keys: Mapping[str, ApiKey] = read_keys(path)

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller | None:
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
    """Return values that change with the file; None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino

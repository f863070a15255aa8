"""Which gateway a command talks to, and what it says who calls: profiles in a file of the user's.

default = "work"

[profiles.work]
url = "https://agents.example.com"
agent = "desk"
api_key = "…"
"""

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, model_validator

from everloop.cli.output import CommandError, misused, print_notice
from everloop.cli.server_commands import LOOPBACK, ports_of_stack

if TYPE_CHECKING:
    from everloop.client import Client

FILE = "profiles.toml"
DEFAULT_URL = "http://127.0.0.1:8080"
OF_FILE = "the profile "
"""Prefix of the origin of a profile of the file."""

NO_SECRET = SecretStr("")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Profile(BaseModel):
    """A gateway or another A2A server, and the credentials. Paths are relative to the file's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str
    agent: str = ""
    api_key: SecretStr = NO_SECRET
    token: SecretStr = NO_SECRET
    token_file: Path | None = None
    """Read for each request: another program keeps it up to date."""
    cert: Path | None = None
    cert_key: Path | None = None
    ca: Path | None = None
    hosts: tuple[str, ...] = ()
    """Other servers that may get the credentials, if the card names them."""

    @model_validator(mode="after")
    def _check_pairs(self) -> "Profile":
        if (self.cert is None) != (self.cert_key is None):
            raise ValueError("cert and cert_key go together; give both")
        return self

    @property
    def auth(self) -> str:
        """Description of the credentials, without secrets."""
        ways = {
            "API key": self.api_key.get_secret_value(),
            "token": self.token.get_secret_value() or self.token_file,
            "client certificate": self.cert,
        }
        return ", ".join(name for name, given in ways.items() if given)

    def client(self, agent: str = "") -> "Client":
        """Return a client of an agent; empty: the agent of the profile.

        Raises:
            ClientError: the address is invalid, or a certificate cannot be read.
        """
        from everloop.client import Client

        return Client(
            self.url,
            agent=agent or self.agent or None,
            api_key=self.api_key.get_secret_value(),
            token=self._token_of_file if self.token_file else self.token.get_secret_value(),
            cert=(self.cert, self.cert_key) if self.cert and self.cert_key else None,
            ca=self.ca,
            hosts=self.hosts,
        )

    def _token_of_file(self) -> str:
        from everloop.client import InvalidError

        try:
            return (self.token_file or Path()).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise InvalidError(f"the token in {self.token_file} cannot be read") from None


class Profiles(BaseModel):
    """The file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    default: str = ""
    profiles: dict[str, Profile] = {}


def choose_profile(requested: str) -> tuple[str, Profile]:
    """Return the effective profile and its origin.

    `requested` is a name in the file, or an address. Without one it is the stack that runs in this
    directory, the default of the file, or a gateway of this machine.

    Raises:
        CommandError: the profile does not exist, or the file is invalid.
    """
    if "://" in requested:
        return "its address", _of_environment(requested)
    stored = read_profiles()
    if requested:
        if requested not in stored.profiles:
            names = ", ".join(stored.profiles) or "none"
            raise misused(
                f"there is no profile {requested!r} in {profiles_file()} (there are: {names}); an "
                "address begins with http:// or https://"
            )
        return f"{OF_FILE}{requested}", stored.profiles[requested]
    if ports := ports_of_stack("gateway"):
        return "the stack of this directory", _of_environment(f"http://{LOOPBACK}:{ports['gateway']}")
    if stored.default:
        return f"{OF_FILE}{stored.default}", stored.profiles[stored.default]
    return "no profile", _of_environment(DEFAULT_URL)


def _of_environment(url: str) -> Profile:
    """Return a profile with the secrets of the environment; profiles of the file have their own."""
    key, token = (SecretStr(os.environ.get(name, "")) for name in ("EVERLOOP_API_KEY", "EVERLOOP_TOKEN"))
    return Profile(url=url, api_key=key, token=token)


# The file.


def profiles_file() -> Path:
    """Return the path of the profiles."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "everloop" / FILE


def read_profiles() -> Profiles:
    """Read the file; empty if it is missing. A file with secrets that is readable by others is made private.

    Raises:
        CommandError: it cannot be read.
    """
    file = profiles_file()
    try:
        stored = Profiles.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        found = re.search(r"line \d+, column \d+", str(error))  # without the content of the line
        place = f"see {found[0]}" if found else "it is not in UTF-8, or ends too early"
        raise CommandError(f"{file} is no TOML: {place}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise CommandError(f"{file}: {place}: {problem['msg']}; docs/command-line.md shows one") from None
    if stored.default and stored.default not in stored.profiles:
        raise CommandError(f"{file}: default: there is no profile {stored.default!r}; correct it")
    _close(file, stored)
    located = {name: _at(file.parent, profile) for name, profile in stored.profiles.items()}
    return Profiles(default=stored.default, profiles=located)


def _close(file: Path, stored: Profiles) -> None:
    has_secret = any(
        one.api_key.get_secret_value() or one.token.get_secret_value() for one in stored.profiles.values()
    )
    if has_secret and stat.S_IMODE(file.stat().st_mode) & 0o077:
        file.chmod(0o600)
        print_notice(f"others could read {file}, which holds secrets; it is closed to them now (mode 0600)")


def _at(folder: Path, profile: Profile) -> Profile:
    names = ("token_file", "cert", "cert_key", "ca")
    given = {name: path for name in names if (path := getattr(profile, name))}
    return profile.model_copy(update={name: folder / path.expanduser() for name, path in given.items()})


def write_profiles(profiles: Profiles) -> None:
    """Write the file atomically, readable by its user only.

    Raises:
        CommandError: it cannot be written.
    """
    file = profiles_file()
    draft = file.with_name(f".{FILE}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.touch(mode=0o600)
        draft.write_text(_toml(profiles), encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None


def _toml(profiles: Profiles) -> str:
    lines = [f"default = {_quoted(profiles.default)}"] if profiles.default else []
    for name, profile in profiles.profiles.items():
        fields = profile.model_dump(exclude_defaults=True)
        lines += ["", f"[profiles.{name}]", *(f"{key} = {_value(value)}" for key, value in fields.items())]
    return "\n".join([*lines, ""]).lstrip("\n")


def _value(value: Any) -> str:  # noqa: ANN401 -- of any field
    if isinstance(value, SecretStr):
        return _quoted(value.get_secret_value())
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, cast('tuple[str, ...]', value)))}]"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """Return a basic string of TOML, which needs the escapes of JSON, and one for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def check_profile_name(name: str) -> str:
    """Return a valid profile name; one with :// would be an address.

    Raises:
        CommandError: the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise misused(f"no profile can be called {name!r}; give up to 64 letters, digits, '-' and '_'")
    return name

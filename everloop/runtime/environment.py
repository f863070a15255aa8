"""Read settings from the environment, explain invalid ones, and prepare the process (files, secrets)."""

import ctypes
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from pydantic import BeforeValidator, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from everloop.runtime.setting_names import SETTINGS

PREFIX = "EVERLOOP_"
"""Prefix of Everloop's variables; fields of settings may name another variable."""


class Settings(BaseSettings):
    """Base class of settings of a process: one field per variable, by name or by alias.

    An empty variable counts as unset. `explain` names the invalid variable, so the errors of validators
    need not; no error shows a value.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(word for each in value.split(",") if (word := each.strip()))


WORDS = BeforeValidator(_words)
"""Marks, beside pydantic's `NoDecode`, a list whose variable is separated by commas."""


def report_unknown(process: str) -> None:
    """Report on stderr the variables that look like settings but are unknown, one line each."""
    for problem in unknown_settings(os.environ):
        sys.stderr.write(f"{process}: {problem}\n")


def unknown_settings(variables: Iterable[str]) -> list[str]:
    """Return the problems of unknown variables that have the prefix of settings."""
    ours = {name.upper() for name in variables if name.upper().startswith(PREFIX)}
    return [_problem(name) for name in sorted(ours) if name.removeprefix(PREFIX) not in SETTINGS]


def _problem(name: str) -> str:
    near = get_close_matches(name.removeprefix(PREFIX), sorted(SETTINGS), n=1)
    meant = f"did you mean {PREFIX}{near[0]}?" if near else "docs/settings.md lists them"
    return f"{name} is set, but no setting is called so: it changes nothing; {meant}"


OURS = "Value error, "
"""Prefix that pydantic puts before the message of a ValueError of a validator."""


def explain(error: ValidationError) -> str:
    """Return one line that names each wrong variable and what is expected of it, without the values.

    `error` was raised by `Settings` whose fields have the prefix EVERLOOP_, or an alias in capitals.
    """
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(_line(str(problem["loc"][0]), problem["msg"]) for problem in problems)


def _line(field: str, problem: str) -> str:
    variable, text = field if field.isupper() else PREFIX + field.upper(), problem.removeprefix(OURS)
    return text if variable in text else f"{variable}: {text}"


class StartError(Exception):
    """A process cannot start with its configuration; the message is one line with the change to make."""


_PROXIES = {"http_proxy", "https_proxy", "all_proxy"}
_PROXY_SCHEMES = {"http", "https", "socks5", "socks5h"}


def check_environment() -> None:
    """Check that libraries can use their variables of the environment: they fail late and name no variable.

    Raises:
        StartError: they cannot. Values that may hold a password are not shown.
    """
    for name, value in os.environ.items():
        if name.startswith(PREFIX) and not is_utf8(value):
            raise StartError(f"{name} is not in UTF-8; write it in UTF-8")
        if name.lower() in _PROXIES and value and not _is_proxy(value):
            raise StartError(
                f"{name.upper()} is no address of a proxy; expected http://, https:// or socks5:// with a "
                "host and a port; correct or unset it"
            )
    if certificates := os.environ.get("SSL_CERT_FILE"):
        import ssl  # noqa: PLC0415 -- only for custom certificates

        try:
            ssl.create_default_context(cafile=certificates)
        except OSError as error:  # of TLS, too
            raise StartError(
                f"SSL_CERT_FILE names {certificates}, which cannot be used ({error.strerror or error}); "
                "correct or unset it"
            ) from None


def _is_proxy(address: str) -> bool:
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        return parts.scheme in _PROXY_SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port
        return False


def is_utf8(text: str) -> bool:
    """Return whether a text of the environment was UTF-8: Python puts surrogates in place of other bytes."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


# Protection of secrets from other processes of the same machine.

_PR_SET_DUMPABLE = 4
"""prctl(2)."""

_log = structlog.get_logger()


def hide_environment() -> None:
    """Prevent other processes of this user from reading the environment and memory of this one.

    Linux only; it also disables core dumps. Root can still read them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def warn_of_readers(path: Path) -> None:
    """Log a warning if all users of this machine can read a file of secrets."""
    if path.stat().st_mode & stat.S_IROTH:
        _log.warning("everybody on this machine can read a file of secrets", file=str(path))


MOST_FILES = 65_536
OPEN_MAX = 10_240
"""Limit that macOS enforces where it reports no limit (setrlimit(2))."""


def allow_files() -> int:
    """Raise the limit of open files and connections of this process, and return it.

    Shells allow 1,024, those of macOS 256, and more on request: `MOST_FILES` at most, here.
    """
    import resource  # noqa: PLC0415 -- not on every system

    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = OPEN_MAX if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
    if allowed != resource.RLIM_INFINITY and allowed < target:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, most))
            allowed = target
    return MOST_FILES if allowed == resource.RLIM_INFINITY else allowed

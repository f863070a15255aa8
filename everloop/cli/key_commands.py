"""`everloop keys`: create, list and revoke API keys. Gateways see a change at the next call."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everloop.cli.output import (
    AsJson,
    misused,
    option,
    print_json,
    print_line,
    print_notice,
    print_table,
    reported,
)
from everloop.cli.server_commands import use_env

if TYPE_CHECKING:
    from everloop.gateway.auth.api_keys import ApiKey

HEAD = ("ID", "OWNER", "SCOPES", "EXPIRES")
MAX_DAYS = 36_500

app = typer.Typer(
    no_args_is_help=True,
    help="Create, list and remove API keys.",
    epilog="Gateways see a change at the next call.",
)

File = Annotated[
    Path | None,
    typer.Option("--file", help="The file of keys (default: EVERLOOP_API_KEYS_FILE).", dir_okay=False),
]


@app.command()
def add(
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Owner of the key's tasks.")],
    scopes: Annotated[
        str, option("SCOPE[,SCOPE…]", "What it is good for; docs/operation/security.md lists them.")
    ] = "tasks:read,tasks:write",
    days: Annotated[int | None, option("N", "How long it holds (default: for ever).", most=MAX_DAYS)] = None,
    file: File = None,
) -> None:
    """Make a key, print it once, and keep its hash."""
    from everloop.gateway.auth.api_keys import ApiKeyFileError, add_key, new_key
    from everloop.gateway.context import problem_of_owner

    if problem := problem_of_owner(owner):
        raise misused(f"no owner can be called {owner!r}: {problem}; give another OWNER")
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    with reported(ApiKeyFileError):
        key, line = new_key(owner, _scopes(scopes), expires)
        add_key(_path(file), line)
    print_notice(f"key {line.id} of {owner!r}; it is shown this once and kept nowhere:")
    print_line(key)


@app.command(name="list")
def list_(file: File = None, *, as_json: AsJson = False) -> None:
    """Show the keys by id; the keys themselves are not known."""
    from everloop.gateway.auth.api_keys import ApiKeyFileError, read_keys

    with reported(ApiKeyFileError):
        keys = read_keys(_path(file)).values()
    if as_json:
        print_json([_data(key) for key in keys])
    elif keys:
        print_table(HEAD, [(key.id, key.owner, ",".join(key.scopes), _until(key)) for key in keys])
    else:
        print_notice("there are no keys; `everloop keys add OWNER` makes one")


@app.command()
def remove(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")], file: File = None
) -> None:
    """Revoke a key: calls with it are refused from now on."""
    from everloop.gateway.auth.api_keys import ApiKeyFileError, remove_key

    with reported(ApiKeyFileError):
        remove_key(_path(file), key_id)
    print_line(f"removed {key_id}")


def _path(file: Path | None) -> Path:
    from everloop.gateway.auth.auth_settings import ApiKeySettings

    use_env()
    if path := file or ApiKeySettings().api_keys_file:
        return path
    raise misused("which file of keys? Give --file, or set EVERLOOP_API_KEYS_FILE")


def _scopes(words: str) -> tuple[str, ...]:
    from everloop.gateway.auth.scopes import problem_of_scope

    scopes = tuple(dict.fromkeys(word.strip() for word in words.split(",")))
    for scope in scopes:
        if problem := problem_of_scope(scope):
            raise misused(f"--scopes: {problem}")
    return scopes


def _until(key: "ApiKey") -> str:
    from everloop.gateway.auth.api_keys import is_expired

    if key.expires is None:
        return "never"
    return "has expired" if is_expired(key) else key.expires.isoformat()


def _data(key: "ApiKey") -> dict[str, object]:
    from everloop.gateway.auth.api_keys import is_expired

    return {
        **key.model_dump(mode="json", include={"id", "owner", "scopes", "expires"}),
        "is_expired": is_expired(key),
    }

"""Make, list and remove API keys: `python -m gateway.api_keys`. Gateways see a change at the next call."""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.api_key_file import ApiKeyFileError, add_key, is_expired, new_key, read_keys, remove_key
from gateway.auth_settings import ApiKeySettings
from gateway.owner_names import flaw_of_owner
from gateway.scopes import READ, WRITE, flaw_of_scope

MAX_DAYS = 36_500


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; what is wrong is one line."""
    asked = _parser().parse_args(arguments)
    path: Path | None = asked.file or ApiKeySettings().api_keys_file
    if path is None:
        return _fail("which file? Give --file, or set EVERLOOP_API_KEYS_FILE")
    try:
        match asked.command:
            case "add":
                _add(path, asked.owner, asked.scopes, asked.days)
            case "remove":
                remove_key(path, asked.id)
            case _:
                _list(path)
    except ApiKeyFileError as error:
        return _fail(str(error))
    return 0


def _add(path: Path, owner: str, scopes: Sequence[str], days: int | None) -> None:
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    key, line = new_key(owner, scopes, expires)
    add_key(path, line)
    sys.stderr.write(f"key {line.id} of {owner!r}; it is shown this once and kept nowhere:\n")
    sys.stdout.write(f"{key}\n")


def _list(path: Path) -> None:
    for key in read_keys(path).values():
        until = f"expires {key.expires.isoformat()}" if key.expires else "does not expire"
        state = "has expired" if is_expired(key, datetime.now(UTC)) else until
        sys.stdout.write(f"{key.id}  {key.owner}  {','.join(key.scopes)}  {state}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gateway.api_keys", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, help="default: EVERLOOP_API_KEYS_FILE")
    add = commands.add_parser("add", parents=[shared], help="make a key, print it once, and keep its hash")
    add.add_argument("owner", type=_owner, help="whose tasks its holder sees")
    add.add_argument("--scopes", type=_scopes, default=(READ, WRITE), help=f"default: {READ},{WRITE}")
    add.add_argument("--days", type=_days, help="how long it holds; default: for ever")
    commands.add_parser(
        "list", parents=[shared], help="show the keys by id; the keys themselves are not known"
    )
    remove = commands.add_parser("remove", parents=[shared], help="make a key good for nothing")
    remove.add_argument("id", help="as `list` shows it")
    return parser


def _owner(word: str) -> str:
    if flaw := flaw_of_owner(word):
        raise argparse.ArgumentTypeError(f"nobody can be called {word!r}: {flaw}")
    return word


def _scopes(words: str) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(word.strip() for word in words.split(",")))
    for scope in scopes:
        if flaw := flaw_of_scope(scope):
            raise argparse.ArgumentTypeError(flaw)
    return scopes


def _days(word: str) -> int:
    if not (word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_DAYS):
        raise argparse.ArgumentTypeError(f"expected whole days, 1 to {MAX_DAYS}")
    return int(word)


def _fail(text: str) -> int:
    sys.stderr.write(f"api_keys: {text}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

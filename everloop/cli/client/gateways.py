"""`everloop agents` and `everloop profiles`: the available agents, and the credentials for them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from everloop.cli.client.gateway_calls import ProfileName, print_found, run_with_client
from everloop.cli.output import (
    NOTHING,
    AsJson,
    CommandError,
    misused,
    option,
    print_json,
    print_line,
    print_notice,
    print_table,
)

if TYPE_CHECKING:
    from pydantic import JsonValue

    from everloop.client import AgentInfo

HEAD = ("AGENT", "NAME", "DESCRIPTION")

Auth = Literal["api-key", "token", "none"]

commands = typer.Typer()
app = typer.Typer(
    no_args_is_help=True,
    help="Manage profiles: addresses of gateways, with credentials.",
    epilog="They are in a file that only you can read: see docs/command-line.md.",
)


@commands.command(rich_help_panel="Talk to agents")
def agents(*, as_json: AsJson = False, profile: ProfileName = "") -> None:
    """List the agents of a gateway."""
    found = run_with_client(lambda client: client.agents(), profile)
    print_found(found, HEAD, _row, "there are no agents", as_json=as_json)


def _row(one: "AgentInfo") -> tuple[str, ...]:
    return one.id or NOTHING, one.name, one.description or NOTHING


@app.command(name="list")
def list_(*, as_json: AsJson = False) -> None:
    """List the profiles, without their secrets, and the gateway in use here."""
    from everloop.cli.client.profiles import choose_profile, profiles_file, read_profiles

    stored = read_profiles()
    origin, here = choose_profile("")
    if as_json:
        listed: list[JsonValue] = [
            {
                "name": name,
                "url": one.url,
                "agent": one.agent,
                "auth": one.auth,
                "is_default": name == stored.default,
            }
            for name, one in stored.profiles.items()
        ]
        print_json(
            {"file": str(profiles_file()), "profiles": listed, "here": {"url": here.url, "from": origin}}
        )
        return
    rows = [
        (name, one.url, one.agent or NOTHING, one.auth or NOTHING, "yes" if name == stored.default else "")
        for name, one in stored.profiles.items()
    ]
    if rows:
        print_table(("PROFILE", "URL", "AGENT", "AUTH", "DEFAULT"), rows)
    else:
        print_notice("there are no profiles; `everloop profiles add NAME URL` makes one")
    print_notice(f"commands here ask {here.url} ({origin})")


@app.command(epilog="""    everloop profiles add work https://agents.example.com --auth api-key --default""")
def add(  # noqa: PLR0913 -- each is an option
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of a gateway, an agent, or an agent card.")],
    *,
    agent: Annotated[str, option("ID", "Default agent.")] = "",
    auth: Annotated[
        Auth, option("KIND", "api-key or token: read from a hidden prompt, or from a pipe.")
    ] = "none",
    token_file: Annotated[
        Path | None, option("FILE", "Or a file with a token, read for each command.")
    ] = None,
    cert: Annotated[Path | None, option("FILE", "A client certificate, in PEM.")] = None,
    cert_key: Annotated[Path | None, option("FILE", "Its key.")] = None,
    ca: Annotated[Path | None, option("FILE", "The certificates to trust (default: the system's).")] = None,
    default: Annotated[bool, typer.Option("--default", help="Use this profile by default.")] = False,
) -> None:
    """Make a profile, or another one of the same name."""
    from pydantic import SecretStr

    from everloop.cli.client import profiles
    from everloop.client import ClientError

    stored = profiles.read_profiles()
    try:
        profile = profiles.Profile(
            url=url,
            agent=agent,
            token_file=_absolute(token_file),
            cert=_absolute(cert),
            cert_key=_absolute(cert_key),
            ca=_absolute(ca),
        )
        profile.client()
    except ValueError:
        raise misused("--cert and --cert-key go together; give both") from None
    except ClientError as error:
        raise CommandError(str(error)) from error
    if auth != "none":
        secret = SecretStr(_secret("API key" if auth == "api-key" else "token"))
        profile = profile.model_copy(update={auth.replace("-", "_"): secret})
    others = {**stored.profiles, profiles.check_profile_name(name): profile}
    changed = profiles.Profiles(default=name if default else stored.default, profiles=others)
    profiles.write_profiles(changed)
    print_line(f"{name} is in {profiles.profiles_file()}")


@app.command()
def remove(name: Annotated[str, typer.Argument(metavar="NAME", help="As `list` shows it.")]) -> None:
    """Delete a profile and its secrets."""
    from everloop.cli.client.profiles import Profiles, read_profiles, write_profiles

    stored = read_profiles()
    if name not in stored.profiles:
        raise CommandError(f"there is no profile {name!r}; `everloop profiles list` shows them")
    others = {key: profile for key, profile in stored.profiles.items() if key != name}
    write_profiles(Profiles(default="" if stored.default == name else stored.default, profiles=others))
    print_line(f"removed {name}")


def _absolute(path: Path | None) -> Path | None:
    return path.expanduser().absolute() if path else None


def _secret(what: str) -> str:
    """Return a secret that is typed without echo, or comes from a pipe.

    Raises:
        CommandError: there is none.
    """
    if sys.stdin.isatty():
        secret = typer.prompt(f"The {what} (it is not shown)", hide_input=True, err=True)
    else:
        secret = sys.stdin.readline()
    if not (secret := secret.strip()) or not secret.isprintable():
        raise misused(f"that is no {what}: it is empty, or has letters that cannot be sent")
    return secret

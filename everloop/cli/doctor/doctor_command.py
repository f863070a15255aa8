"""`everloop doctor`."""

import asyncio
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from everloop.cli.client.gateway_calls import Gateway, ProfileName
from everloop.cli.output import FAILED, AsJson, print_json, print_line, print_notice, reported, styled
from everloop.cli.server_commands import are_servers_named, use_local_stack

if TYPE_CHECKING:
    from everloop.cli.doctor.findings import Finding

HERE = frozenset({"127.0.0.1", "localhost", "::1"})

MARKS = {"ok": ("✓", "green"), "problem": ("✗", "bold red"), "note": ("·", "yellow")}


commands = typer.Typer()


@commands.command(
    rich_help_panel="Operate",
    epilog="Servers are looked at where settings or a stack in this directory say where they are, or the "
    "gateway is one of this machine. Exit code: 1 if there is a problem.",
)
def doctor(*, as_json: AsJson = False, profile: ProfileName = "") -> None:
    """Look for what keeps an Everloop from working, and say what to do.

    Versions, settings, Temporal with its namespace and search attributes, workers, Redis, blobs, the model,
    clocks, ports, and the gateway.
    """
    from everloop.cli.client.profiles import choose_profile

    origin, chosen = choose_profile(profile)
    gateway = Gateway(chosen, origin)
    noted = use_local_stack(tells=False)
    # Whether to check the servers behind the gateway from here.
    is_served_here = are_servers_named() or (urlsplit(chosen.url).hostname or "") in HERE
    with reported():
        findings = asyncio.run(_examine(gateway, noted, is_served_here=is_served_here))
    problems = sum(each.state == "problem" for each in findings)
    if as_json:
        said = [{"check": one.name, "state": one.state, "says": one.says} for one in findings]
        print_json({"ok": not problems, "findings": said})
    else:
        for each in findings:
            _print(each)
        if problems:
            print_notice(f"{problems} problem{'s' if problems > 1 else ''}")
    raise typer.Exit(FAILED if problems else 0)


async def _examine(gateway: Gateway, noted: Collection[str], *, is_served_here: bool) -> "list[Finding]":
    from everloop.cli.doctor import machine, server_checks
    from everloop.cli.doctor.findings import looked, note

    checks = [
        looked("versions", machine.look_at_versions),
        looked("settings", lambda: machine.look_at_settings(noted)),
    ]
    if is_served_here:
        checks += [
            looked("temporal", server_checks.look_at_temporal),
            looked("redis", server_checks.look_at_stores),
            looked("model", machine.look_at_model),
            looked("ports", machine.look_at_ports),
        ]
    checks.append(looked("gateway", lambda: machine.look_at_gateway(gateway)))
    found = [each for several in await asyncio.gather(*checks) for each in several]
    if not is_served_here:
        elsewhere = "not looked at: nothing here says where they are (TEMPORAL_ADDRESS, EVERLOOP_REDIS_URL)"
        found.insert(-1, note("servers", elsewhere))
    return found


def _print(finding: "Finding") -> None:
    """Print a finding; on a narrow terminal its text continues below."""
    mark, style = MARKS[finding.state]
    if not sys.stdout.isatty():
        print_line(f"{finding.state:<8} {finding.name:<18} {finding.says}")
        return
    from rich.console import Console

    console = Console(highlight=False)
    head, says = f"{mark} {finding.name}", styled(finding.says)
    indent = 22 if console.width >= 80 else 4  # noqa: PLR2004 -- as wide as terminals are as a rule
    lines = says.wrap(console, max(console.width - indent, 10))
    if indent > len(head):
        console.print(styled(f"{head:<{indent}}", style), lines[0], sep="")
        lines = lines[1:]
    else:
        console.print(styled(head, style))
    for line in lines:
        console.print(" " * indent, line, sep="")

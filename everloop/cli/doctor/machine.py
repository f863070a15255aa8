"""Checks of this machine, of the model, and of the gateway of commands."""

import asyncio
import os
import platform
import socket
from collections.abc import Collection
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from openai import APIConnectionError, APIStatusError, AuthenticationError, PermissionDeniedError

from everloop.cli.client.gateway_calls import LOOK_CLOSER, Gateway, refused
from everloop.cli.doctor.findings import Finding, note, ok, problem
from everloop.cli.doctor.server_checks import clock_finding
from everloop.cli.output import CommandError
from everloop.cli.server_commands import ENV, HOW_TO_INSTALL, LOOPBACK, check_local_servers
from everloop.client import ClientError
from everloop.models.catalogue import Catalogue, ModelsSettings, Provider
from everloop.models.provider_client import ProviderClient
from everloop.runtime.environment import StartError, check_environment, unknown_settings
from everloop.version import __version__

LIBRARIES = ("a2a-sdk", "temporalio", "redis", "mcp")

DEFAULT_PORT = 8080

_TIMEOUT = 5.0


async def look_at_versions() -> list[Finding]:
    """Check the installed versions."""
    libraries = ", ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    found = [ok("versions", f"everloop {__version__}, Python {platform.python_version()}, {libraries}")]
    try:
        check_local_servers()
    except CommandError:
        missing = f"the servers of `everloop up` and `dev` are not there; {HOW_TO_INSTALL}"
        found.append(note("versions", missing))
    return found


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


async def look_at_settings(noted: Collection[str] = ()) -> list[Finding]:
    """Check for variables that look like settings but are unknown; `noted` ones come from `.env`."""
    names = {name for name in os.environ if name.startswith("EVERLOOP_")}
    wrong = [problem("settings", each) for each in unknown_settings(names)]
    try:
        check_environment()
    except StartError as error:
        wrong.append(problem("settings", str(error)))
    here = len(names.intersection(noted))
    of_file = f" ({here} of them by {ENV})" if here else ""
    summary = f"{len(names)} EVERLOOP_ variables are set{of_file}, and all are known"
    return wrong or [ok("settings", summary if names else "no EVERLOOP_ variable is set")]


async def look_at_model() -> list[Finding]:
    """Check that the default model is usable, without calling it."""
    settings = ModelsSettings()
    try:
        catalogue = Catalogue.load(settings.file, settings.model, os.environ)
        if not settings.model:
            return [
                note(
                    "model",
                    "EVERLOOP_MODEL is not set: agents have to name theirs; `everloop up` and `dev` have a "
                    "scripted one answer. docs/models.md tells how to set one",
                )
            ]
        chosen = catalogue.choose(None, "doctor")
    except StartError as error:
        return [problem("model", str(error).replace("agent 'doctor' asks", "EVERLOOP_MODEL is"))]
    reason = await _why_unusable(chosen.provider)
    price = "" if chosen.price else "; its price is not known, so no cost is counted"
    if reason:
        return [problem("model", f"{chosen.name}: {reason}")]
    return [ok("model", f"{chosen.name} at {_host(chosen.provider.base_url) or chosen.provider.name}{price}")]


async def _why_unusable(provider: Provider) -> str:
    """Return why a provider is unusable, as far as its list of models shows: that is free of charge."""
    if not provider.base_url:
        return ""
    try:
        async with ProviderClient(provider) as client:
            await client.models.with_raw_response.list(timeout=_TIMEOUT)
    except (AuthenticationError, PermissionDeniedError):
        return f"the provider refuses the key in {provider.key_variable or 'its settings'}; set another one"
    except APIStatusError:
        return ""  # it may have no list
    except (APIConnectionError, httpx2.InvalidURL) as error:
        why, where = type(error.__cause__ or error).__name__, provider.base_url_variable or "models.toml"
        return (
            f"no answer from {_host(provider.base_url)} ({why}); look at the network, a "
            f"proxy (HTTPS_PROXY), or the address ({where})"
        )
    return ""


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


async def look_at_ports() -> list[Finding]:
    """Check that a gateway could listen on its configured address, or does."""
    host = os.environ.get("EVERLOOP_HOST") or LOOPBACK
    given = os.environ.get("EVERLOOP_PORT") or str(DEFAULT_PORT)
    if not given.isdecimal():
        return [problem("ports", "EVERLOOP_PORT is no number; set one from 1 to 65535")]
    port = int(given)
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return [ok("ports", f"{host}:{port} is free for a gateway")]
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    url = f"http://{LOOPBACK if host in {'0.0.0.0', '::'} else host}:{port}/readyz"
    try:
        async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False) as http:
            answer = await http.get(url)
        # `everloop dev` answers with an error while no agent can be loaded.
        if any(word in answer.json() for word in ("checks", "error")):
            return [ok("ports", f"a gateway listens on {host}:{port}")]
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        pass
    return [
        problem(
            "ports",
            f"{host}:{port} cannot be listened on ({reason}), and it is no gateway that does; set "
            "EVERLOOP_PORT to another one, or stop what uses it",
        )
    ]


async def look_at_gateway(gateway: Gateway) -> list[Finding]:
    """Check the gateway of commands: its servers, its agents, and the caller's credentials."""
    where = f"{gateway.profile.url} ({gateway.origin})"
    try:
        async with gateway.client() as client:
            card = await client.card()
            agents = await client.agents()
            tasks = client.tasks(limit=1)
            async for _ in tasks:
                break
            await tasks.aclose()
    except ClientError as error:
        return [problem("gateway", refused(error, gateway).message.replace(LOOK_CLOSER, ""))]
    who = gateway.profile.auth or "no credentials"
    named = ", ".join(each.id or each.name for each in agents)
    found = [ok("gateway", f"{where}, version {card.version}, with {who}; agents: {named}")]
    base = agents[0].card_url.partition("/.well-known/")[0]
    return [*found, *await _look_behind(base, gateway.profile.ca)]


async def _look_behind(base: str, ca: Path | None) -> list[Finding]:
    """Check the servers that the gateway reports, and its clock."""
    try:
        verify = await asyncio.to_thread(httpx2.create_ssl_context, verify=str(ca)) if ca else True
        async with httpx2.AsyncClient(timeout=_TIMEOUT, verify=verify) as http:
            answer = await http.get(f"{base}/readyz")
        checks: dict[str, str] = answer.json().get("checks", {})
    except (httpx2.HTTPError, ValueError, AttributeError, OSError):
        return []  # another server, or a proxy hides the route
    bad = {name: said for name, said in checks.items() if said != "ok"}
    found = [
        problem("gateway", f"its {name} fails: {said}; look at it, and at the gateway's log")
        for name, said in bad.items()
    ]
    if date := answer.headers.get("date"):
        clock = clock_finding("the gateway", parsedate_to_datetime(date).timestamp() + 0.5)
        found += [clock] if clock.state == "problem" else []
    return found

"""Where notifications may be sent: to the public internet by https, and where the operator allows more.

UnfitWebhookError
├── UnfitUrlError            the URL itself: clients are told
└── ForbiddenAddressError    where its host leads
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import httpx

from stores.webhook_addresses import Address, Network, is_public, parse_address

MAX_URL_BYTES = 2_000

LOOK_UP_TIMEOUT = 3.0
"""Seconds that anybody waits for a name to be looked up."""

MAX_LOOK_UPS = 32
"""At once. A name whose servers do not answer keeps its thread for as long as the system's resolver tries."""

MAX_PORT = 65_535

_PORTS = {"http": 80, "https": 443}

_NAME = re.compile(r"[0-9A-Za-z_.-]+")

_look_ups = ThreadPoolExecutor(MAX_LOOK_UPS, "webhook-names")
"""Of its own: names that clients choose must not keep the threads of this process from anybody else."""

_EXPECTED = "give a whole URL, such as https://example.com/hook"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host for a port, in the order in which to try them; raises OSError for none."""


class UnfitWebhookError(Exception):
    """Nothing is sent there. The message says why, and holds nothing of the URL but its host."""


class UnfitUrlError(UnfitWebhookError):
    """The URL is none that notifications are sent to; the message begins after "url"."""


class ForbiddenAddressError(UnfitWebhookError):
    """The host leads to an address that notifications are not sent to."""


@dataclass(frozen=True)
class Allowance:
    """What the operator allows besides: hosts (with a port: that port only) and networks, also by http."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[Network, ...] = ()

    def has_host(self, host: str, port: int) -> bool:
        return not self.hosts.isdisjoint({(host, None), (host, port)})

    def has_address(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver.

    Raises:
        OSError: it knows no address, or did not say so in time.
    """
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(LOOK_UP_TIMEOUT):
            found = await asyncio.get_running_loop().run_in_executor(_look_ups, look_up)
    except TimeoutError:
        raise OSError(f"{host} was not looked up within {LOOK_UP_TIMEOUT:.0f} s") from None
    except UnicodeError as error:  # a part of the name is too long
        raise OSError(f"{host} is no name of a host") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class WebhookPolicy:
    """Judges URLs when clients give them, and addresses whenever a connection is about to be made."""

    def __init__(self, allowance: Allowance | None = None, resolver: Resolve = resolve) -> None:
        self._allowance = allowance or Allowance()
        self._resolve = resolver

    async def check(self, text: str) -> None:
        """Judge what a client gives.

        It is judged again before each delivery. A host that does not resolve is refused in the words for one
        that leads where nothing is sent: else clients could find out the names of a private network.

        Raises:
            UnfitUrlError: nothing would ever be sent there.
        """
        url = read_url(text)
        host, port = url.raw_host.decode("ascii"), port_of(url)
        if self._allowance.has_host(host, port):
            return
        try:
            await self.addresses(host, port, is_plain=url.scheme == "http")
        except (ForbiddenAddressError, OSError):
            raise UnfitUrlError(f"is refused: {_unfit(url.scheme, host)}") from None

    async def addresses(self, host: str, port: int, *, is_plain: bool) -> list[str]:
        """Return the addresses of a host, each of which may be connected to. `is_plain`: without TLS.

        Raises:
            ForbiddenAddressError: one of them may not.
            OSError: it has none now.
        """
        found = await self._resolve(host, port)
        if not self._allowance.has_host(host, port):
            for text in found:
                self._check_address(host, parse_address(text), is_plain=is_plain)
        return list(found)

    def _check_address(self, host: str, address: Address | None, *, is_plain: bool) -> None:
        if address and self._allowance.has_address(address):
            return
        if address is None or not is_public(address):
            raise ForbiddenAddressError(
                f"the host {host} leads to a private or special address; give one that is public, "
                "or let the operator of this server allow it"
            )
        if is_plain:
            raise ForbiddenAddressError("it begins with http://; use https://")


def _unfit(scheme: str, host: str) -> str:
    """Say what is wrong with a host, in the same words whatever was found about it."""
    if scheme == "http":
        return f"it begins with http://; use https://, or let the operator of this server allow {host}"
    return (
        f"the host {host} does not resolve, or leads to a private or special address; "
        "give one that is public, or let the operator of this server allow it"
    )


def read_url(text: str) -> httpx.URL:
    """Return a URL that may be called, if its host is fit.

    Raises:
        UnfitUrlError: it is malformed, or carries what a webhook has no use for.
    """
    if len(text.encode()) > MAX_URL_BYTES:
        raise UnfitUrlError(f"has {len(text.encode())} bytes; it may have {MAX_URL_BYTES}")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, UnicodeError):
        raise UnfitUrlError(f"cannot be read; {_EXPECTED}") from None
    if url.scheme not in _PORTS or not url.raw_host:
        raise UnfitUrlError(f"is no web address; {_EXPECTED}")
    if not is_place(url):
        raise UnfitUrlError(f"has a host or a port that cannot be; {_EXPECTED}")
    if url.userinfo:
        raise UnfitUrlError("holds a user name; use the fields token or authentication instead")
    if url.fragment:
        raise UnfitUrlError("has a fragment (#); leave it out")
    return url


def is_place(url: httpx.URL) -> bool:
    """Whether host and port of a URL are such that somebody may be found there."""
    host = url.raw_host.decode("ascii")
    is_host = _NAME.fullmatch(host) is not None or parse_address(host) is not None
    return is_host and (url.port is None or 0 < url.port <= MAX_PORT)


def port_of(url: httpx.URL) -> int:
    """Return the port to connect to."""
    return url.port or _PORTS[url.scheme]

"""Where requests may go whose URLs clients or peers name: a guard against server-side request forgery (SSRF).

These URLs are webhooks of clients, and interfaces that the cards of peers list. They have to be public unless
settings allow more. And the headers that authors of agents give to servers that they name.

Source: the IANA special-purpose address registries (RFC 6890) and the forms in which IPv6 carries IPv4.

UnfitWebhookError
├── UnfitUrlError            the URL itself: clients get the reason
└── ForbiddenAddressError    where its host leads
"""

import asyncio
import inspect
import math
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from everloop.workflows.contract.tasks import Identity

if TYPE_CHECKING:
    from httpx import URL

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def is_loopback(host: str) -> bool:
    """Whether only this machine can call what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_TRANSLATED = ip_network("64:ff9b::/96")
"""NAT64 (RFC 6052): an IPv6-only network reaches the public IPv4 internet by it."""

_NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            "192.0.0.0/24",  # protocol assignments (RFC 6890 §2.2.2)
            "168.63.129.16/32",  # a public address that in Azure is the machine below
            "192.88.99.0/24",  # relays of 6to4 (RFC 7526)
            "::/96",  # "IPv4-compatible" (RFC 4291 §2.5.5.1)
            "64:ff9b:1::/48",  # NAT64 of a local network (RFC 8215)
            "100::/64",  # discarded (RFC 6666)
            "2001::/23",  # protocol assignments, Teredo among them (RFC 2928, RFC 4380)
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which nobody should use any more (RFC 7526)
            "3fff::/20",  # documentation (RFC 9637)
            "5f00::/16",  # segment routing (RFC 9602)
            "fec0::/10",  # site-local (RFC 3879)
        ),
    )
)
"""What Python's registry does not know, or not in every version."""

_ISATAP_MARKS = frozenset({0x00005EFE, 0x02005EFE})
"""Where the last 64 bits begin with this, a tunnel leads to the IPv4 address behind it (RFC 5214 §6.1)."""

MAX_URL_BYTES = 2_000

LOOK_UP_TIMEOUT = 3.0
"""Seconds that anybody waits for a name to be looked up."""

MAX_LOOK_UPS = 32
"""At once. A name whose servers do not answer keeps its thread for as long as the system's resolver tries."""

MAX_PORT = 65_535

_PORTS = {"http": 80, "https": 443}

_NAME = re.compile(r"[0-9A-Za-z_.-]+")

MAX_LOOK_UPS_OF_AN_OWNER = 2
"""At once in a process; further ones wait. Threads may work on for longer than anybody waits for them."""

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
    """Ask the system's resolver, unless the host is an address itself.

    Raises:
        OSError: it knows no address.
        TimeoutError: it did not say so in time.
    """
    if parse_address(host):
        return [host]
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(LOOK_UP_TIMEOUT):
            found = await asyncio.get_running_loop().run_in_executor(_look_ups, look_up)
    except TimeoutError:
        raise TimeoutError(f"{host} was not looked up within {LOOK_UP_TIMEOUT:.0f} s") from None
    except UnicodeError as error:  # a part of the name is too long
        raise OSError(f"{host} is no name of a host") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class WebhookPolicy:
    """Judges URLs when clients give them, and addresses whenever a connection is about to be made."""

    def __init__(self, allowance: Allowance | None = None, resolver: Resolve = resolve) -> None:
        self._allowance = allowance or Allowance()
        self._resolve = resolver
        self._places = WeakValueDictionary[str, asyncio.Semaphore]()

    async def check(self, text: str, *, owner: str = "") -> None:
        """Judge what a client gives. Names are looked up for an owner a few at a time.

        It is judged again before each delivery. A host that does not resolve is refused in the words for one
        that leads where nothing is sent: else clients could find out the names of a private network.

        Raises:
            UnfitUrlError: nothing would ever be sent there.
            TimeoutError: its host was not looked up in time.
        """
        url = read_url(text)
        host, port = url.raw_host.decode("ascii"), port_of(url)
        if self._allowance.has_host(host, port):
            return
        try:
            await self.addresses(host, port, owner=owner, is_plain=url.scheme == "http")
        except TimeoutError:
            raise
        except (ForbiddenAddressError, OSError):
            raise UnfitUrlError(f"is refused: {_unfit(url.scheme, host)}") from None

    async def addresses(self, host: str, port: int, *, is_plain: bool, owner: str = "") -> list[str]:
        """Return the addresses of a host, each of which may be connected to. `is_plain`: without TLS.

        `owner` is whom the name is looked up for.

        Raises:
            ForbiddenAddressError: one of them may not.
            OSError: it has none now.
        """
        async with self._places.setdefault(owner, asyncio.Semaphore(MAX_LOOK_UPS_OF_AN_OWNER)):
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


def read_url(text: str) -> "URL":
    """Return a URL that may be called, if its host is fit.

    Raises:
        UnfitUrlError: it is malformed, or carries what a webhook has no use for.
    """
    import httpx  # noqa: PLC0415 -- 3 MiB, which processes do without until somebody names an address

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


def is_place(url: "URL") -> bool:
    """Whether host and port of a URL are such that somebody may be found there."""
    host = url.raw_host.decode("ascii")
    is_host = _NAME.fullmatch(host) is not None or parse_address(host) is not None
    return is_host and (url.port is None or 0 < url.port <= MAX_PORT)


def port_of(url: "URL") -> int:
    """Return the port to connect to."""
    return url.port or _PORTS[url.scheme]


def read_allowance(text: str) -> Allowance:
    """Return what a list separated by commas allows.

    Raises:
        ValueError: an entry is none of these.
    """
    hosts: set[tuple[str, int | None]] = set()
    networks: list[Network] = []
    for entry in filter(None, (word.strip().lower() for word in text.split(","))):
        if "/" in entry or parse_address(entry):
            networks.append(_read_network(entry))
        else:
            hosts.add(_read_host(entry))
    return Allowance(frozenset(hosts), tuple(networks))


def _read_network(entry: str) -> Network:
    try:
        return ip_network(entry)
    except ValueError:
        raise _wrong(entry) from None


def _read_host(entry: str) -> tuple[str, int | None]:
    import httpx  # noqa: PLC0415 -- as in `read_url`

    try:
        url = httpx.URL(f"any://{entry}")
    except (httpx.InvalidURL, UnicodeError):
        raise _wrong(entry) from None
    if not is_place(url) or url.raw_path not in {b"", b"/"} or url.userinfo or url.fragment:
        raise _wrong(entry)
    return url.raw_host.decode("ascii"), url.port


def _wrong(entry: str) -> ValueError:
    return ValueError(
        f"{entry!r} is none of host, host:port, an address, or a network such as 10.1.0.0/16; correct it"
    )


def parse_address(text: str) -> Address | None:
    """Return the address that a text is, with an IPv4 address that is only written as IPv6 as what it is."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def is_public(address: Address) -> bool:
    """Whether anybody may be sent there; an address that carries another one is what it carries."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if address in _TRANSLATED:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        if int(address) >> 32 & 0xFFFFFFFF in _ISATAP_MARKS:
            return False
    return address.is_global and not (
        address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or any(address in network for network in _NOT_PUBLIC)
    )


# Headers that authors of agents give to the servers of others, and how they are kept out of texts.

Headers = Mapping[str, str] | Callable[[Identity], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Headers of each request, or a function, sync or async, that makes them for who started the task."""

SHORTEST = 6
"""Characters; a shorter value would be found in texts that have nothing to do with it."""

HIDDEN = "[secret]"
"""What stands in the place of a secret."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HeadersError(Exception):
    """There are no headers for a caller; the message says why, and holds no value."""


async def headers_for(headers: Headers, caller: Identity) -> Mapping[str, str]:
    """Return the headers for a caller.

    Raises:
        HeadersError: there are none, or none that can be sent.
    """
    if not callable(headers):
        return headers
    try:
        made = headers(caller)
        made = await made if inspect.isawaitable(made) else made
    except Exception as error:  # noqa: BLE001 -- its message may hold what it is there to keep
        raise HeadersError(f"the function that makes them raised {type(error).__name__}") from None
    if problem := problem_of_headers(made):
        raise HeadersError(problem)
    return made


def problem_of_headers(headers: object) -> str:
    """Return why these headers cannot be sent, naming no value; empty if they can."""
    if not isinstance(headers, Mapping):
        return "headers are a mapping of names to values"
    for name, value in headers.items():  # pyright: ignore[reportUnknownVariableType] -- whatever a function returned
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            return f"{name!r} is no name of a header"
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            return f"the value of the header {name!r} is not a text of printable ASCII characters"
    return ""


def secret_words(values: Iterable[str]) -> list[str]:
    """Return the values and the words in them, longest first: of `Bearer abcdef` also `abcdef` alone."""
    words = {word for value in values for word in (value, *value.split()) if len(word) >= SHORTEST}
    return sorted(words - {"Bearer"}, key=len, reverse=True)


def hide(words: Iterable[str], text: str) -> str:
    """Return what a server says without these words: it may repeat what it was sent."""
    for word in words:
        text = text.replace(word, HIDDEN)
    return text


# How long another server asks to wait.

MAX_ASKED_DELAY = timedelta(minutes=10)
"""A server that asks for more is asked again after this."""


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return how long the server asks to wait, at most 10 minutes; None if it does not say.

    `retry-after-ms` is OpenAI's own; `Retry-After` is seconds or a date (RFC 9110 §10.2.3).
    """
    seconds = _number(headers.get("retry-after-ms"), 0.001) or _number(headers.get("retry-after"), 1)
    if seconds is None:
        seconds = _seconds_until(headers.get("retry-after"), now)
    if seconds is None or seconds <= 0:
        return None
    return timedelta(seconds=min(seconds, MAX_ASKED_DELAY.total_seconds()))


def _number(text: str | None, unit: float) -> float | None:
    try:
        seconds = float(text or "") * unit
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _seconds_until(date: str | None, now: datetime) -> float | None:
    try:
        at = parsedate_to_datetime(date or "")
    except (ValueError, OverflowError):
        return None
    return (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()

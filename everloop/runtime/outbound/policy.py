"""Policy for requests to URLs that clients or peers name: a guard against server-side request forgery (SSRF).

It covers webhooks of clients and the interfaces that peers' cards list. They must be public unless settings
allow more. The headers that authors send to servers of their choice are here too.

Source: the IANA special-purpose address registries (RFC 6890) and the forms in which IPv6 carries IPv4.

UnfitWebhookError
├── UnfitUrlError            the URL itself: clients get the reason
└── ForbiddenAddressError    an address of its host
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

from everloop.runtime.user_code import error_kind, translate_base_exceptions
from everloop.workflows.contract.tasks import Identity

if TYPE_CHECKING:
    from httpx import URL

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def is_loopback(host: str) -> bool:
    """Return True if only this machine can connect to the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_TRANSLATED = ip_network("64:ff9b::/96")
"""NAT64 (RFC 6052): the prefix by which an IPv6-only network reaches the public IPv4 internet."""

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
            "2002::/16",  # 6to4, deprecated (RFC 7526)
            "3fff::/20",  # documentation (RFC 9637)
            "5f00::/16",  # segment routing (RFC 9602)
            "fec0::/10",  # site-local (RFC 3879)
        ),
    )
)
"""Networks that Python's registry lacks, at least in some versions."""

_ISATAP_MARKS = frozenset({0x00005EFE, 0x02005EFE})
"""First half of the last 64 bits of a tunnel address; an IPv4 address follows (ISATAP, RFC 5214 §6.1)."""

MAX_URL_BYTES = 2_000

LOOK_UP_TIMEOUT = 3.0
"""Seconds until a lookup of a name times out."""

MAX_LOOK_UPS = 32
"""Lookups at a time. A name whose servers do not answer occupies its thread until the system's resolver gives
up."""

MAX_PORT = 65_535

_PORTS = {"http": 80, "https": 443}

_NAME = re.compile(r"[0-9A-Za-z_.-]+")

MAX_LOOK_UPS_OF_AN_OWNER = 2
"""Lookups at a time per owner and process; further ones wait. A thread may run longer than its lookup's
timeout."""

_look_ups = ThreadPoolExecutor(MAX_LOOK_UPS, "webhook-names")
"""A pool of its own: names chosen by clients must not block the other threads of this process."""

_EXPECTED = "give a whole URL, such as https://example.com/hook"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host and port in the order of preference; raises OSError if there are none."""


class UnfitWebhookError(Exception):
    """A URL that is never called. The message gives the reason, and of the URL only the host."""


class UnfitUrlError(UnfitWebhookError):
    """The URL cannot be a webhook; the message continues a sentence that begins with "url"."""


class ForbiddenAddressError(UnfitWebhookError):
    """The host resolves to an address that notifications are not sent to."""


@dataclass(frozen=True)
class Allowance:
    """Further targets that the operator allows, also over http: hosts (with a port: only that), networks."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[Network, ...] = ()

    def has_host(self, host: str, port: int) -> bool:
        return not self.hosts.isdisjoint({(host, None), (host, port)})

    def has_address(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


async def resolve(host: str, port: int) -> list[str]:
    """Resolve a host with the system's resolver; an address is returned as it is.

    Raises:
        OSError: the host has no address.
        TimeoutError: the resolver did not answer in time.
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
    """Checks URLs when clients set them, and addresses before each connection."""

    def __init__(self, allowance: Allowance | None = None, resolver: Resolve = resolve) -> None:
        self._allowance = allowance or Allowance()
        self._resolve = resolver
        self._places = WeakValueDictionary[str, asyncio.Semaphore]()

    async def check(self, text: str, *, owner: str = "") -> None:
        """Check a URL of a client. Lookups are limited per owner.

        Each delivery checks it again. A host that does not resolve is refused with the same text as one
        with a forbidden address; otherwise clients could discover the names of a private network.

        Raises:
            UnfitUrlError: the URL would never be called.
            TimeoutError: the lookup of its host timed out.
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
        """Return the addresses of a host, all of which are allowed. `is_plain`: without TLS.

        `owner`: the owner whose lookups are limited.

        Raises:
            ForbiddenAddressError: an address is not allowed.
            OSError: the host has no address now.
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
    """Return one text for every reason why a host is refused."""
    if scheme == "http":
        return f"it begins with http://; use https://, or let the operator of this server allow {host}"
    return (
        f"the host {host} does not resolve, or leads to a private or special address; "
        "give one that is public, or let the operator of this server allow it"
    )


def read_url(text: str) -> "URL":
    """Parse a URL that may be called if its host is allowed.

    Raises:
        UnfitUrlError: it is malformed, or has parts that a webhook cannot have.
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
    """Return True if the URL has a host and a valid port."""
    host = url.raw_host.decode("ascii")
    is_host = _NAME.fullmatch(host) is not None or parse_address(host) is not None
    return is_host and (url.port is None or 0 < url.port <= MAX_PORT)


def port_of(url: "URL") -> int:
    return url.port or _PORTS[url.scheme]


def read_allowance(text: str) -> Allowance:
    """Parse a comma-separated list of allowed hosts and networks.

    Raises:
        ValueError: an entry is neither.
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
    """Parse an IP address; IPv4 written as IPv6 becomes IPv4. None if it is not an address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def is_public(address: Address) -> bool:
    """Return True if the address is public; an address that embeds another one is judged by that one."""
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
"""Headers of each request, or a function, sync or async, that returns them for the caller of the task."""

SHORTEST = 6
"""Minimum length of a secret, in characters; shorter values would match unrelated text."""

HIDDEN = "[secret]"
"""Replacement of a secret in texts."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HeadersError(Exception):
    """The headers of a caller cannot be made; the message gives the reason and no value."""


async def headers_for(headers: Headers, caller: Identity) -> Mapping[str, str]:
    """Return the headers for a caller.

    Raises:
        HeadersError: the function failed, or a header cannot be sent.
    """
    if not callable(headers):
        return headers
    try:
        with translate_base_exceptions():
            made = headers(caller)
            made = await made if inspect.isawaitable(made) else made
    except Exception as error:  # noqa: BLE001 -- its message may hold what it is there to keep
        raise HeadersError(f"the function that makes them raised {error_kind(error)}") from None
    if problem := problem_of_headers(made):
        raise HeadersError(problem)
    return made


def problem_of_headers(headers: object) -> str:
    """Return why these headers cannot be sent, without values; empty if they can."""
    if not isinstance(headers, Mapping):
        return "headers are a mapping of names to values"
    for name, value in headers.items():  # pyright: ignore[reportUnknownVariableType] -- whatever a function returned
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            return f"{name!r} is no name of a header"
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            return f"the value of the header {name!r} is not a text of printable ASCII characters"
    return ""


def secret_words(values: Iterable[str]) -> list[str]:
    """Return the values and the words in them, longest first: `abcdef` of `Bearer abcdef` too."""
    words = {word for value in values for word in (value, *value.split()) if len(word) >= SHORTEST}
    return sorted(words - {"Bearer"}, key=len, reverse=True)


def hide(words: Iterable[str], text: str) -> str:
    """Mask these words in a text of a server, which may repeat what it was sent."""
    for word in words:
        text = text.replace(word, HIDDEN)
    return text


# How long another server asks to wait.

MAX_RETRY_AFTER = timedelta(minutes=10)
"""Maximum delay that a server may request."""


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return the delay that the server requests, at most 10 minutes; None without one.

    `retry-after-ms` is OpenAI's own; `Retry-After` is seconds or a date (RFC 9110 §10.2.3).
    """
    seconds = _number(headers.get("retry-after-ms"), 0.001) or _number(headers.get("retry-after"), 1)
    if seconds is None:
        seconds = _seconds_until(headers.get("retry-after"), now)
    if seconds is None or seconds <= 0:
        return None
    return timedelta(seconds=min(seconds, MAX_RETRY_AFTER.total_seconds()))


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

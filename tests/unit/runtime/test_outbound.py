"""Permitted targets of notifications."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Sequence
from typing import NoReturn

import pytest
from pydantic import ValidationError

from everloop.runtime.environment import explain
from everloop.runtime.outbound import policy as outbound
from everloop.runtime.outbound.policy import (
    MAX_LOOK_UPS,
    MAX_LOOK_UPS_OF_AN_OWNER,
    ForbiddenAddressError,
    UnfitUrlError,
    WebhookPolicy,
    is_public,
    read_allowance,
    resolve,
)
from everloop.stores.push.deliveries import PushSettings

PUBLIC = "93.184.216.34"

_SPECIAL = """
    0.0.0.0 10.0.0.1 100.64.0.1 127.0.0.1 127.255.0.9 169.254.169.254 168.63.129.16 172.16.0.1 192.0.0.8
    192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1
    ::ffff:10.0.0.1 ::ffff:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::5db8:d822 100::1
    2001::5db8:d822 2606:4700::5efe:5db8:d822 2606:4700::200:5efe:5db8:d822 2001:db8::1 2002:7f00:1::
    2002:5db8:d822::1 3fff::1 5f00::1 fc00::1 fd12:3456::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1
    nonsense
"""
FORBIDDEN = _SPECIAL.split()

ALLOWED = (
    "93.184.216.34",
    "2606:4700::1111",
    "64:ff9b::5db8:d822",
    "::ffff:93.184.216.34",
)


def policy(*addresses: str, allow: str = "") -> WebhookPolicy:
    """A policy with these addresses for every name; without any, no name resolves."""

    async def answer(host: str, _port: int) -> Sequence[str]:
        if not addresses:
            raise OSError("no such host")
        literal = host if _is_address(host) else None
        return [literal] if literal else addresses

    return WebhookPolicy(read_allowance(allow), answer)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("address", FORBIDDEN)
async def test_no_name_may_lead_to_a_special_address(address: str) -> None:
    """Not even as one of several; at creation as at delivery."""
    for found in ([address], [PUBLIC, address]):
        with pytest.raises(UnfitUrlError):
            await policy(*found).check("https://example.com/hook")
        with pytest.raises(ForbiddenAddressError):
            await policy(*found).addresses("example.com", 443, is_plain=False)


@pytest.mark.parametrize("address", [a for a in FORBIDDEN if "%" not in a and _is_address(a)])
async def test_no_url_may_name_a_special_address(address: str) -> None:
    """There is no name to resolve."""
    host = f"[{address}]" if ":" in address else address

    with pytest.raises(UnfitUrlError):
        await policy(PUBLIC).check(f"https://{host}/hook")


@pytest.mark.parametrize("address", ALLOWED)
async def test_public_addresses_are_fit(address: str) -> None:
    """Also after the address translation of an IPv6-only network."""
    await policy(address).check("https://example.com/hook?key=value")

    assert await policy(address).addresses("example.com", 443, is_plain=False) == [address]


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "localhost"])
async def test_other_ways_to_write_an_address_are_looked_up(host: str) -> None:
    """The system's resolver accepts them all."""
    with pytest.raises(UnfitUrlError, match=r"private or special|cannot be read"):
        await WebhookPolicy().check(f"https://{host}/hook")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "no web address"),
        ("example.com/hook", "no web address"),
        ("https://", "no web address"),
        ("file:///etc/passwd", "no web address"),
        ("javascript:alert(1)", "no web address"),
        ("http://example.com/hook", "use https"),
        ("https://user@example.com/", "user name"),
        ("https://:secret@example.com/", "user name"),
        ("https://example.com@127.0.0.1/", "user name"),
        ("https://example.com/#there", "fragment"),
        ("https://example.com:99999/", "host or a port"),
        ("https://example.com:x/", "cannot be read"),
        ("https://example.com/\r\nX-Evil: 1", "cannot be read"),
        ("https://example.com/\x00", "cannot be read"),
        ("https://exa%00mple.com/", "host or a port"),
        (f"https://example.com/{'x' * 2_000}", "2020 bytes; it may have 2000"),
    ],
)
async def test_what_is_no_webhook_is_refused(url: str, problem: str) -> None:
    """The error has the remedy, and does not repeat a possible secret."""
    with pytest.raises(UnfitUrlError, match=problem) as refused:
        await policy(PUBLIC).check(url)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("scheme", "problem"), [("http", "use https"), ("https", "does not resolve, or leads to a private")]
)
async def test_nobody_learns_which_names_a_private_network_has(scheme: str, problem: str) -> None:
    """An unresolvable name gets the same error as one with a forbidden address."""
    url = f"{scheme}://hooks.internal/hook"
    with pytest.raises(UnfitUrlError, match=problem) as unknown:
        await policy().check(url)
    with pytest.raises(UnfitUrlError) as private:
        await policy("10.1.2.3").check(url)

    assert str(unknown.value) == str(private.value)


@pytest.mark.parametrize(
    ("allow", "url", "address"),
    [
        ("127.0.0.0/8", "http://127.0.0.1:8000/hook", "127.0.0.1"),
        ("127.0.0.0/8,::1,localhost", "http://[::1]:8000/hook", "::1"),
        ("127.0.0.0/8", "http://127.0.0.1:8000/hook", "::ffff:127.0.0.1"),
        ("localhost", "http://localhost:9/hook", "127.0.0.1"),
        ("hooks.internal:8443", "https://hooks.internal:8443/hook", "192.168.0.7"),
        ("Bücher.example", "http://bücher.example/hook", "10.0.0.1"),
        (" a.internal , b.internal ,", "http://b.internal/hook", "10.0.0.1"),
    ],
)
async def test_the_operator_may_allow_more(allow: str, url: str, address: str) -> None:
    """Hosts, with or without a port, addresses and networks; also without TLS."""
    await policy(address, allow=allow).check(url)
    with pytest.raises(UnfitUrlError):
        await policy(address).check(url)


@pytest.mark.parametrize(
    ("allow", "url", "address"),
    [
        ("127.0.0.0/8", "https://example.com/hook", "10.0.0.1"),
        ("localhost:8000", "http://localhost:8001/hook", "127.0.0.1"),
        ("hooks.internal", "http://evil.hooks.internal/hook", "10.0.0.1"),
        ("hooks.internal", "http://hooks.internal.example.com/hook", "10.0.0.1"),
        ("10.1.0.0/16", "http://example.com/hook", PUBLIC),
    ],
)
async def test_an_allowance_goes_no_further_than_it_says(allow: str, url: str, address: str) -> None:
    """Another port, network or domain is refused as before."""
    with pytest.raises(UnfitUrlError):
        await policy(address, allow=allow).check(url)


@pytest.mark.parametrize(
    "entry", ["http://a", "a/b", "10.0.0.1/8", "a:0", "a:x", "a:70000", "a b", "[::1", "u@a", "a#b"]
)
def test_a_wrong_allowance_is_refused_at_start(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, and the expected form."""
    monkeypatch.setenv("EVERLOOP_PUSH_ALLOW", f"localhost,{entry}")

    with pytest.raises(ValidationError) as refused:
        PushSettings()

    assert explain(refused.value).startswith("EVERLOOP_PUSH_ALLOW: ")
    assert "host:port" in explain(refused.value)


async def test_a_name_that_is_too_long_does_not_break_the_resolver() -> None:
    """It never resolves."""
    with pytest.raises(OSError, match="no name of a host"):
        await WebhookPolicy().addresses("a" * 64 + ".example.com", 443, is_plain=False)


def test_no_public_address_carries_a_private_one() -> None:
    """An IPv4 address within an IPv6 address has to be public itself."""
    for prefix, bits in (("2002::", 80), ("64:ff9b::", 0), ("::ffff:0:0", 0)):
        for inner in ("10.0.0.1", "169.254.169.254", "192.168.0.1"):
            carried = int(ipaddress.ip_address(prefix)) | int(ipaddress.ip_address(inner)) << bits
            assert not is_public(ipaddress.IPv6Address(carried))


async def test_names_are_looked_up_a_few_at_a_time_for_each_owner() -> None:
    """An owner with names that do not resolve does not delay the look-ups of another."""
    under_way: list[str] = []
    released, begun = asyncio.Event(), asyncio.Event()

    async def slow(host: str, port: int) -> list[str]:
        under_way.append(host)
        if host == "other.example.com":
            begun.set()
        await released.wait()
        return ["93.184.215.14"]

    policy = WebhookPolicy(resolver=slow)
    busy = [asyncio.create_task(policy.check(f"https://{n}.example.com/", owner="busy")) for n in range(9)]
    other = asyncio.create_task(policy.check("https://other.example.com/", owner="other"))
    await begun.wait()

    assert len(under_way) == MAX_LOOK_UPS_OF_AN_OWNER + 1
    released.set()
    await asyncio.gather(other, *busy)
    assert len(under_way) == 10


async def test_names_that_nobody_answers_for_keep_no_thread_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For any number of names: each caller gets an answer in time, and the process goes on."""
    released = threading.Event()

    def answer_never(*_: object, **__: object) -> NoReturn:
        released.wait()
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", answer_never)
    monkeypatch.setattr(outbound, "LOOK_UP_TIMEOUT", 0.01)
    try:
        names = [resolve(f"{n}.example.com", 443) for n in range(2 * MAX_LOOK_UPS)]
        found = await asyncio.gather(*names, return_exceptions=True)
        assert await resolve("127.0.0.1", 443) == ["127.0.0.1"]
        assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        released.set()

    assert all(isinstance(each, TimeoutError) and "was not looked up" in str(each) for each in found)

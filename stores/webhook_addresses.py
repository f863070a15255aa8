"""Which addresses belong to the public internet. Pure.

Source: the IANA special-purpose address registries (RFC 6890) and the forms in which IPv6 carries IPv4.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

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
            "3fff::/20",  # documentation (RFC 9637)
            "5f00::/16",  # segment routing (RFC 9602)
            "fec0::/10",  # site-local (RFC 3879)
        ),
    )
)
"""What Python's registry does not know, or not in every version."""

_ISATAP_MARKS = frozenset({0x00005EFE, 0x02005EFE})
"""Where the last 64 bits begin with this, a tunnel leads to the IPv4 address behind it (RFC 5214 §6.1)."""


def parse_address(text: str) -> Address | None:
    """Return the address that a text is, with an IPv4 address that is only written as IPv6 as what it is."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def is_public(address: Address) -> bool:
    """Whether anybody may be sent there: also whoever is carried inside the address has to be public."""
    if isinstance(address, IPv6Address) and address in _TRANSLATED:
        return all(map(is_public, _carried(address)))
    is_special = (
        not address.is_global
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or any(address in network for network in _NOT_PUBLIC)
        or (isinstance(address, IPv6Address) and int(address) >> 32 & 0xFFFFFFFF in _ISATAP_MARKS)
    )
    return not is_special and all(map(is_public, _carried(address)))


def _carried(address: Address) -> Iterator[IPv4Address]:
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped:
        yield address.ipv4_mapped
    if address.sixtofour:
        yield address.sixtofour
    if address in _TRANSLATED:
        yield IPv4Address(int(address) & 0xFFFFFFFF)

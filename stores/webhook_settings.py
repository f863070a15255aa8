"""Whether clients may be notified, and where."""

from ipaddress import ip_network

import httpx
from pydantic import field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from stores.webhook_addresses import Network, parse_address
from stores.webhook_policy import Allowance, WebhookPolicy, is_place


class PushSettings(BaseSettings):
    """Push notifications: the same for all workers and gateways.

    EVERLOOP_PUSH: `false` refuses them; default true. EVERLOOP_PUSH_ALLOW: where they may go besides public
    https addresses, also by http, separated by commas: `host`, `host:port`, an address, or a network such as
    `10.1.0.0/16`; default nowhere. An empty variable counts as not set.
    """

    model_config = SettingsConfigDict(
        env_prefix="EVERLOOP_", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    push: bool = True
    push_allow: str = ""

    @field_validator("push_allow")
    @classmethod
    def validate_allowance(cls, text: str) -> str:
        read_allowance(text)
        return text

    @property
    def policy(self) -> WebhookPolicy:
        """What these settings allow."""
        return WebhookPolicy(read_allowance(self.push_allow))


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
    try:
        url = httpx.URL(f"any://{entry}")
    except (httpx.InvalidURL, UnicodeError):
        raise _wrong(entry) from None
    if not is_place(url) or url.raw_path not in {b"", b"/"} or url.userinfo or url.fragment:
        raise _wrong(entry)
    return url.raw_host.decode("ascii"), url.port


def _wrong(entry: str) -> ValueError:
    return ValueError(
        f"EVERLOOP_PUSH_ALLOW: {entry!r} is none of host, host:port, an address, or a network such as "
        "10.1.0.0/16; correct it"
    )

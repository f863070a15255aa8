"""Certificates that a proxy has verified: trusted senders, and the form of subjects."""

from contextlib import suppress
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everloop.gateway.auth.schemes import CredentialsError, ProxyCertificateScheme, forwarded_subject
from everloop.gateway.context import Caller

PROXIES = [ip_network("10.1.0.0/16"), ip_network("192.0.2.7"), ip_network("2001:db8::/32")]
NGINX = ProxyCertificateScheme("X-Client-Subject", PROXIES)
ENVOY = ProxyCertificateScheme("X-Forwarded-Client-Cert", PROXIES)
SUBJECT = {"x-client-subject": "CN=billing,O=Acme"}


@pytest.mark.parametrize("peer", ["10.1.2.3", "192.0.2.7", "2001:db8::5", "::ffff:10.1.2.3"])
async def test_a_trusted_proxy_tells_who_calls(peer: str) -> None:
    """The subject is the owner; certificates have no scopes, so every operation is allowed."""
    assert await NGINX.authenticate(SUBJECT, peer) == Caller(
        owner="CN=billing,O=Acme", scheme="mutualTLS", subject="CN=billing,O=Acme", scopes=None
    )


@pytest.mark.parametrize(
    "peer", ["10.2.0.1", "192.0.2.8", "127.0.0.1", "::1", "", "unix:", "10.1.2.3:80", "proxy"]
)
async def test_what_others_say_is_not_looked_at(peer: str) -> None:
    """They are treated like requests without the header."""
    assert await NGINX.authenticate(SUBJECT, peer) is None


@pytest.mark.parametrize("subject", ["anonymous", "a\tb", "x" * 256, " ", "CN=\udce4"])
async def test_a_subject_that_cannot_be_an_owner_is_refused(subject: str) -> None:
    """The rules are those for all owners."""
    with pytest.raises(CredentialsError, match="cannot be an owner"):
        await NGINX.authenticate({"x-client-subject": subject}, "10.1.2.3")


FORWARDED = {
    'By=spiffe://a/b;Hash=00ff;Subject="CN=x,OU=y;z,O=\\"Acme\\"";URI=spiffe://a/c': 'CN=x,OU=y;z,O="Acme"',
    "Hash=00ff;Subject=CN=billing": "CN=billing",
    'Hash=00ff;Subject="";URI=spiffe://a/c': "spiffe://a/c",
    "Hash=00ff;URI=spiffe://a/c;URI2=x": None,
    "Hash=00ff;DNS=a;DNS=b;URI=spiffe://a/c": "spiffe://a/c",
    "Hash=00ff": "",
    "": "",
    'subject="CN=a"': "CN=a",
    # There is more than one value.
    'Subject="CN=admin",Hash=00ff;Subject="CN=billing"': None,
    'Subject="CN=admin";Subject="CN=billing"': None,
    'Subject="CN=admin";X=",Hash=00ff;Subject="CN=billing"': None,
    'Subject="CN=admin': None,
    "CN=admin,CN=billing": None,
    "nonsense": None,
}


@pytest.mark.parametrize(("value", "subject"), FORWARDED.items(), ids=range(len(FORWARDED)))
def test_the_header_of_envoy_names_one_subject(value: str, subject: str | None) -> None:
    """Its URI if it has no subject; a value that a client could have written is refused."""
    if subject is None:
        with pytest.raises(CredentialsError, match="let it replace what clients send"):
            forwarded_subject(value)
    else:
        assert forwarded_subject(value) == subject


@given(theirs=st.text(alphabet='aS="\\;, ', max_size=20) | st.sampled_from(['Subject="CN=a', 'x="', "x=a"]))
def test_whatever_a_client_writes_before_it_changes_no_subject(theirs: str) -> None:
    """The appended value of a proxy is refused, or read as the proxy meant it."""
    with suppress(CredentialsError):
        assert forwarded_subject(f'{theirs},By=x;Hash=1;Subject="CN=billing"') == "CN=billing"


async def test_envoys_header_is_read_as_such() -> None:
    """The header's name determines the format."""
    caller = await ENVOY.authenticate({"x-forwarded-client-cert": 'Hash=1;Subject="CN=a"'}, "10.1.2.3")
    assert caller
    assert caller.owner == "CN=a"
    with pytest.raises(CredentialsError, match="it is empty"):
        await ENVOY.authenticate({"x-forwarded-client-cert": "Hash=1"}, "10.1.2.3")

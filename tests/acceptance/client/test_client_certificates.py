"""Servers and proxies that demand a client certificate, each with an error of its own."""

import ssl
from pathlib import Path

import pytest
from starlette.responses import HTMLResponse

from everloop.client import Client, ClientError, InvalidError, UnauthenticatedError, UnreachableError
from tests.acceptance.client.test_scripted_servers import running
from tests.support.servers.tls import certificate_files, refusing_by_alert, running_tls_proxy


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """The certificate of the server, and the trust of clients."""
    return certificate_files("localhost", tmp_path)


def demanding(shown: Path, known: Path, version: ssl.TLSVersion) -> ssl.SSLContext:
    """Return a server that accepts one client certificate only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown)
    context.load_verify_locations(known)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    return context


KNOWN = r"demands a client certificate that it knows \({}\); give cert="

ALERTS: dict[str, tuple[ssl.TLSVersion, type[ClientError], str]] = {
    "no certificate": (ssl.TLSVersion.TLSv1_3, UnauthenticatedError, KNOWN.format("certificate required")),
    "another certificate": (ssl.TLSVersion.TLSv1_3, UnauthenticatedError, KNOWN.format("unknown ca")),
    "another certificate in TLS 1.2": (
        ssl.TLSVersion.TLSv1_2,
        UnauthenticatedError,
        KNOWN.format("unknown ca"),
    ),
    "no certificate in TLS 1.2": (
        ssl.TLSVersion.TLSv1_2,
        UnreachableError,
        "no answer from .*handshake failure.*; if it demands a client certificate, give cert=",
    ),
}


@pytest.mark.parametrize("case", ALERTS)
async def test_an_alert_of_tls_says_what_to_give(shown: Path, tmp_path: Path, case: str) -> None:
    """In TLS 1.2 the alert is a general one: the error then names a certificate as a possible cause."""
    version, kind, said = ALERTS[case]
    (tmp_path / "another").mkdir()
    known, another = certificate_files("known", tmp_path), certificate_files("known", tmp_path / "another")
    cert = (another, another) if case.startswith("another") else None
    with refusing_by_alert(demanding(shown, known, version)) as port:
        async with Client(f"https://localhost:{port}", ca=shown, cert=cert) as client:
            with pytest.raises(kind, match=said):
                await client.card()


async def test_what_is_not_trusted_and_files_that_are_none_are_said(shown: Path, tmp_path: Path) -> None:
    """Each error names the argument that helps."""
    async with (
        running_tls_proxy(1, demanding(shown, shown, ssl.TLSVersion.TLSv1_3)) as port,
        Client(f"https://localhost:{port}") as strange,
    ):
        with pytest.raises(UnreachableError, match=r"certificate .* is not trusted .*; .*give ca="):
            await strange.card()
    with pytest.raises(InvalidError, match="cert= or ca= cannot be used"):
        Client("https://localhost", ca=tmp_path / "none.pem")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_that_goes_away_before_it_answers_may_miss_a_certificate(
    shown: Path, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """There is no sign of it: the error names it as one possible cause."""
    context = demanding(shown, certificate_files("known", tmp_path), version)
    async with (
        running_tls_proxy(1, context) as port,
        Client(f"https://localhost:{port}", ca=shown) as client,
    ):
        with pytest.raises(UnreachableError, match="if it demands a client certificate, give cert="):
            await client.card()


@pytest.mark.parametrize("said", ["No required SSL certificate was sent", "The SSL certificate error"])
async def test_nginx_says_it_in_a_page(said: str) -> None:
    """With a status that other servers use for unreadable bodies."""
    page = f"<html>\r\n<head><title>400 {said}</title></head>\r\n<body>\r\n</body>\r\n</html>\r\n"
    async with running() as everloop, Client(everloop.url) as client:
        everloop.script = [HTMLResponse(page, 400)]
        with pytest.raises(UnauthenticatedError, match=rf"knows \({said}\); give cert="):
            await client.send("Hi.")

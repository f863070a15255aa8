"""TLS: certificates that only their own client trusts, and a proxy that terminates it before a server."""

import socket
import ssl
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from everloop.local.servers import LOOPBACK
from tests.support.servers.relay import Relay, running_relay


def certificate_of(name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's TLS context for this name, and a client's that trusts it."""
    private, pem = _certificate(name)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "both.pem"
        path.write_bytes(private + pem)
        server.load_cert_chain(path)
    return server, ssl.create_default_context(cadata=pem.decode())


def certificate_files(name: str, directory: Path) -> Path:
    """Write a file with the private key and the self-signed certificate of this name."""
    path = directory / f"{name}.pem"
    path.write_bytes(b"".join(_certificate(name)))
    return path


def _certificate(name: str) -> tuple[bytes, bytes]:
    """Return a private key and its certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, pem


@contextmanager
def refusing_by_alert(context: ssl.SSLContext) -> Generator[int]:
    """Yield the port of a server that rejects certificates with a TLS alert, as HAProxy and Envoy do.

    A server of asyncio, such as the proxy below, closes without an alert.
    """
    listener = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                with connection:
                    _refuse(connection, context)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _refuse(connection: socket.socket, context: ssl.SSLContext) -> None:
    """Fail the TLS handshake, and read the client's bytes in the meantime.

    Closing with unread ones would reset the connection.
    """
    beside = connection.dup()
    with suppress(OSError), context.wrap_socket(connection, server_side=True):
        raise AssertionError("the caller is known")
    with beside, suppress(OSError):
        beside.shutdown(socket.SHUT_WR)
        while beside.recv(65_536):
            pass


@asynccontextmanager
async def running_tls_proxy(port: int, context: ssl.SSLContext) -> AsyncGenerator[int]:
    """Yield the local port of a TLS proxy for the local server at `port`."""
    async with running_relay(Relay(port), context) as relay:
        yield relay.port

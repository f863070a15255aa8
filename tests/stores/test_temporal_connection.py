"""The connection to Temporal: by TLS where that is set, and never left hanging."""

import ssl
from pathlib import Path

import pytest

from deploy.local.servers import LOOPBACK
from stores.temporal_connection import TemporalUnreachableError, connect_temporal
from tests.support.certificates import certificate_files
from tests.support.tls_proxy import running_tls_proxy

ALLOWED = 10_000
"""Milliseconds between two pings below which Temporal closes the connection (frontend.keepAliveMinTime)."""


async def test_a_connection_without_its_other_end_is_noticed_in_25_s(
    temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is pinged often enough for that, and not so often that Temporal closes it."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    client = await connect_temporal()

    pings = client.service_client.config.keep_alive_config
    assert pings
    assert pings.interval_millis > ALLOWED
    assert pings.interval_millis + pings.timeout_millis <= 25_000


async def test_tls_and_api_key_are_those_of_the_environment(
    temporal_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TEMPORAL_TLS_* and TEMPORAL_API_KEY reach the server; one that another authority signed is refused."""
    server, client = certificate_files("temporal", tmp_path), certificate_files("client", tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client))
    context.load_cert_chain(server)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    for name, value in {
        "TEMPORAL_TLS": "true",
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(server),
        "TEMPORAL_TLS_SERVER_NAME": "temporal",
        "TEMPORAL_TLS_CLIENT_CERT_PATH": str(client),
        "TEMPORAL_TLS_CLIENT_KEY_PATH": str(client),
        "TEMPORAL_API_KEY": "the key",
    }.items():
        monkeypatch.setenv(name, value)
    async with running_tls_proxy(int(temporal_address.rpartition(":")[2]), context) as port:
        monkeypatch.setenv("TEMPORAL_ADDRESS", f"{LOOPBACK}:{port}")
        connected = await connect_temporal()
        assert (await connected.count_workflows()).count >= 0
        assert connected.service_client.config.api_key == "the key"
        monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(client))
        with pytest.raises(TemporalUnreachableError, match=r"cannot reach Temporal at 127\.0\.0\.1:"):
            await connect_temporal()

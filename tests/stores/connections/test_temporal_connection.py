"""The connection to Temporal: TLS where configured, and timeouts for a silent server."""

import shlex
import ssl
from pathlib import Path
from uuid import uuid4

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from everloop.local.servers import LOOPBACK
from everloop.runtime.temporal.temporal_connection import (
    TemporalUnreachableError,
    check_search_attributes,
    connect_temporal,
)
from tests.support.servers.processes import run_everloop
from tests.support.servers.tls import certificate_files, running_tls_proxy

ALLOWED = 10_000
"""Milliseconds between two pings below which Temporal closes the connection (frontend.keepAliveMinTime)."""


async def test_a_connection_without_its_other_end_is_noticed_in_25_s(
    temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost peer is detected in 25 s, with pings rare enough for Temporal to keep the connection."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    client = await connect_temporal()

    pings = client.service_client.config.keep_alive_config
    assert pings
    assert pings.interval_millis > ALLOWED
    assert pings.interval_millis + pings.timeout_millis <= 25_000


def _tls_server(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2"])
    return context


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_tls_and_api_key_are_those_of_the_environment(
    temporal_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TEMPORAL_TLS_* and TEMPORAL_API_KEY are used; a server of another authority is refused."""
    server, client = certificate_files("temporal", tmp_path), certificate_files("client", tmp_path)
    context = _tls_server(server)
    context.load_verify_locations(client)
    context.verify_mode = ssl.CERT_REQUIRED
    async with running_tls_proxy(_port(temporal_address), context) as port:
        for name, value in {
            "TEMPORAL_ADDRESS": f"{LOOPBACK}:{port}",
            "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(server),
            "TEMPORAL_TLS_SERVER_NAME": "temporal",
            "TEMPORAL_TLS_CLIENT_CERT_PATH": str(client),
            "TEMPORAL_TLS_CLIENT_KEY_PATH": str(client),
            "TEMPORAL_API_KEY": "the key",
        }.items():
            monkeypatch.setenv(name, value)
        connected = await connect_temporal()
        assert (await connected.count_workflows()).count >= 0
        assert connected.service_client.config.api_key == "the key"
        monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(client))
        with pytest.raises(TemporalUnreachableError, match=r"cannot reach Temporal at 127\.0\.0\.1:"):
            await connect_temporal()


async def test_an_api_key_switches_tls_on(
    temporal_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An API key switches TLS on, with the machine's authorities, so that no key is sent in the clear."""
    server = certificate_files("localhost", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(server))
    monkeypatch.setenv("TEMPORAL_API_KEY", "the key")
    async with running_tls_proxy(_port(temporal_address), _tls_server(server)) as port:
        monkeypatch.setenv("TEMPORAL_ADDRESS", f"localhost:{port}")
        connected = await connect_temporal()
        assert (await connected.count_workflows()).count >= 0
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    with pytest.raises(TemporalUnreachableError, match="cannot reach Temporal"):
        await connect_temporal()


async def test_an_unknown_namespace_is_named_at_start(
    temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing namespace is named at start with the command that creates it.

    A gateway would wait for ever.
    """
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "no-such-place")

    told = "has no namespace 'no-such-place'.*TEMPORAL_NAMESPACE.*namespace create --namespace no-such-place"
    with pytest.raises(TemporalUnreachableError, match=told):
        await connect_temporal()


async def test_search_attributes_that_are_missing_are_named_at_start(
    temporal_address: str, redis_url: str, tmp_path: Path
) -> None:
    """Missing search attributes are named at start, with one command that creates them.

    Without them each message was an internal error.
    """
    server = await Client.connect(temporal_address)
    namespace, retention = f"bare-{uuid4()}", Duration(seconds=86_400)
    await server.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=namespace, workflow_execution_retention_period=retention)
    )
    environment = {
        "TEMPORAL_ADDRESS": temporal_address,
        "TEMPORAL_NAMESPACE": namespace,
        "EVERLOOP_REDIS_URL": redis_url,
        "EVERLOOP_BLOB_DIRECTORY": str(tmp_path),
        "EVERLOOP_AGENTS": "everloop.examples.conformance_agent:agent",
        "EVERLOOP_PORT": "0",
    }
    while "missing" not in (told := await run_everloop(environment, "worker"))[1]:
        assert "has no namespace" in told[1]  # the server takes a while to see a new one

    for command in ("worker", "gateway"):
        code, line = await run_everloop(environment, command)
        assert (code, line.count("\n")) == (1, 1)
        assert line.startswith(f"{command}: the namespace {namespace!r} of Temporal cannot be used: its ")
        assert "search attributes AgentId, ContextId, Owner, TaskState, TaskVersion are missing" in line
        repair = shlex.split(line.partition("make them: everloop ")[2])
    assert (await run_everloop(environment, *repair))[0] == 0
    await check_search_attributes(await Client.connect(temporal_address, namespace=namespace))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("temporal.invalid:7233", "failed to lookup address information: .*"),
    ],
)
async def test_why_nobody_can_be_reached_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, address: str, reason: str
) -> None:
    """An unreachable server is explained in words, not by the SDK's error with nested names of Rust."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)

    with pytest.raises(
        TemporalUnreachableError, match=rf"^cannot reach Temporal at {address}: {reason}\. "
    ) as told:
        await connect_temporal()

    assert "ConnectError" not in str(told.value)

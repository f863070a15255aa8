"""deploy/compose fits together; no container engine is needed."""

import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from everloop.local.servers import (
    HTTP_HOSTS,
    ONE_PARTITION,
    TRANSFER_POLLS,
    TemporalPorts,
    temporal_command,
    valkey_command,
)
from everloop.models.catalogue import Catalogue
from tests.support.deploy.haproxy import require_haproxy
from tests.support.deploy.manifests import (
    COMPOSE,
    TOLD_TO_CLIENTS,
    Address,
    addresses,
    check_schema,
    compose,
    env_file,
)

OURS = ("gateway", "worker", "api-keys", "s3-init")
"""Services that run one of our images, whose Dockerfile has the healthcheck."""

SERVICES = tuple(compose()["services"])

NAME_SERVER_OF_THE_ENGINE = "127.0.0.11"


def service(name: str) -> dict[str, Any]:
    return compose()["services"][name]


def test_the_file_is_compose() -> None:
    """It and what adds gRPC fit the schema of the Compose specification."""
    check_schema("compose-spec", COMPOSE / "compose.yaml")
    check_schema("compose-spec", COMPOSE / "compose.grpc.yaml")


def test_what_a_variable_is_called_stands_in_the_example() -> None:
    """Each variable of the compose files is in env.example, which has no other, and no password."""
    files = [(COMPOSE / name).read_text() for name in ("compose.yaml", "compose.grpc.yaml")]
    used = set(re.findall(r"\$\{([A-Z0-9_]+)", "".join(files)))
    example = env_file(COMPOSE / "env.example")

    assert used == example.keys()
    for name, value in example.items():
        if name.endswith(("PASSWORD", "KEY")):
            assert value == ""


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_asks_services_that_it_reaches(name: str) -> None:
    """Each address in its environment and in the files that it mounts is that of a service in its network."""
    for host in {address.host for address in _asked(name)} - {NAME_SERVER_OF_THE_ENGINE}:
        assert host in SERVICES, host
        assert set(service(name)["networks"]) & set(service(host)["networks"]), host


def _asked(name: str) -> Iterator[Address]:
    environment: dict[str, str] = service(name).get("environment", {})
    for variable, value in environment.items():
        if variable not in TOLD_TO_CLIENTS:
            yield from addresses(value)
    for volume in service(name).get("volumes", []):
        file = COMPOSE / volume.split(":")[0]
        if file.is_file():
            yield from addresses(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "asked_by"),
    [
        ("valkey", {"gateway", "worker"}),
        ("postgresql", {"temporal", "temporal-schema"}),
        ("s3", {"gateway", "worker", "s3-init", "seaweedfs"}),
        ("seaweedfs", {"s3"}),
        ("temporal", {"gateway", "worker", "postgresql", "temporal-schema", "temporal-init", "temporal-ui"}),
    ],
)
def test_nobody_can_ask_who_need_not(name: str, asked_by: set[str]) -> None:
    """Servers without a password share networks only with the services that use them."""
    networks = set(service(name)["networks"])
    sharing = {other for other in SERVICES if networks & set(service(other).get("networks", []))}

    assert sharing - {name, "prometheus"} == asked_by


def test_only_workers_have_the_keys_of_models() -> None:
    """Gateways, which read the same file, get empty ones. No other service reads that file."""
    reading = {name for name in SERVICES if "env_file" in service(name)}
    keys = {each.key_variable for each in Catalogue.load(None, None, {}).providers.values()} - {""}
    told = service("gateway")["environment"]

    assert reading == {"gateway", "worker"}
    assert {key: told.get(key) for key in keys} == dict.fromkeys(keys, "")
    assert "OPENAI_API_KEY" in env_file(COMPOSE / "everloop.env.example")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_do_no_more_than_it_must(name: str) -> None:
    """No process gains privileges. Ours write only where something is mounted; ports are this machine's."""
    one = service(name)
    assert one["security_opt"] == ["no-new-privileges:true"]
    if name in OURS:
        assert one["read_only"]
        assert one["cap_drop"] == ["ALL"]
    for port in one.get("ports", []):
        assert port.startswith(("127.0.0.1:", "${EVERLOOP_BIND:-127.0.0.1}:"))


def test_valkey_keeps_what_it_acknowledged() -> None:
    """It gets the options of the local stack that decide about durability."""
    deciding = ("--appendonly", "--appendfsync", "--save", "--maxmemory-policy")
    local = valkey_command(0, Path())
    ours = service("valkey")["command"]

    for option in deciding:
        assert (option, local[local.index(option) + 1]) in pairwise(ours)


def test_temporal_is_configured_as_the_local_one() -> None:
    """The same dynamic configuration, but for what a server needs that has one shard or is on a desktop."""
    command = temporal_command(TemporalPorts(1, 2, 3, 4))
    local = {value for option, value in pairwise(command) if option == "--dynamic-config-value"}
    local -= {f"history.transferProcessorMaxPollRPS={TRANSFER_POLLS}", *ONE_PARTITION, HTTP_HOSTS}
    configured = yaml.safe_load((COMPOSE / "temporal/dynamic-config.yaml").read_text())
    here = {f"{key}={str(values[0]['value']).lower()}" for key, values in configured.items()}

    assert local <= here
    assert here - local <= {"matching.useNewMatcher=true", "matching.enableFairness=true"}
    shards = int(service("temporal")["environment"]["NUM_HISTORY_SHARDS"])
    assert shards > 100


def test_only_s3_of_the_blob_store_is_reached() -> None:
    """Its proxy opens the one port that asks for keys. HAProxy accepts the configuration."""
    haproxy, environment = require_haproxy()
    (mounted,) = service("s3")["volumes"]
    configuration = COMPOSE / mounted.partition(":")[0]
    check = [haproxy, "-c", "-f", configuration]
    done = subprocess.run(check, capture_output=True, text=True, check=False, env=environment)
    text = configuration.read_text()

    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    assert re.findall(r"bind \S*:(\d+)|seaweedfs:(\d+)", text) == [("8333", ""), ("", "8333")]


@pytest.mark.parametrize("grpc", [{}, {"EVERLOOP_GRPC_PORT": "50051"}], ids=["off", "on"])
def test_the_proxy_understands_its_configuration(grpc: dict[str, str]) -> None:
    """HAProxy checks it, with gRPC and without; the ports are those of the gateways."""
    haproxy, environment = require_haproxy()
    configuration = COMPOSE / "haproxy.cfg"
    check = [haproxy, "-c", "-f", configuration]
    told = environment | grpc
    done = subprocess.run(check, capture_output=True, text=True, check=False, env=told)

    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    assert set(re.findall(r"gateway:(\d+)", configuration.read_text())) == {"8080", "50051"}

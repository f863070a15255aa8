"""A cluster with TLS, and a user with the rights in the manual."""

import json
import re
import ssl
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from everloop.stores.keys import log_key
from tests.support.a2a_client import Answer, connected, request
from tests.support.rigs.deployment import ACCEPTANCE_AGENT, Service, running_service
from tests.support.seeded_secrets import seed_secret
from tests.support.servers.processes import ROOT, ServerProcess
from tests.support.servers.redis_cluster import RedisCluster, running_redis_cluster
from tests.support.servers.scripted_openai import Reply, tool_call
from tests.support.servers.tls import certificate_files, running_tls_proxy

pytestmark = pytest.mark.slow

PASSWORD = "of-the-cluster"
BY_NAME = ("--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname")
REPEAT = json.dumps({"text": "ab", "times": 2})


def rule() -> list[str]:
    """Return the rule for the user in docs/operation/encryption.md, for every node."""
    text = (ROOT / "docs" / "operation/encryption.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^ACL SETUSER .*cluster\|slots.*$", text, re.MULTILINE)
    return str(found).replace("PASSWORD", PASSWORD).split()


@asynccontextmanager
async def running_safe_cluster(directory: Path) -> AsyncGenerator[tuple[RedisCluster, str]]:
    """Yield a cluster whose nodes announce their TLS ports, and its URL."""
    certificate = certificate_files("localhost", directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    proxy = partial(running_tls_proxy, context=context)
    async with running_redis_cluster(directory, BY_NAME, proxy=proxy) as cluster:
        for node in cluster.nodes:
            async with Redis(port=node.port) as redis:
                await redis.execute_command(*rule())
        hosts = ",".join(f"localhost:{node.client_port}" for node in cluster.nodes[:2])
        user = f"everloop:{seed_secret(PASSWORD)}"
        yield cluster, f"rediss://{user}@{hosts}/0?cluster=true&ssl_ca_certs={certificate}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    directory = tmp_path_factory.mktemp("safe")
    async with running_service(directory, ACCEPTANCE_AGENT, running_safe_cluster) as running:
        yield running


async def test_a_task_runs_by_tls_with_the_rights_of_the_manual(service: Service) -> None:
    """It streams its answer; so does the next one, after a replica has taken over. No command was refused."""
    cluster = service.everloop.valkey
    assert isinstance(cluster, RedisCluster)
    service.script(lambda asked: Reply(["Done."] if asked.tool_results else [tool_call("repeat", REPEAT)]))

    async with connected(service.gateway.url) as client:
        first = await Answer().read(client.send_message(request("Work.")))
        await cluster.kill_primary(await cluster.primary_of(log_key(first.task_id)))
        second = await Answer().read(client.send_message(request("Work again.")))

    assert [first.text, second.text] == ["Done.", "Done."]
    assert not [line for line in service.everloop.logs() if "permission" in json.dumps(line).lower()]


@pytest.mark.parametrize("command", ["worker", "gateway"])
@pytest.mark.parametrize(
    "problem", ["certificate verify failed", "invalid username-password pair or user is disabled"]
)
async def test_one_line_says_why_a_cluster_refuses(
    service: Service, tmp_path: Path, command: str, problem: str
) -> None:
    """The process ends at once, and shows no password."""
    right, wrong = PASSWORD, seed_secret("of-another")
    if "certificate" in problem:
        wrong = str(certificate_files("localhost", tmp_path))
        right = str(service.everloop.directory / "valkey" / "localhost.pem")
    url = service.everloop.redis_url.replace(right, wrong)
    program = ["worker.py"] if command == "worker" else ["-m", "everloop.gateway"]
    environment = {**service.everloop.environment, "EVERLOOP_REDIS_URL": url}
    process = ServerProcess([sys.executable, *program], tmp_path / f"{command}-0.log", environment)
    process.start()

    assert await process.ended() == 1
    (line,) = process.output.splitlines()
    assert line.startswith(f"{command}: Redis at localhost:")
    assert problem in line
    assert line.endswith("correct EVERLOOP_REDIS_URL")

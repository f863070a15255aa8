"""`python -m everloop.gateway` as a process: how it starts, what stops it, how it ends."""

import asyncio
import json
import socket
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from everloop.deploy.local.servers import LOOPBACK, free_port
from everloop.gateway import __main__ as gateway_main
from everloop.gateway.context import ANONYMOUS
from everloop.gateway.server import listen
from everloop.gateway.settings import GatewaySettings
from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.interface import Create, NewPart
from everloop.stores.artifacts.redis import RedisArtifacts
from everloop.stores.blobs.s3 import S3Blobs
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.names import context_key
from tests.gateway.harness import unique
from tests.support.servers.buckets import new_bucket, running_moto
from tests.support.servers.processes import ServerProcess, running_valkey, wait_until_answers

AGENTS = "tests.gateway.harness:AGENT"
LARGE = b"0123456789" * 20_000


def gateway_process(log: Path, variables: Mapping[str, str]) -> ServerProcess:
    return ServerProcess(
        [sys.executable, "-m", "everloop.gateway"], log, {"EVERLOOP_AGENTS": AGENTS, **variables}
    )


async def started(log: Path, variables: Mapping[str, str]) -> tuple[ServerProcess, str]:
    """Start a gateway on a free port; return it when it answers, and its address."""
    port = free_port()
    process, url = (
        gateway_process(log, {"EVERLOOP_PORT": str(port), **variables}),
        f"http://{LOOPBACK}:{port}",
    )
    process.start()

    async def ready() -> bool:
        async with httpx.AsyncClient(base_url=url) as http:
            try:
                return (await http.get("/readyz")).is_success
            except httpx.TransportError:
                return False

    await wait_until_answers(process, ready, "gateway")
    return process, url


def outcome(process: ServerProcess) -> tuple[int, str]:
    """Run the process to its end; return its exit code and what it wrote."""
    process.start()
    assert process._process
    return process._process.wait(timeout=200), process.output


async def test_a_gateway_serves_until_it_is_told_to_stop(
    tmp_path: Path, temporal_address: str, redis_url: str
) -> None:
    """SIGTERM ends it with exit code 0, and all it logged is JSON."""
    variables = {"TEMPORAL_ADDRESS": temporal_address, "EVERLOOP_REDIS_URL": redis_url}
    process, _ = await started(tmp_path / "log", variables)

    assert process.stop() == 0
    events = [json.loads(line)["event"] for line in process.output.splitlines()]
    assert "gateway ready" in events
    assert events[-1] == "gateway stopped"


async def test_a_gateway_process_sends_clients_to_the_store(tmp_path: Path, temporal_address: str) -> None:
    """With EVERLOOP_S3_PRESIGNED: there the same bytes come, of the same type and under the same name."""
    async with running_valkey(tmp_path) as (_, redis_url), connect_redis(redis_url) as redis:
        with running_moto() as endpoint:
            bucket = new_bucket(endpoint)
            variables = {
                "TEMPORAL_ADDRESS": temporal_address,
                "EVERLOOP_REDIS_URL": redis_url,
                "EVERLOOP_BLOBS": "s3",
                "EVERLOOP_S3_BUCKET": bucket,
                "EVERLOOP_S3_ENDPOINT": endpoint,
                "EVERLOOP_S3_PRESIGNED": "60",
            }
            process, url = await started(tmp_path / "log", variables)
            with closing(S3Blobs(bucket, endpoint=endpoint, presigned=60)) as blobs:
                artifacts = RedisArtifacts(redis, blobs, RedisTaskViews(redis))
                create = Create("task", (NewPart("text", LARGE, filename="a \u202e.md"),), complete=True)
                await artifacts.apply(context_key(ANONYMOUS, "c"), "a", create)
            async with httpx.AsyncClient() as http:
                address = f"{url}/artifacts/c/a/parts/0"
                ours, sent = await http.head(address), await http.get(address)
                theirs = await http.get(sent.headers.get("Location", address))
            exit_code = process.stop()

    assert sent.status_code == 307
    assert sent.headers["Location"].startswith(endpoint)
    assert theirs.content == LARGE
    for name in ("Content-Type", "Content-Disposition"):
        assert theirs.headers[name] == ours.headers[name]
    assert exit_code == 0


def test_a_gateway_runs_on_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its main function chooses the event loop; nothing that it serves tells which one it is."""
    loops: list[str] = []

    async def run(*_: object) -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)

    monkeypatch.setenv("EVERLOOP_AGENTS", AGENTS)
    monkeypatch.setattr(gateway_main, "run", run)

    assert gateway_main.main() == 0
    assert loops == ["uvloop"]


def test_answers_are_sent_at_once() -> None:
    """Connections do not collect small writes (Nagle), which would hold each answer up for 40 ms."""
    with listen(GatewaySettings(port=0)) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_that_takes_nothing_loses_its_connection() -> None:
    """The system cuts it, so that what waits for it is free again."""
    with (
        listen(GatewaySettings(port=0), stalled_after=1) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        connection, _ = listener.accept()
        with connection, pytest.raises(TimeoutError, match="Connection timed out"):
            connection.sendall(b"x" * 64 * 1024 * 1024)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("redis", "Redis at 127.0.0.1:1 cannot be used"),
        ("temporal", "cannot reach Temporal at 127.0.0.1:1"),
        ("port", "set EVERLOOP_HOST and EVERLOOP_PORT"),
        ("setting", "EVERLOOP_PORT: Input should be a valid integer"),
        ("agents", "EVERLOOP_AGENTS: cannot load 'nothing:here'"),
    ],
)
def test_what_stops_a_gateway_at_start_is_one_clear_line(
    tmp_path: Path, temporal_address: str, redis_url: str, wrong: str, words: str
) -> None:
    """Exit code 1 and the last line says what is wrong and what to do; no traceback."""
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1] if wrong == "port" else free_port()
        variables = {
            "TEMPORAL_ADDRESS": "127.0.0.1:1" if wrong == "temporal" else temporal_address,
            "EVERLOOP_REDIS_URL": "redis://127.0.0.1:1/0" if wrong == "redis" else redis_url,
            "EVERLOOP_PORT": "eight" if wrong == "setting" else str(port),
            "EVERLOOP_AGENTS": "nothing:here" if wrong == "agents" else AGENTS,
            "EVERLOOP_TASK_QUEUE": unique("process"),
        }
        code, output = outcome(gateway_process(tmp_path / "log", variables))

    lines = [line for line in output.splitlines() if not line.startswith("{")]
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith("gateway: ")
    assert words in lines[0]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("EVERLOOP_MAX_BODY_BYTES", "0", "EVERLOOP_MAX_BODY_BYTES: Input should be greater than"),
        ("EVERLOOP_MAX_BODY_BYTES", "9000000", "EVERLOOP_MAX_BODY_BYTES: 9000000 is too small for a message"),
        ("EVERLOOP_MAX_MESSAGE_BYTES", "20000000", "EVERLOOP_MAX_BODY_BYTES: 16000000 is too small"),
        ("EVERLOOP_LOG_LEVEL", "loud", "EVERLOOP_LOG_LEVEL: Input should be 'debug', 'info'"),
        ("EVERLOOP_REDIS_URL", "redis://:s3cr/loud@host/0", "EVERLOOP_REDIS_URL: expected redis://"),
    ],
)
def test_a_wrong_setting_is_told_by_its_variable(
    tmp_path: Path, variable: str, value: str, words: str
) -> None:
    """The only line names the variable that was set, what is expected of it, and not what it holds."""
    code, output = outcome(gateway_process(tmp_path / "log", {"EVERLOOP_PORT": "0", variable: value}))

    (line,) = output.splitlines()
    assert code == 1
    assert line.startswith(f"gateway: wrong setting: {words}")
    assert "s3cr" not in line
    assert "loud" not in line

"""`python -m everloop.gateway` as a process: its start, its failures, its end."""

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub

from everloop.gateway.context import ANONYMOUS
from everloop.gateway.http.server import listen
from everloop.gateway.settings import GatewaySettings
from everloop.local.servers import LOOPBACK, free_port
from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.blobs.s3_blobs import S3Blobs
from everloop.workflows.contract.names import context_key
from tests.gateway.harness import PromptModel, unique
from tests.gateway.process.gateways import outcomes, running_process, started
from tests.support.servers.buckets import new_bucket, running_moto
from tests.support.servers.processes import run_everloop, running_valkey
from tests.support.servers.relay import Link, running_relay


async def test_a_gateway_serves_who_has_a_key_until_it_is_told_to_stop(
    tmp_path: Path, temporal_address: str, redis_url: str, queue: str, model: PromptModel
) -> None:
    """SIGTERM ends it with exit code 0.

    An operator makes a key, starts the gateway and calls it, on gRPC too. Open streams are told to reconnect;
    all log lines are JSON, and the key is in none of them.
    """
    keys, grpc_port = str(tmp_path / "keys"), free_port()
    _, printed = await run_everloop({"EVERLOOP_API_KEYS_FILE": keys}, "keys", "add", "acme")
    key = printed.split()[-1]
    variables = {
        "TEMPORAL_ADDRESS": temporal_address,
        "EVERLOOP_REDIS_URL": redis_url,
        "EVERLOOP_TASK_QUEUE": queue,
        "EVERLOOP_HOST": "0.0.0.0",
        "EVERLOOP_GRPC_PORT": str(grpc_port),
        "EVERLOOP_AUTH": "api-key",
        "EVERLOOP_API_KEYS_FILE": keys,
        "EVERLOOP_LOG_LEVEL": "debug",
    }
    prompt, gate = unique("process"), asyncio.Event()
    model.scripts[prompt] = ["one ", gate]
    process, url = await started(tmp_path / "log", variables)
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageSize": 1}}
    async with (
        httpx.AsyncClient(base_url=url, headers={"A2A-Version": "1.0"}) as http,
        grpc.aio.insecure_channel(f"{LOOPBACK}:{grpc_port}") as channel,
    ):
        without = await http.post("/", json=body)
        allowed = await http.post("/", json=body, headers={"X-API-Key": key})
        card = (await http.get("/.well-known/agent-card.json")).json()
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text=prompt)])
        service: Any = A2AServiceStub(channel)
        events: AsyncIterator[pb.StreamResponse] = service.SendStreamingMessage(
            pb.SendMessageRequest(message=message), metadata=(("x-api-key", key),)
        )
        await anext(aiter(events))
        stopping = asyncio.create_task(asyncio.to_thread(process.stop))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            [event async for event in events]
        code = await stopping
    gate.set()
    assert code == 0
    assert without.status_code == 401
    assert "tasks" in allowed.json()["result"]
    assert card["securitySchemes"]["apiKey"]["apiKeySecurityScheme"]["name"] == "X-API-Key"
    assert "call SubscribeToTask" in (ended.value.details() or "")
    assert key.split("_", 2)[2] not in process.output
    logged = [json.loads(line)["event"] for line in process.output.splitlines()]
    assert "gateway ready" in logged
    assert logged[-1] == "gateway stopped"


async def test_a_call_that_outlives_the_grace_period_is_told_to_come_again(
    tmp_path: Path, temporal_address: str, redis_url: str
) -> None:
    """It gets 503 with Retry-After, as for any other outage, and not the 500 of a server that failed."""
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "Hello."}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with running_relay(Link(int(temporal_address.rpartition(":")[2]))) as link:
        variables = {
            "TEMPORAL_ADDRESS": link.address,
            "EVERLOOP_REDIS_URL": redis_url,
            "EVERLOOP_SHUTDOWN_GRACE": "0",
        }
        process, url = await started(tmp_path / "log", variables)
        link.flows.clear()
        async with httpx.AsyncClient(timeout=30, headers={"A2A-Version": "1.0"}) as http:
            sending = asyncio.create_task(http.post(url, json=call))
            await link.until_held()
            exit_code = await asyncio.to_thread(process.stop)
            answer = await sending
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert "another one answers" in answer.json()["error"]["message"]
    assert exit_code == 0


async def test_a_gateway_has_as_many_connections_as_its_system_lets_it(
    tmp_path: Path, temporal_address: str, redis_url: str
) -> None:
    """It raises the soft limit of its shell; connections over the limit get 503, and the others go on.

    No number of gRPC connections takes any from HTTP.
    """
    grpc_port = free_port()
    variables = {
        "TEMPORAL_ADDRESS": temporal_address,
        "EVERLOOP_REDIS_URL": redis_url,
        "EVERLOOP_GRPC_PORT": str(grpc_port),
    }
    async with running_process(tmp_path / "log", variables, limits="ulimit -Sn 50; ulimit -Hn 300") as (
        process,
        url,
    ):
        writers = list[asyncio.StreamWriter]()

        async def ask() -> int:
            reader, writer = await asyncio.open_connection(LOOPBACK, httpx.URL(url).port)
            writers.append(writer)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return int((await reader.readline()).split()[1])

        flood = [await asyncio.open_connection(LOOPBACK, grpc_port) for _ in range(300)]
        statuses = [await ask() for _ in range(80)]
        for _, writer in flood:
            writer.close()
        for writer in writers:
            writer.close()
        while await ask() != 200:
            writers.pop().close()
        writers.pop().close()
    served = statuses.index(503)
    assert (served, set(statuses[:served]), set(statuses[served:])) == (44, {200}, {503})
    assert "300 files, which is too few for 10,000 streams" in process.output


def test_answers_are_sent_at_once() -> None:
    """Connections do not collect small writes (Nagle), which would hold each answer up for 40 ms."""
    with listen(GatewaySettings(port=0)) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_that_takes_nothing_loses_its_connection() -> None:
    """The system cuts it, so that its buffers are free again."""
    with (
        listen(GatewaySettings(port=0), stalled_after=1) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        connection, _ = listener.accept()
        with connection, pytest.raises(TimeoutError, match="Connection timed out"):
            connection.sendall(b"x" * 64 * 1024 * 1024)


SETTING = "wrong setting: EVERLOOP_"
STOPS: list[tuple[dict[str, str], str]] = [
    ({"EVERLOOP_REDIS_URL": "redis://127.0.0.1:1/0"}, "Redis at 127.0.0.1:1 cannot be used"),
    ({"TEMPORAL_ADDRESS": "127.0.0.1:1"}, "cannot reach Temporal at 127.0.0.1:1"),
    ({"EVERLOOP_AGENTS": "nothing:here"}, "EVERLOOP_AGENTS: cannot load 'nothing:here'"),
    ({"EVERLOOP_PORT": "eight"}, f"{SETTING}PORT: Input should be a valid integer"),
    ({"EVERLOOP_MAX_BODY_BYTES": "0"}, f"{SETTING}MAX_BODY_BYTES: Input should be greater than"),
    ({"EVERLOOP_MAX_BODY_BYTES": "9000000"}, f"{SETTING}MAX_BODY_BYTES: 9000000 is too small for a message"),
    ({"EVERLOOP_MAX_MESSAGE_BYTES": "20000000"}, f"{SETTING}MAX_BODY_BYTES: 16000000 is too small"),
    ({"EVERLOOP_LOG_LEVEL": "s3cr"}, f"{SETTING}LOG_LEVEL: Input should be 'debug', 'info'"),
    ({"EVERLOOP_REDIS_URL": "redis://:s3cr/s3cr@host/0"}, f"{SETTING}REDIS_URL: expected redis://"),
    ({"EVERLOOP_AUTH": "s3cr-et"}, f"{SETTING}AUTH: Input should be 'none', 'api-key'"),
    (
        {"EVERLOOP_PUBLIC_URL": "s3cr.example.com"},
        f"{SETTING}PUBLIC_URL: expected an address such as https://",
    ),
    ({"EVERLOOP_MTLS_PROXIES": "s3cr/et"}, f"{SETTING}MTLS_PROXIES: expected addresses"),
    ({"EVERLOOP_REQUEST_BURST": "5"}, "set EVERLOOP_REQUESTS_PER_MINUTE too"),
    ({"EVERLOOP_MAX_OPEN_TASKS": "-1"}, f"{SETTING}MAX_OPEN_TASKS: Input should be greater than"),
    *(
        ({"EVERLOOP_HOST": host, **more}, f"EVERLOOP_HOST is {host!r}: whoever reaches it")
        for host, more in (
            ("0.0.0.0", {}),
            ("::", {}),
            ("0.0.0.0", {"EVERLOOP_AUTH": "none"}),
            ("0.0.0.0", {"EVERLOOP_AUTH_ALLOW_ANONYMOUS": "true"}),
        )
    ),
]
"""Refused starts: no server, a wrong setting, or a port open to all callers."""


def test_what_stops_a_gateway_at_start_is_one_clear_line(temporal_address: str, redis_url: str) -> None:
    """Exit code 1, and the only line names the problem and the remedy; no traceback, and no value."""
    servers = {"TEMPORAL_ADDRESS": temporal_address, "EVERLOOP_REDIS_URL": redis_url}
    with socket.create_server((LOOPBACK, 0)) as taken:
        port, metrics = str(taken.getsockname()[1]), f"{LOOPBACK}:{taken.getsockname()[1]}"
        cases = [
            *STOPS,
            (
                {"EVERLOOP_PORT": port},
                f":{port}: Address already in use; stop what listens there, or set EVERLOOP_HOST",
            ),
            (
                {"EVERLOOP_METRICS_ADDRESS": metrics},
                f"cannot listen on {metrics} for metrics: Address already in",
            ),
        ]
        ends = outcomes(*({**servers, **variables} for variables, _ in cases))
    for (variables, words), (code, output) in zip(cases, ends, strict=True):
        lines = [line for line in output.splitlines() if not line.startswith("{")]
        assert (code, len(lines)) == (1, 1), (variables, output)
        assert lines[0].startswith("gateway: "), variables
        assert words in lines[0], variables
        assert "s3cr" not in output
        assert "gateway ready" not in output


async def test_a_gateway_process_sends_clients_to_the_store(tmp_path: Path, temporal_address: str) -> None:
    """With EVERLOOP_S3_PRESIGNED the store serves the same bytes, with the same type and name."""
    async with running_valkey(tmp_path) as (_, redis_url), connect_redis(redis_url) as redis:
        with running_moto() as endpoint:
            bucket, content = new_bucket(endpoint), b"0123456789" * 20_000
            variables = {
                "TEMPORAL_ADDRESS": temporal_address,
                "EVERLOOP_REDIS_URL": redis_url,
                "EVERLOOP_BLOBS": "s3",
                "EVERLOOP_S3_BUCKET": bucket,
                "EVERLOOP_S3_ENDPOINT": endpoint,
                "EVERLOOP_S3_PRESIGNED": "60",
            }
            async with running_process(tmp_path / "log", variables) as (_, url), httpx.AsyncClient() as http:
                with closing(S3Blobs(bucket, endpoint=endpoint, presigned=60)) as blobs:
                    artifacts = Artifacts(redis, blobs)
                    part = NewPart("text", content, filename="a \u202e.md")
                    create = Create("task", (part,), complete=True)
                    await artifacts.apply(context_key(ANONYMOUS, "c"), "a", create)
                address = f"{url}/artifacts/c/a/parts/0"
                ours, sent = await http.head(address), await http.get(address)
                theirs = await http.get(sent.headers.get("Location", address))
    assert (sent.status_code, theirs.content) == (307, content)
    assert sent.headers["Location"].startswith(endpoint)
    for name in ("Content-Type", "Content-Disposition"):
        assert theirs.headers[name] == ours.headers[name]

"""What a gateway process may need while many clients send it as much as it takes."""

import asyncio
from http import HTTPStatus
from pathlib import Path

import httpx
import psutil
import pytest

from tests.gateway.process.gateways import running_process
from tests.support.servers.processes import running_valkey

CLIENTS = 50
BODY_BYTES = 16_000_000
GROWTH = 1_600_000_000
"""Bytes: twice the bodies of all. What is read takes some times its size while it is parsed."""


async def peak(process: psutil.Process, sending: "asyncio.Future[list[httpx.Response]]") -> int:
    """Return the most bytes that a process held until the sending was over."""
    most = 0
    while not sending.done():
        most = max(most, process.memory_info().rss)
        await asyncio.wait([sending], timeout=0.02)
    return most


def body(begin: bytes, repeated: bytes, end: bytes) -> bytes:
    """Return a request that is as large as may be."""
    begin = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{' + begin
    return begin + repeated * ((BODY_BYTES - len(begin) - len(end)) // len(repeated)) + end


LARGE = (
    body(b'"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"', b"x", b'"}]}}}'),
    body(b'"metadata":{"a":[', b"[],", b"[]]}}}"),
)
"""A long text, and as many values as fit."""


@pytest.mark.slow
async def test_large_bodies_at_once_take_bounded_memory(tmp_path: Path, temporal_address: str) -> None:
    """Of fifty bodies of 16 MB as many are read as there is room for; the others are to come again."""
    variables = {"TEMPORAL_ADDRESS": temporal_address, "EVERLOOP_BLOB_DIRECTORY": str(tmp_path / "blobs")}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    async with (
        running_valkey(tmp_path) as (_, redis_url),
        running_process(tmp_path / "log", {**variables, "EVERLOOP_REDIS_URL": redis_url}) as (server, url),
    ):
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        async with httpx.AsyncClient(base_url=url, timeout=100) as http:
            posts = (http.post("/", content=LARGE[n % 5 == 0], headers=headers) for n in range(CLIENTS))
            sending = asyncio.gather(*posts)
            most = await peak(process, sending)
            answers = await sending
            after = await http.post(
                "/", json={"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}, headers=headers
            )
    assert most - before < GROWTH
    assert {answer.status_code for answer in answers} <= {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}
    assert {answer.json()["error"]["code"] for answer in answers} <= {-32602, -32700, -32603}
    assert "result" in after.json()

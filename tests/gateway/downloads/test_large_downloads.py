"""A large artifact, downloaded from a gateway process: every byte of it, in flat memory."""

import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from everloop.gateway.context import ANONYMOUS
from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.changes import Append, Create, NewPart
from everloop.stores.artifacts.store import Artifacts, ArtifactSettings, make_artifacts
from everloop.stores.blobs.settings import BlobSettings, opened_blobs
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.names import context_key
from tests.gateway.downloads.site import MIB
from tests.gateway.process.gateways import running_process
from tests.support.servers.processes import ServerProcess, running_valkey

SIZE = 100 * MIB
CONTEXT = "large"
ADDRESS = f"/artifacts/{CONTEXT}/large/parts/0"


@dataclass(frozen=True)
class Process:
    """A gateway process with a Redis and blobs of its own, and the store that it serves from."""

    server: ServerProcess
    http: httpx.AsyncClient
    artifacts: Artifacts
    blobs: Path

    def memory(self, field: str) -> int:
        """Return bytes of memory: VmRSS is what the process uses now, VmHWM the most it ever did."""
        lines = Path(f"/proc/{self.server.pid}/status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith(f"{field}:"))
        return int(line.split()[1]) * 1024


async def put_large(artifacts: Artifacts, size: int) -> str:
    """Write a file piece by piece, and return its sha256."""
    key, digest = context_key(ANONYMOUS, CONTEXT), hashlib.sha256()
    part = NewPart(kind="file", media_type="application/octet-stream")
    await artifacts.apply(key, "large", Create(task_id="task", parts=(part,), override=True))
    for number in range(size // MIB):
        piece = hashlib.sha256(b"%d" % number).digest() * (MIB // 32)
        digest.update(piece)
        last = number == size // MIB - 1
        await artifacts.apply(key, "large", Append(content=piece, last_chunk=last))
    return digest.hexdigest()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def process(tmp_path_factory: pytest.TempPathFactory, temporal_address: str) -> AsyncGenerator[Process]:
    directory = tmp_path_factory.mktemp("downloads")
    settings = BlobSettings(blob_directory=directory / "blobs")
    async with running_valkey(directory) as (_, redis_url), connect_redis(redis_url) as redis:
        variables = {
            "TEMPORAL_ADDRESS": temporal_address,
            "EVERLOOP_REDIS_URL": redis_url,
            "EVERLOOP_BLOB_DIRECTORY": str(settings.blob_directory),
        }
        async with (
            running_process(directory / "gateway.log", variables) as (server, url),
            opened_blobs(settings, redis) as blobs,
            httpx.AsyncClient(base_url=url, timeout=60) as http,
        ):
            artifacts = make_artifacts(ArtifactSettings(), redis, blobs, RedisTaskViews(redis))
            yield Process(server, http, artifacts, settings.blob_directory)


async def test_a_large_file_is_downloaded_in_flat_memory(process: Process) -> None:
    """100 MB, whole, while another client takes nothing of its own download: less than 48 MB above idle."""
    digest = await put_large(process.artifacts, SIZE)
    await process.http.get(ADDRESS, headers={"Range": "bytes=0-0"})
    idle = process.memory("VmRSS")
    read, size = hashlib.sha256(), 0
    async with process.http.stream("GET", ADDRESS) as stalled:
        assert stalled.status_code == 200
        async with process.http.stream("GET", ADDRESS) as answer:
            async for piece in answer.aiter_bytes():
                read.update(piece)
                size += len(piece)
    assert (size, read.hexdigest()) == (SIZE, digest)
    assert process.memory("VmHWM") - idle < 48 * MIB

"""The content of the images is enough to run, and the one-time commands of compose.yaml work."""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from deploy.compose.create_bucket import create_bucket
from everloop.local.servers import LOOPBACK, free_port
from everloop.stores.blobs.blob_settings import BlobSettings
from everloop.workflows.contract.names import SEARCH_ATTRIBUTES
from tests.support.deploy.image_files import fill, hide_what_images_lack
from tests.support.deploy.manifests import COMPOSE
from tests.support.servers.buckets import client_of, running_moto
from tests.support.servers.processes import ServerProcess, wait_until_answers


def _unable_to_write() -> list[str]:
    """Return a command prefix under which root, too, cannot write to read-only files."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0:
        return []
    if not setpriv:
        pytest.skip("root can write everywhere, and setpriv is not here to prevent it")
    return [setpriv, "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all"]


async def _succeeds(url: str) -> bool:
    async with httpx.AsyncClient() as client:
        try:
            return (await client.get(url)).is_success
        except httpx.TransportError:
            return False


async def test_the_files_of_the_images_are_enough(
    tmp_path: Path, temporal_address: str, redis_url: str
) -> None:
    """A worker and a gateway run with the files and packages of the images alone, and write nothing there."""
    app = fill(tmp_path)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    hide_what_images_lack(hidden)
    port, metrics = free_port(), {name: free_port() for name in ("worker", "gateway")}
    environment = {
        "PYTHONPATH": str(hidden),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TEMPORAL_ADDRESS": temporal_address,
        "EVERLOOP_TASK_QUEUE": f"images-{uuid4()}",
        "EVERLOOP_REDIS_URL": redis_url,
        "EVERLOOP_DEMO_LEDGER": str(tmp_path / "ledger.jsonl"),
        "EVERLOOP_PORT": str(port),
        "OPENAI_API_KEY": "none",
        "EVERLOOP_MODEL": "gpt-5",
    }
    started: list[ServerProcess] = []
    for name, script in (("worker", ("-m", "everloop.worker")), ("gateway", ("-m", "everloop.gateway"))):
        address = {"EVERLOOP_METRICS_ADDRESS": f"{LOOPBACK}:{metrics[name]}"}
        python = [*_unable_to_write(), "env", "-C", str(app), sys.executable]
        process = ServerProcess([*python, *script], tmp_path / f"{name}.log", environment | address)
        process.start()
        started.append(process)
    worker, gateway = started
    try:
        for name, process in zip(metrics, started, strict=True):
            asked = f"http://{LOOPBACK}:{metrics[name]}/readyz"
            await wait_until_answers(process, partial(_succeeds, asked), name)
        await wait_until_answers(gateway, partial(_succeeds, f"http://{LOOPBACK}:{port}/readyz"), "gateway")
    finally:
        codes = [process.stop() for process in started]

    assert codes == [0, 0], worker.output + gateway.output
    assert not list(app.rglob("__pycache__"))
    touch = await asyncio.create_subprocess_exec(*_unable_to_write(), "touch", app / "new", stderr=DEVNULL)
    assert await touch.wait() != 0


async def test_the_namespace_of_compose_can_be_made_again_and_again(temporal_address: str) -> None:
    """The script of compose.yaml makes the namespace with our search attributes.

    Repeats change nothing.
    """
    namespace = f"compose-{uuid4()}"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TEMPORAL_ADDRESS": temporal_address,
        "TEMPORAL_NAMESPACE": namespace,
        "RETENTION": "7d",
    }
    script = COMPOSE / "temporal/namespace.sh"
    for _ in range(2):
        done = await asyncio.create_subprocess_exec("sh", script, env=environment, stdout=DEVNULL)
        assert await done.wait() == 0

    client = await Client.connect(temporal_address)
    request = ListSearchAttributesRequest(namespace=namespace)
    listed = await client.operator_service.list_search_attributes(request)
    assert {one.name for one in SEARCH_ATTRIBUTES} <= listed.custom_attributes.keys()


def test_the_bucket_of_compose_can_be_made_again() -> None:
    """It is made once; repeats change nothing."""
    with running_moto() as endpoint:
        settings = BlobSettings(blobs="s3", s3_bucket="everloop", s3_endpoint=endpoint)
        create_bucket(settings)
        create_bucket(settings)

        assert not client_of(endpoint).list_multipart_uploads(Bucket="everloop").get("Uploads")

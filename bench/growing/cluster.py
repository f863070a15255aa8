"""The same tasks on a cluster of one, two and three primaries: what each primary has to do for a task."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from temporalio.client import Client

from bench.sides import Everloop
from bench.stack import AGENT, processor_ms
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.support.rigs.deployment import running_deployment
from tests.support.servers.redis_cluster import running_redis_cluster

SHORT = 5
TASKS = 120
AT_ONCE = 12


async def cluster(directory: Path, model_url: str, primaries: int, say: Callable[[str], None]) -> None:
    """Run tasks of many owners, each with its view, its stream and its transcript, and say what they took."""
    folder = directory / f"primaries-{primaries}"
    folder.mkdir()
    async with (
        running_redis_cluster(folder / "cluster", primaries=primaries) as redis,
        running_deployment(folder, model_url, agents=AGENT, EVERLOOP_REDIS_URL=redis.url) as deployment,
    ):
        temporal = await Client.connect(deployment.temporal_address, data_converter=WIRE_DATA_CONVERTER)
        side = Everloop(temporal, deployment.environment["EVERLOOP_TASK_QUEUE"], deployment.add_worker)
        await side.start_worker()
        await side.run(SHORT)
        servers = [node.process for node in redis.nodes[:primaries]]
        before = [processor_ms(server) for server in servers]
        for _ in range(TASKS // AT_ONCE):
            await asyncio.gather(*(side.run(SHORT) for _ in range(AT_ONCE)))
        used = [(processor_ms(server) - early) / TASKS for server, early in zip(servers, before, strict=True)]
        each = ", ".join(f"{ms:.1f}" for ms in used)
        say(f"{primaries} primaries: {each} ms a task on each, {sum(used):.1f} ms on all")

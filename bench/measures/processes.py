"""Resources of an idle worker and an idle gateway, and their start time."""

import time

from bench.rows import Row, Samples
from bench.stack import Stack, memory_of
from tests.support.servers.processes import ServerProcess


async def processes(stack: Stack, rounds: int) -> list[Row]:
    """Start additional ones."""
    worker, gateway = Samples(), Samples()
    memory: dict[str, Samples] = {"worker": [], "gateway": []}
    for _ in range(rounds):
        begin = time.perf_counter()
        one = await stack.deployment.add_worker()
        worker.append(time.perf_counter() - begin)
        memory["worker"].append(_weigh_and_stop(one))
        begin = time.perf_counter()
        other = await stack.deployment.add_gateway()
        gateway.append(time.perf_counter() - begin)
        memory["gateway"].append(_weigh_and_stop(other.process))
    starts = {"worker": worker, "gateway": gateway}
    return [
        *(Row(f"{name}, start", "s", min(found), samples={"all": found}) for name, found in starts.items()),
        *(Row(f"{name}, idle", "MiB", max(found), samples={"all": found}) for name, found in memory.items()),
    ]


def _weigh_and_stop(process: ServerProcess) -> float:
    memory = memory_of(process)
    process.stop()
    return memory

"""`python -m everloop.gateway` as a process, and several of them that exit at once."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from everloop.local.servers import LOOPBACK, free_port
from tests.support.servers.processes import INHERITED, ROOT, ServerProcess, wait_until_answers

AGENTS = "tests.gateway.harness:AGENT"

_EACH_IN_A_COPY = """
import gc, json, os, sys
import everloop.gateway.app, tests.gateway.harness  # main loads them
from everloop.gateway.__main__ import main
gc.freeze()  # else each copy writes to the pages of all objects when it looks for garbage
ends = []
for variables in json.load(sys.stdin):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writing, 1), os.dup2(writing, 2)
        os.environ.update(variables)
        code = main()
        sys.stdout.flush()
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as said:
        output = said.read()
    ends.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output))
print(json.dumps(ends))
"""


def outcomes(*variables: Mapping[str, str]) -> list[tuple[int, str]]:
    """Run a gateway with each of these settings to its end; return exit codes, and what they wrote.

    They are copies of one process: to load all modules takes longer than anything else they do.
    """
    settings = [{"EVERLOOP_AGENTS": AGENTS, "EVERLOOP_PORT": "0", **INHERITED, **each} for each in variables]
    ran = subprocess.run(
        [sys.executable, "-c", _EACH_IN_A_COPY],
        cwd=ROOT,
        input=json.dumps(settings).encode(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=250,
    )
    return [(code, output) for code, output in json.loads(ran.stdout)]


def gateway_process(log: Path, variables: Mapping[str, str], limits: str = "") -> ServerProcess:
    """Return a gateway that is not started; `limits`: what its shell does first."""
    command = [sys.executable, "-m", "everloop.gateway"]
    limited = ["sh", "-c", f'{limits}; exec "$@"', "sh", *command] if limits else command
    return ServerProcess(limited, log, {"EVERLOOP_AGENTS": AGENTS, **variables})


async def started(log: Path, variables: Mapping[str, str], limits: str = "") -> tuple[ServerProcess, str]:
    """Start a gateway on a free port; return it when it answers, and its address."""
    port = free_port()
    process = gateway_process(log, {"EVERLOOP_PORT": str(port), **variables}, limits)
    url = f"http://{LOOPBACK}:{port}"
    process.start()

    async def ready() -> bool:
        async with httpx.AsyncClient(base_url=url) as http:
            try:
                return (await http.get("/readyz")).is_success
            except httpx.TransportError:
                return False

    await wait_until_answers(process, ready, "gateway")
    return process, url


@asynccontextmanager
async def running_process(
    log: Path, variables: Mapping[str, str], limits: str = ""
) -> AsyncGenerator[tuple[ServerProcess, str]]:
    """Run a gateway until the block ends; yield it when it answers, and its address."""
    process, url = await started(log, variables, limits)
    try:
        yield process, url
    finally:
        process.stop()

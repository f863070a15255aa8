"""Modules loaded by idle processes: each MiB counts for every worker and gateway."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.rigs.deployment import running_deployment
from tests.support.servers.processes import ServerProcess, until

AGENT = """
import gc, signal, sys
from everloop import Agent

def say(*_):
    print("loaded:", *sys.modules, file=sys.stderr)
    print("watched:", len(gc.get_objects()), "of", gc.get_freeze_count(), file=sys.stderr, flush=True)

async def echo(turn):
    return turn.messages[-1]

signal.signal(signal.SIGUSR1, say)
agent = Agent(id="idle", name="Idle", description="Has nothing to do.", {settings})
"""
"""Prints the modules of its process, and the number of objects that garbage collections examine."""

UNUSED = {
    "a2a.client",  # peers
    "a2a.server.request_handlers",  # the SDK's server, for clients of A2A 0.3
    "aiologic",  # its queues
    "boto3",  # blobs in S3
    "cryptography.hazmat.bindings",  # keys, of any kind
    "everloop.models.provider_client",  # models
    "everloop.workflows.agent_task",  # tasks
    "grpc",  # the binding, on a port that is not set
    "httpcore",  # webhooks
    "httpx",  # servers of others
    "httpx2",  # models
    "jsonschema_rs",  # schemas of others
    "jwt",  # callers with tokens
    "mcp",  # MCP servers
    "openai",
    "opentelemetry.exporter",  # traces and metrics
    "opentelemetry.sdk",  # likewise
    "prometheus_client",  # metrics
    "rich",
    "temporalio.contrib.opentelemetry",  # traces
    "temporalio.testing",
    "tiktoken",  # the data of an encoding
}
"""By the reason for loading; modules that libraries load for no reason have none.

Less than a MiB does not count.
"""


OF_WORKERS = {"everloop.workflows.agent_task"}
OF_MODELS = {"everloop.models.provider_client", "httpx", "httpx2", "openai", "rich"}
"""The first call does not wait for the SDK, whose HTTP client loads `rich` for its command line (4 MiB)."""


@pytest.mark.parametrize(
    ("kind", "settings", "used"),
    [
        ("worker", "respond=echo", OF_WORKERS),
        ("worker", 'model="m"', OF_WORKERS | OF_MODELS),
        ("gateway", 'model="m"', set[str]()),
    ],
)
async def test_an_idle_process_has_loaded_nothing_that_it_does_not_use(
    tmp_path: Path, kind: str, settings: str, used: set[str]
) -> None:
    """After its start, with all wired. Collections do not examine objects that stay for good."""
    agent = tmp_path / "idle.py"
    agent.write_text(AGENT.replace("{settings}", settings))
    async with running_deployment(tmp_path, "http://127.0.0.1:9/v1", agents=str(agent)) as everloop:
        # With a variable of OTEL_* it is not a copy of a process that has loaded everything.
        if kind == "worker":
            process = await everloop.add_worker(OTEL_SERVICE_NAME="idle")
        else:
            process = (await everloop.add_gateway(OTEL_SERVICE_NAME="idle")).process
        loaded, watched, kept = await _asked(process)
    assert loaded & UNUSED == used
    assert watched < kept / 2


async def _asked(process: ServerProcess) -> tuple[set[str], int, int]:
    os.kill(process.pid, signal.SIGUSR1)
    answer = re.compile(r"^loaded: (.*)\nwatched: (\d+) of (\d+)\n", re.MULTILINE)
    await until(lambda: answer.search(process.output))
    said = answer.search(process.output)
    assert said
    return set(said[1].split()), int(said[2]), int(said[3])

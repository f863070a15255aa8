"""The script of examples/deploy moves new tasks of a real Everloop to a build, and back if they fail."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import TaskState

from tests.support.a2a_client import connected
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.rigs.operator import Harness, in_state, until
from tests.support.servers.processes import ROOT
from tests.support.servers.scripted_openai import Refusal, Reply, ScriptedOpenAI

AGENT = "tests.support.agents.operator:agent"
COMPLETED, FAILED = TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED
RAMPS = (
    *("worker", "deployment", "set-ramping-version", "--deployment-name", "everloop"),
    *("--build-id", "2", "--percentage", "100", "--yes"),
)
EVERLOOP = f'#!/bin/sh\nexec "{sys.executable}" -m everloop "$@"\n'


async def _ramp(everloop: Deployment, build: str) -> tuple[int | None, str]:
    """Run the script, with all of the ramp at once and without waiting."""
    command = everloop.directory / "bin" / "everloop"
    command.parent.mkdir(exist_ok=True)
    command.write_text(EVERLOOP)
    command.chmod(0o755)
    told = {**os.environ, **everloop.environment, "PERCENT": "100", "SECONDS_WATCHED": "0"}
    process = await asyncio.create_subprocess_exec(
        ROOT / "examples/deploy/rollout/ramp.sh",
        build,
        cwd=ROOT,
        env={**told, "PATH": f"{command.parent}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def _current(harness: Harness) -> str:
    described = await harness.ask("worker", "deployment", "describe", "--name", "everloop")
    return str(described["routingConfig"]["currentVersionBuildID"])


@pytest.mark.slow
async def test_a_build_takes_over_unless_its_tasks_fail(tmp_path: Path) -> None:
    """The first one is current at once; a bad one loses its share again; a good one takes all."""
    async with (
        ScriptedOpenAI() as model,
        running_deployment(tmp_path, model.base_url, agents=AGENT) as everloop,
    ):
        harness = Harness(everloop, await everloop.add_gateway())
        model.script = harness.answer
        async with connected(harness.gateway.url) as client:
            for build in ("1", "2", "3"):
                everloop.environment["EVERLOOP_BUILD_ID"] = build
                await everloop.add_worker()
                if build == "2":
                    await until(lambda: harness.tries(*RAMPS))
                    bad, _ = await harness.start(client, Refusal(401, "wrong_key"))
                    await in_state(client, bad, FAILED)
                    await until(lambda: harness.found("TaskState = 'failed'"))
                code, output = await _ramp(everloop, build)
                assert code == (1 if build == "2" else 0), output
                assert await _current(harness) == {"1": "1", "2": "1", "3": "3"}[build]
                good, _ = await harness.start(client, Reply(["Done."]))
                await in_state(client, good, COMPLETED)

"""Third-party model servers from packages: aimock (npm) and LiteLLM's proxy (PyPI).

They are installed only where a test asks for it: neither is a dependency of Everloop, and LiteLLM's own
dependencies conflict with ours. The versions are pinned here.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import yaml
from pydantic import JsonValue

from everloop.local.servers import LOOPBACK, free_port
from tests.support.servers.processes import ServerProcess, wait_until_answers

AIMOCK = "@copilotkit/aimock@1.43.0"
LITELLM = "litellm[proxy]==1.104.0"
LITELLM_KEY = "sk-made-up-for-the-proxy-0123456789abcdef"  # it takes no shorter one
"""The key that the proxy requires of its clients."""


class NotInstallableError(Exception):
    """This machine lacks the installer of the server."""


async def install_aimock(directory: Path) -> Path:
    """Install aimock, and return its command.

    Raises:
        NotInstallableError: Node is missing, or npm does not get the package.
    """
    if not (shutil.which("node") and shutil.which("npm")):
        raise NotInstallableError("node and npm are not installed")
    await _run(["npm", "install", "--prefix", str(directory), "--no-audit", "--no-fund", AIMOCK], AIMOCK)
    return directory / "node_modules" / ".bin" / "llmock"


async def install_litellm(directory: Path) -> Path:
    """Install LiteLLM in an environment of its own, and return its command.

    Raises:
        NotInstallableError: Pip does not get the packages.
    """
    await _run([sys.executable, "-m", "venv", str(directory)], "a virtual environment")
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    await _run([*pip, LITELLM], LITELLM)
    return directory / "bin" / "litellm"


async def _run(command: Sequence[str], what: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    await process.communicate()
    if process.returncode:
        # Its output may name the index, and is not shown; the command can be run by hand.
        raise NotInstallableError(f"{what} cannot be installed: {command[0]} failed")


@asynccontextmanager
async def running_aimock(
    command: Path, directory: Path, fixtures: Sequence[Mapping[str, JsonValue]]
) -> AsyncGenerator[str]:
    """Yield its address; a request without a matching fixture fails."""
    path = directory / "fixtures.json"
    path.write_text(json.dumps({"fixtures": [*fixtures]}), encoding="utf-8")
    port = free_port()
    server = ServerProcess(
        [str(command), "-p", str(port), "-f", str(path), "-c", "5", "--strict"], directory / "aimock.log"
    )
    async with _running(server, f"http://{LOOPBACK}:{port}", "/health") as url:
        yield url


@asynccontextmanager
async def running_litellm(
    command: Path, directory: Path, models: Mapping[str, Mapping[str, str]]
) -> AsyncGenerator[str]:
    """Yield its address; `models` are its parameters by the name of a model."""
    path = directory / "litellm.yaml"
    listed = [{"model_name": name, "litellm_params": {**parameters}} for name, parameters in models.items()]
    path.write_text(yaml.safe_dump({"model_list": listed}), encoding="utf-8")
    port = free_port()
    environment = {"LITELLM_MASTER_KEY": LITELLM_KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    arguments = ["--config", str(path), "--host", LOOPBACK, "--port", str(port), "--telemetry", "False"]
    server = ServerProcess([str(command), *arguments], directory / "litellm.log", environment)
    async with _running(server, f"http://{LOOPBACK}:{port}", "/health/liveliness") as url:
        yield url


@asynccontextmanager
async def _running(server: ServerProcess, url: str, health: str) -> AsyncGenerator[str]:
    async def answers() -> bool:
        async with httpx.AsyncClient() as client:
            try:
                return (await client.get(url + health)).is_success
            except httpx.TransportError:
                return False

    server.start()
    try:
        await wait_until_answers(server, answers, url)
        yield url
    finally:
        server.stop()

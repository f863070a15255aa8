"""A client and a model server for tests of deployments in containers."""

import asyncio
from collections.abc import Mapping
from uuid import uuid4

import httpx
import orjson

from tests.containers.engine import ROOT, Engine

MODEL = """
import uvicorn
from everloop.local.demo_model.model_server import build_app
from everloop.local.demo_model.script import answer
uvicorn.run(build_app(answer, delay=0.05), host="0.0.0.0", port=8000, log_level="warning")
"""


def start_model(engine: Engine, network: str, name: str, image: str) -> None:
    """Serve the demo model as http://model:8000/v1 on a network, from an image of the worker."""
    engine.podman(
        *("run", "--detach", "--name", name, "--network", network, "--network-alias", "model"),
        *(
            "-v",
            f"{ROOT}/everloop/local:/app/everloop/local:ro",
            "--entrypoint",
            "python",
            image,
            "-c",
            MODEL,
        ),
    )


class Client:
    """Sends to the proxy, and retries during outages."""

    def __init__(self, url: str, key: str) -> None:
        self.key = key
        self._http = httpx.AsyncClient(
            base_url=url, timeout=30, headers={"A2A-Version": "1.0", "X-API-Key": key}
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, text: str) -> str:
        """Send a message until it is accepted, always the same one; return the task."""
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        task = await self._ask("SendMessage", params)
        return task["task"]["id"]

    async def wait_for(self, task_id: str, *states: str) -> dict[str, dict[str, str]]:
        """Read the task until it is in one of the states."""
        while True:
            task = await self._ask("GetTask", {"id": task_id})
            if task["status"]["state"].removeprefix("TASK_STATE_").lower() in states:
                return task
            await asyncio.sleep(0.5)

    async def _ask(self, method: str, params: Mapping[str, object]) -> dict[str, dict[str, str]]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        while True:
            try:
                answer = await self._http.post("", json=body)
                if answer.status_code < 500 and "result" in (said := orjson.loads(answer.content)):
                    return said["result"]
                assert answer.status_code in {429, 502, 503, 504}, answer.text
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.5)

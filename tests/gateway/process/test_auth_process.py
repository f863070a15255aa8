"""`python -m everloop.gateway` and its settings of authentication: when it starts, and what it then tells."""

import asyncio
import os
import sys
from pathlib import Path

import httpx
import pytest

from tests.gateway.process.test_process import gateway_process, outcome, started

HOLES = {
    "everywhere": {"EVERLOOP_HOST": "0.0.0.0"},
    "everywhere in IPv6": {"EVERLOOP_HOST": "::"},
    "said once": {"EVERLOOP_HOST": "0.0.0.0", "EVERLOOP_AUTH": "none"},
    "not said": {"EVERLOOP_HOST": "0.0.0.0", "EVERLOOP_AUTH_ALLOW_ANONYMOUS": "true"},
}


@pytest.mark.parametrize("variables", HOLES.values(), ids=HOLES)
def test_a_gateway_does_not_start_open_to_everybody(tmp_path: Path, variables: dict[str, str]) -> None:
    """One line says what to set; no port was opened, no server asked."""
    process = gateway_process(tmp_path / "log", {"EVERLOOP_PORT": "0", **variables})
    code, output = outcome(process)

    (line,) = [line for line in output.splitlines() if not line.startswith("{")]
    assert code == 1
    assert line.startswith(f"gateway: EVERLOOP_HOST is {variables['EVERLOOP_HOST']!r}: whoever reaches it")
    assert "gateway ready" not in output


def test_a_wrong_setting_shows_nothing_of_its_value(tmp_path: Path) -> None:
    """A secret that was put into the wrong variable does not end in a log."""
    variables = {"EVERLOOP_AUTH": "s3cr-et", "EVERLOOP_MTLS_PROXIES": "s3cr/et"}
    code, output = outcome(gateway_process(tmp_path / "log", {"EVERLOOP_PORT": "0", **variables}))

    assert code == 1
    assert "EVERLOOP_AUTH: Input should be 'none', 'api-key'" in output
    assert "EVERLOOP_MTLS_PROXIES: expected addresses" in output
    assert "s3cr" not in output


async def test_a_gateway_everywhere_serves_who_has_a_key(
    tmp_path: Path, temporal_address: str, redis_url: str
) -> None:
    """The whole way of an operator: make a key, start, call; the key is in no log."""
    keys = str(tmp_path / "keys")
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everloop", "keys", "add", "acme"),
        env={**os.environ, "EVERLOOP_API_KEYS_FILE": keys},
        stdout=asyncio.subprocess.PIPE,
    )
    key = (await command.communicate())[0].decode().strip()
    variables = {
        "TEMPORAL_ADDRESS": temporal_address,
        "EVERLOOP_REDIS_URL": redis_url,
        "EVERLOOP_HOST": "0.0.0.0",
        "EVERLOOP_AUTH": "api-key",
        "EVERLOOP_API_KEYS_FILE": keys,
        "EVERLOOP_LOG_LEVEL": "debug",
    }
    process, url = await started(tmp_path / "log", variables)
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageSize": 1}}
    async with httpx.AsyncClient(base_url=url, headers={"A2A-Version": "1.0"}) as http:
        without = await http.post("/", json=body)
        allowed = await http.post("/", json=body, headers={"X-API-Key": key})
        card = (await http.get("/.well-known/agent-card.json")).json()
    code = process.stop()

    assert code == 0
    assert without.status_code == 401
    assert allowed.json()["result"]["tasks"] == []
    assert card["securitySchemes"]["apiKey"]["apiKeySecurityScheme"]["name"] == "X-API-Key"
    assert key not in process.output
    assert key.split("_", 2)[2] not in process.output

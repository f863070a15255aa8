"""A gateway that stops while a call cannot be answered."""

import asyncio
import uuid
from pathlib import Path

import httpx

from tests.chaos.link import running_link
from tests.gateway.process.test_process import started


async def test_a_call_that_outlives_the_grace_period_is_told_to_come_again(
    tmp_path: Path, temporal_address: str, redis_url: str
) -> None:
    """It gets 503 with Retry-After, as for any other outage, and not the 500 of a server that failed."""
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "Hello."}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with running_link(int(temporal_address.rpartition(":")[2])) as link:
        variables = {
            "TEMPORAL_ADDRESS": link.address,
            "EVERLOOP_REDIS_URL": redis_url,
            "EVERLOOP_SHUTDOWN_GRACE": "0",
        }
        process, url = await started(tmp_path / "log", variables)
        link.flows.clear()
        async with httpx.AsyncClient(timeout=30, headers={"A2A-Version": "1.0"}) as http:
            sending = asyncio.create_task(http.post(url, json=call))
            await link.until_held()
            exit_code = await asyncio.to_thread(process.stop)
            answer = await sending

    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert "another one answers" in answer.json()["error"]["message"]
    assert exit_code == 0

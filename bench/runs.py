"""Single runs of measurements through a gateway: a message, a stream; and the runs of a workflow."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypedDict
from uuid import uuid4

import httpx
import orjson

from bench.orders import Order, TokenAges
from bench.stack import Stack

HEADERS = {"Content-Type": "application/json", "A2A-Version": "1.0"}


class _Request(TypedDict):
    content: bytes
    headers: dict[str, str]


async def runs_of(stack: Stack, workflow_id: str) -> list[str]:
    """Return the ids of all runs of a workflow, oldest first."""
    runs: list[str] = []
    run_id = (await stack.temporal.get_workflow_handle(workflow_id).describe()).run_id
    while run_id:
        runs.insert(0, run_id)
        handle = stack.temporal.get_workflow_handle(workflow_id, run_id=run_id)
        started = await anext(handle.fetch_history_events(page_size=1))
        run_id = started.workflow_execution_started_event_attributes.continued_execution_run_id
    return runs


async def send_message(stack: Stack, order: Order) -> None:
    """Send a message and wait until its task has completed."""
    await _sent(stack, order)


async def send_question(stack: Stack, order: Order) -> str:
    """Send a message whose task asks its user; return the id of the task, which waits."""
    task = await _sent(stack, order, state="TASK_STATE_INPUT_REQUIRED")
    return task["id"]


async def send_answer(stack: Stack, task_id: str) -> None:
    """Answer such a task, and wait until it has completed."""
    await _sent(stack, "red", task_id)


async def ask_gateway(stack: Stack, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call of the gateway."""
    return await result_of(stack.http, stack.gateway_url, method, params)


async def result_of(http: httpx.AsyncClient, url: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call of a server."""
    response = await http.post(url, **_call(method, params))
    answer = orjson.loads(response.content)
    assert "result" in answer, f"{method} was answered with {answer}"
    return answer["result"]


async def ask_for_artifact(stack: Stack, megabytes: int) -> str:
    """Order a tool to write a file, and return its download URL."""
    task = await _sent(stack, {"megabytes": megabytes})
    (part,) = (p for artifact in task["artifacts"] for p in artifact["parts"] if p.get("url"))
    return part["url"]


async def time_to_first_event(stack: Stack) -> float:
    """Return the milliseconds from sending a message to its first event; the stream is read to its end."""
    begin = time.perf_counter()
    first = None
    async with aclosing(streamed(stack.http, stack.gateway_url, message_of({"iterations": 0}))) as lines:
        async for _ in lines:
            first = first or time.perf_counter()
    assert first, "the stream had no event"
    return (first - begin) * 1000


async def stream_task(stack: Stack, tokens: int, rate: float) -> list[float]:
    """Return the age of each token of a streamed answer when its event arrived, in milliseconds."""
    ages = TokenAges()
    async with aclosing(
        streamed(stack.http, stack.gateway_url, message_of({"tokens": tokens, "rate": rate}))
    ) as lines:
        async for line in lines:
            ages.read(line)
    assert len(ages.milliseconds) == tokens, f"{len(ages.milliseconds)} of {tokens} tokens arrived"
    return ages.milliseconds


async def stream_echo(stack: Stack, tokens: int, rate: float) -> list[float]:
    """Return the same for the bare echo server."""
    ages = TokenAges()
    url = f"{stack.echo_url}?tokens={tokens}&rate={rate}"
    async with stack.http.stream("GET", url) as response:
        async for line in response.aiter_lines():
            ages.read(line)
    assert len(ages.milliseconds) == tokens, f"{len(ages.milliseconds)} of {tokens} tokens arrived"
    return ages.milliseconds


async def _sent(
    stack: Stack, order: Order | str, task_id: str = "", *, state: str = "TASK_STATE_COMPLETED"
) -> dict[str, Any]:
    task = (await ask_gateway(stack, "SendMessage", message_of(order, task_id)))["task"]
    assert task["status"]["state"] == state, f"SendMessage was answered with {task}"
    return task


async def streamed(http: httpx.AsyncClient, url: str, message: dict[str, Any]) -> AsyncGenerator[str]:
    """Yield the data lines that answer a message, as they arrive."""
    async with http.stream("POST", url, **_call("SendStreamingMessage", message)) as response:
        assert response.headers["content-type"].startswith("text/event-stream"), await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                yield line


def message_of(order: Order | str, task_id: str = "") -> dict[str, Any]:
    """Return the parameters of a call that sends an order, or a text."""
    text = order if isinstance(order, str) else orjson.dumps(order).decode()
    message: dict[str, Any] = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": {**message, "taskId": task_id} if task_id else message}


def _call(method: str, params: dict[str, Any]) -> _Request:
    body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
    return {"content": orjson.dumps(body), "headers": HEADERS}

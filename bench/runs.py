"""One run of what is measured: a task, the floor's workflow, a message, a stream."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, TypedDict
from uuid import uuid4

import orjson
from temporalio.client import WorkflowHandle

from bench.agent import agent
from bench.servers.floor_workflow import Floor
from bench.stack import Stack
from bench.tokens import TokenAges
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.tasks import TaskInput, TaskResult

RESULT_BYTES = 2000
"""Size of a tool's result."""

Order = dict[str, int | float]

Run = WorkflowHandle[Floor, None] | WorkflowHandle[AgentTask, TaskResult]

HEADERS = {"Content-Type": "application/json", "A2A-Version": "1.0"}


class _Request(TypedDict):
    content: bytes
    headers: dict[str, str]


def iterations_order(iterations: int, size: int = RESULT_BYTES) -> Order:
    """Return the order for so many iterations, each with a tool result of `size` bytes, and an answer."""
    return {"iterations": iterations, "size": size}


async def run_floor(stack: Stack, iterations: int) -> Run:
    """Run the floor's workflow to its end."""
    handle = await stack.temporal.start_workflow(
        Floor.run, iterations, id=f"floor-{uuid4()}", task_queue=stack.floor_queue
    )
    await handle.result()
    return handle


async def run_task(stack: Stack, iterations: int, *, size: int = RESULT_BYTES) -> Run:
    """Run a task to its end without a gateway."""
    task_id = str(uuid4())
    text = orjson.dumps(iterations_order(iterations, size)).decode()
    task = TaskInput(
        context_id=task_id,
        owner="bench",
        agent=agent.spec,
        message=UserMessage(message_id=task_id, parts=(TextPart(text=text),)),
        created_at=datetime.now(UTC),
    )
    handle = await stack.temporal.start_workflow(
        names.WORKFLOW_TYPE, task, id=task_id, task_queue=stack.task_queue, result_type=TaskResult
    )
    result = await handle.result()
    assert result.iterations == iterations + 1, f"the task took {result.iterations} iterations"
    return handle


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
    await _completed(stack, order)


async def ask_for_artifact(stack: Stack, megabytes: int) -> str:
    """Let a tool write a file, and return where it can be downloaded."""
    task = await _completed(stack, {"megabytes": megabytes})
    (part,) = (p for artifact in task["artifacts"] for p in artifact["parts"] if p.get("url"))
    return part["url"]


async def time_to_first_event(stack: Stack) -> float:
    """Return the milliseconds from sending a message to its first event; the stream is read to its end."""
    begin = time.perf_counter()
    first = None
    async with aclosing(_streamed(stack, {"iterations": 0})) as lines:
        async for _ in lines:
            first = first or time.perf_counter()
    assert first, "the stream had no event"
    return (first - begin) * 1000


async def stream_task(stack: Stack, tokens: int, rate: float) -> list[float]:
    """Return how old each token of a streamed answer was when its event arrived, in milliseconds."""
    ages = TokenAges()
    async with aclosing(_streamed(stack, {"tokens": tokens, "rate": rate})) as lines:
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


async def _completed(stack: Stack, order: Order) -> dict[str, Any]:
    response = await stack.http.post(stack.gateway_url, **_request("SendMessage", order))
    answer = orjson.loads(response.content)
    task = answer.get("result", {}).get("task", {})
    state = task.get("status", {}).get("state")
    assert state == "TASK_STATE_COMPLETED", f"SendMessage was answered with {answer}"
    return task


async def _streamed(stack: Stack, order: Order) -> AsyncGenerator[str]:
    """Yield the data lines that answer a message, as they arrive."""
    request = _request("SendStreamingMessage", order)
    async with stack.http.stream("POST", stack.gateway_url, **request) as response:
        assert response.headers["content-type"].startswith("text/event-stream"), await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                yield line


def _request(method: str, order: Order) -> _Request:
    message = {
        "messageId": str(uuid4()),
        "role": "ROLE_USER",
        "parts": [{"text": orjson.dumps(order).decode()}],
    }
    body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": {"message": message}}
    return {"content": orjson.dumps(body), "headers": HEADERS}

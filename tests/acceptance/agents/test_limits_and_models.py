"""Where a task stops by itself, and how it goes on when a model, a prompt or a tool fails."""

import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import Task, TaskState
from google.protobuf.json_format import MessageToDict
from temporalio.client import Client

from everloop.activities.model.failures import MODEL_FAILURES
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.acceptance.conftest import Steady
from tests.support.a2a_client import connected, request, response_of, send
from tests.support.rigs.deployment import running_deployment
from tests.support.servers.scripted_openai import (
    Answer,
    ReceivedRequest,
    Refusal,
    Reply,
    ScriptedOpenAI,
    tool_call,
)

PRICES = {"first": {"input": 1.0, "output": 0.0}, "second": {"input": 0.1, "output": 0.0}}
"""US dollars per million tokens."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def limited(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[Steady, str]]:
    """A deployment of the limited agent, and the address of its Temporal."""
    directory = tmp_path_factory.mktemp("limited")
    agents = "tests.support.agents.limited:agent"
    async with (
        ScriptedOpenAI() as model,
        running_deployment(
            directory, model.base_url, agents=agents, EVERLOOP_PRICES=json.dumps(PRICES)
        ) as everloop,
    ):
        await everloop.add_worker()
        gateway = await everloop.add_gateway()
        yield Steady(model, (gateway, gateway)), everloop.temporal_address


async def _run(steady: Steady) -> Task:
    steady.model.requests.clear()
    async with connected(steady.url, streaming=False) as client:
        return await send(client, request("Go."))


def _note(number: int, tool: str = "note", usage: tuple[int, int] = (10, 5)) -> Reply:
    return Reply([tool_call(tool, '{"text": "x"}')], usage=usage)


async def test_a_task_stops_at_its_cost(limited: tuple[Steady, str]) -> None:
    """The status names the limit; usage and cost stand in the metadata of the task."""
    steady, _ = limited
    steady.model.script = [_note(n, usage=(600_000, 0)) for n in range(5)]

    task = await _run(steady)

    assert task.status.state == TaskState.TASK_STATE_FAILED
    assert MessageToDict(task.status.message.metadata) == {"reason": "CostLimit"}
    assert "Limits(cost=...)" in task.status.message.parts[0].text
    usage = MessageToDict(task.metadata)["usage"]
    assert usage == {"inputTokens": 1_200_000, "outputTokens": 0, "cost": pytest.approx(1.2)}
    assert len(steady.model.requests) == 2


async def test_tools_that_keep_failing_stop_the_task(limited: tuple[Steady, str]) -> None:
    """Each call is tried twice; two iterations in a row in which none worked are enough."""
    steady, _ = limited
    steady.model.script = [_note(n, "fail") for n in range(5)]

    task = await _run(steady)

    assert MessageToDict(task.status.message.metadata) == {"reason": "ToolFailureLimit"}
    assert len(steady.model.requests) == 2


async def test_another_model_stands_in(limited: tuple[Steady, str]) -> None:
    """The first model is refused once; its successor answers this call and those that follow."""
    steady, _ = limited
    steady.model.script = [Refusal(404, "model_not_found"), _note(1), Reply(["Done."])]

    task = await _run(steady)

    assert response_of(task) == "Done."
    assert [received.body["model"] for received in steady.model.requests] == ["first", "second", "second"]


async def test_another_model_stands_in_for_a_busy_one(limited: tuple[Steady, str]) -> None:
    """The first is asked as often as a provider may fail, each time when it said; then the second answers."""
    steady, _ = limited
    busy = Refusal(429, headers={"retry-after-ms": "1"})
    steady.model.script = [*[busy] * MODEL_FAILURES, _note(1), Reply(["Done."])]

    task = await _run(steady)

    assert response_of(task) == "Done."
    assert [received.body["model"] for received in steady.model.requests] == [
        *["first"] * MODEL_FAILURES,
        *["second"] * 2,
    ]


@pytest.mark.slow
async def test_a_task_fails_when_every_provider_stays_busy(limited: tuple[Steady, str]) -> None:
    """The status says how often it was tried, and what is wrong."""
    steady, _ = limited
    steady.model.script = [Refusal(503, headers={"retry-after-ms": "1"})] * (2 * MODEL_FAILURES)

    task = await _run(steady)

    assert task.status.state == TaskState.TASK_STATE_FAILED
    told = task.status.message.parts[0].text
    assert f"gave up after {MODEL_FAILURES} failures: the provider failed (503)" in told
    asked = [str(received.body["model"]) for received in steady.model.requests]
    assert asked == ["first"] * MODEL_FAILURES + ["second"] * MODEL_FAILURES


async def test_another_tool_stands_in(limited: tuple[Steady, str]) -> None:
    """It gets the same arguments, and its result is what the model reads."""
    steady, _ = limited
    steady.model.script = [_note(1, "note_online"), Reply(["Done."])]

    task = await _run(steady)

    assert response_of(task) == "Done."
    assert steady.model.requests[1].tool_results == ["noted: x"]


async def test_a_prompt_that_is_too_long_is_summed_up(limited: tuple[Steady, str]) -> None:
    """The model gets the summary for the older messages; the transcript of the task stays whole."""
    steady, temporal = limited
    asked: list[ReceivedRequest] = []

    def script(received: ReceivedRequest) -> Answer:
        if "tools" not in received.body:
            return Reply(["Four things were noted."])
        if len(received.messages) > 9:
            return Refusal(400, "context_length_exceeded")
        asked.append(received)
        return Reply(["Done."]) if len(asked) > 5 else _note(len(asked))

    steady.model.script = script
    task = await _run(steady)
    client = await Client.connect(temporal, data_converter=WIRE_DATA_CONVERTER)
    handle = client.get_workflow_handle_for(AgentTask.run, task.id)
    transcript = await handle.query(AgentTask.transcript, 0)

    assert response_of(task) == "Done."
    last = [str(message["content"]) for message in asked[-1].conversation]
    assert last[1] == "Go."
    assert "Four things were noted." in last[2]
    roles = [message.role for message in transcript.messages]
    assert roles.count("tool") == 5
    assert roles.count("summary") == 1

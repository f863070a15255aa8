"""Agents that remember, are guarded, give data, use an MCP server, and tell what they do; workers die."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, SendMessageRequest, TaskState
from google.protobuf.json_format import MessageToDict

from tests.acceptance.agents.test_sub_agents import AGENTS, by_model, said_by
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.agents.sub_agents import HINTS, MCP_SERVER, MCP_URL
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.rigs.mcp_rig import http_server
from tests.support.rigs.people import say
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, ScriptedOpenAI, tool_call

COMPLETED = TaskState.TASK_STATE_COMPLETED


@pytest_asyncio.fixture
async def everloop(tmp_path: Path, model: ScriptedOpenAI) -> AsyncGenerator[Deployment]:
    async with running_deployment(tmp_path, model.base_url, agents=AGENTS) as running:
        yield running


def in_context(text: str, context_id: str) -> SendMessageRequest:
    message = request(text)
    message.message.context_id = context_id
    return message


async def test_a_conversation_survives_a_worker(
    model: ScriptedOpenAI, everloop: Deployment, tmp_path: Path
) -> None:
    """The next task of the context begins with all that was said, tool calls and results included, once."""
    gate = tmp_path / "gate"
    gate.touch()
    arguments = json.dumps({"folder": str(tmp_path), "gate": str(gate)})
    model.script = by_model(
        lead=[
            Reply([tool_call("write_once", arguments)]),
            Reply(["Half an ans", asyncio.Event()]),
            Reply(["It is created."]),
            Reply(["As I said."]),
        ]
    )
    worker = await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(f"{gateway.url}/agents/lead", streaming=False) as client:
        sending = asyncio.create_task(send(client, request("Create it.")))
        await model.request(2)
        worker.kill()
        await everloop.add_worker()
        first = await sending
        second = await send(client, in_context("What did you do?", first.context_id))

    assert response_of(second) == "As I said."
    conversation = model.requests[-1].conversation
    roles = [message["role"] for message in conversation]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert [conversation[n]["content"] for n in (0, 3, 4)] == [
        "Create it.",
        "It is created.",
        "What did you do?",
    ]
    assert model.requests[-1].tool_results == ["created"]


async def test_two_tasks_at_once_both_stay_in_the_conversation(
    model: ScriptedOpenAI, everloop: Deployment
) -> None:
    """In order of completion; neither sees the other, which had not ended when it began."""
    slow = asyncio.Event()
    replies = {
        "Begin.": Reply(["Begun."]),
        "Slowly.": Reply(["Slow", slow, " indeed."]),
        "Quickly.": Reply(["Quick."]),
        "And?": Reply(["So."]),
    }

    def reply(received: ReceivedRequest) -> Reply:
        return replies[str(received.conversation[-1]["content"])]

    model.script = reply
    await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(f"{gateway.url}/agents/lead", streaming=False) as client:
        context = (await send(client, request("Begin."))).context_id
        slowly = asyncio.create_task(send(client, in_context("Slowly.", context)))
        await model.request(2)
        await send(client, in_context("Quickly.", context))
        slow.set()
        await slowly
        await send(client, in_context("And?", context))

    assert [message["content"] for message in model.requests[2].conversation] == [
        "Begin.",
        "Begun.",
        "Quickly.",
    ]
    assert [message["content"] for message in model.requests[-1].conversation] == [
        "Begin.",
        "Begun.",
        "Quickly.",
        "Quick.",
        "Slowly.",
        "Slow indeed.",
        "And?",
    ]


async def test_a_guard_keeps_a_tool_from_running(model: ScriptedOpenAI, everloop: Deployment) -> None:
    """The model reads why, and goes on."""
    model.script = by_model(
        lead=[Reply([tool_call("repeat", '{"text": "x", "times": 3}')]), Reply(["I may not."])]
    )
    await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(f"{gateway.url}/agents/lead", streaming=False) as client:
        task = await send(client, request("Repeat."))

    assert response_of(task) == "I may not."
    (result,) = model.requests[-1].tool_results
    assert "xxx" not in result
    assert "repeat" in result


@pytest.mark.slow
async def test_what_a_guard_lets_people_approve_survives_a_worker(
    model: ScriptedOpenAI, everloop: Deployment, tmp_path: Path
) -> None:
    """The worker that asked is gone when people answer; the call runs once."""
    ledger = tmp_path / "ledger"
    arguments = json.dumps({"ledger": str(ledger), "gate": ""})
    model.script = by_model(lead=[Reply([tool_call("write_line", arguments)]), Reply(["Written."])])
    worker = await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(f"{gateway.url}/agents/lead", streaming=False) as client:
        parked = await send(client, request("Write."))
        before = ledger.exists()
        worker.kill()
        await everloop.add_worker()
        task = await send(client, say(parked.id, "yes"))

    assert parked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert not before
    assert response_of(task) == "Written."
    assert len(ledger.read_text("utf-8").splitlines()) == 1


async def test_data_that_fits_survives_a_worker(model: ScriptedOpenAI, everloop: Deployment) -> None:
    """An answer that does not fit is put right once; the client gets one data part, also after a kill."""
    model.script = by_model(
        counter=[
            Reply(['{"total": -4}']),
            Reply(['{"tot', asyncio.Event()]),
            Reply(['{"total": 4, "words": ["a"]}']),
        ]
    )
    worker = await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(f"{gateway.url}/agents/counter") as client:
        reading = asyncio.create_task(Answer().read(client.send_message(request("Count."))))
        await model.request(2)
        worker.kill()
        await everloop.add_worker()
        answer = await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert task.status.state == COMPLETED
    (artifact,) = task.artifacts
    (part,) = artifact.parts
    assert MessageToDict(part.data) == {"total": 4.0, "words": ["a"]}
    assert answer.finals == 1
    told = str(model.requests[1].conversation[-1]["content"])
    assert "total" in told
    assert "-4" not in told


@pytest_asyncio.fixture
async def with_mcp(
    request: pytest.FixtureRequest, tmp_path: Path, everloop: Deployment
) -> AsyncGenerator[Deployment]:
    """Let the MCP server run in the worker's care, or on its own, over HTTP."""
    if request.param == "stdio":
        yield everloop
        return
    async with http_server(tmp_path, MCP_SERVER.name) as (_, url):
        everloop.environment[MCP_URL] = url
        yield everloop


AGAIN, UNKNOWN = ("ensure", 2, "mark written"), ("append", 1, "It may or may not have taken effect")


@pytest.mark.parametrize(
    ("with_mcp", "ending"),
    [pytest.param("stdio", AGAIN, marks=pytest.mark.slow), ("http", AGAIN), ("stdio", UNKNOWN)],
    ids=["again-stdio", "again-http", "unknown-stdio"],
    indirect=["with_mcp"],
)
async def test_a_call_of_an_mcp_server_survives_a_worker(
    model: ScriptedOpenAI, with_mcp: Deployment, tmp_path: Path, ending: tuple[str, int, str]
) -> None:
    """What the server calls idempotent runs again; of anything else the model reads that it may have run."""
    tool, lines, result = ending
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    arguments = json.dumps({"ledger": str(ledger), "gate": str(gate), "line": "mark"})
    model.script = by_model(served=[Reply([tool_call(tool, arguments)]), Reply(["Done."])])
    worker = await with_mcp.add_worker()
    gateway = await with_mcp.add_gateway()

    async with connected(f"{gateway.url}/agents/served", streaming=False) as client:
        sending = asyncio.create_task(send(client, request("Mark.")))
        while not ledger.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.02)
        worker.kill()
        await with_mcp.add_worker()
        gate.touch()
        task = await sending

    assert response_of(task) == "Done."
    (told,) = model.requests[-1].tool_results
    assert result in told
    assert ledger.read_text("utf-8") == "mark\n" * lines


async def test_a_narrator_tells_what_a_task_does(
    model: ScriptedOpenAI, everloop: Deployment, tmp_path: Path
) -> None:
    """Whoever streams reads it as a status, also from the next worker; the task does not keep it."""
    gate = tmp_path / "gate"
    arguments = json.dumps({"folder": str(tmp_path), "gate": str(gate)})
    told = iter(["Creating a file", "Still creating it", "Nearly there", *map(str, range(100))])
    asked = iter([Reply([tool_call("write_once", arguments)]), Reply(["Done."])])

    def reply(received: ReceivedRequest) -> Reply:
        return Reply([next(told)]) if received.body["model"] == "narrator" else next(asked)

    model.script = reply
    worker = await everloop.add_worker()
    gateway = await everloop.add_gateway()
    narrations: list[str] = []
    answer, second = Answer(), asyncio.Event()

    async def follow() -> None:
        async for response in client.send_message(request("Create.")):
            answer.add(response)
            if response.HasField("status_update") and response.status_update.status.message.parts:
                narrations.append(response.status_update.status.message.parts[0].text)
                second.set()

    async with connected(f"{gateway.url}/agents/told") as client:
        following = asyncio.create_task(follow())
        await second.wait()
        worker.kill()
        await everloop.add_worker()
        gate.touch()
        await following
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert narrations[0] == "Creating a file"
    assert all(len(text) <= 50 for text in narrations)
    assert response_of(task) == "Done."
    assert "Creating" not in str(task)
    assert said_by(model, "narrator")


async def test_a_server_that_takes_its_hint_back_is_not_called_unasked(
    model: ScriptedOpenAI, everloop: Deployment, tmp_path: Path
) -> None:
    """Neither by the worker that knows the new hint alone: the one that listed the tools was killed."""
    hints, ledger = tmp_path / "hints", tmp_path / "ledger"
    hints.write_text('{"destructiveHint": true}')
    everloop.environment[HINTS] = str(hints)
    model.script = by_model(
        eraser=[
            Reply(["Let me see", asyncio.Event()]),
            Reply([tool_call("erase", json.dumps({"ledger": str(ledger)}))]),
            Reply(["Erased."]),
        ]
    )
    worker = await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(f"{gateway.url}/agents/eraser", streaming=False) as client:
        sending = asyncio.create_task(send(client, request("Erase.")))
        await model.request(1)
        worker.kill()
        hints.write_text('{"readOnlyHint": true}')
        await everloop.add_worker()
        parked = await sending
        before = ledger.exists()
        task = await send(client, say(parked.id, "yes"))

    assert (parked.status.state, before) == (TaskState.TASK_STATE_INPUT_REQUIRED, False)
    assert (task.status.state, response_of(task)) == (COMPLETED, "Erased.")
    assert ledger.read_text("utf-8") == "erased\n"

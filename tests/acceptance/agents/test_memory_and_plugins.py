"""Agents with memory, structured answers, an MCP server, and narration; workers die."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, Task, TaskState
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue
from temporalio.client import Client

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.agents.sub_agents import MCP_SERVER, MCP_URL
from tests.support.rigs.deployment import Service
from tests.support.rigs.mcp_rig import http_server
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, by_model, tool_call

COMPLETED = TaskState.TASK_STATE_COMPLETED


async def test_a_conversation_survives_a_worker(agents: Service, tmp_path: Path) -> None:
    """The next task of the context begins with the whole conversation.

    Tool calls and results included, once.
    """
    arguments = json.dumps({"folder": str(tmp_path), "gate": ""})
    agents.script(
        [
            Reply([tool_call("write_once", arguments)]),
            Reply(["Half an ans", asyncio.Event()]),
            Reply(["It is created."]),
            Reply(["As I said."]),
        ]
    )

    async with connected(agents.at("lead"), streaming=False) as client:
        sending = asyncio.create_task(send(client, request("Create it.")))
        await agents.model.request(2)
        await agents.replace_worker()
        first = await sending
        second = await send(client, request("What did you do?", context_id=first.context_id))

    assert response_of(second) == "As I said."
    last = agents.model.requests[-1]
    roles = [message["role"] for message in last.conversation]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    said = ["Create it.", "It is created.", "What did you do?"]
    assert [last.conversation[n]["content"] for n in (0, 3, 4)] == said
    assert last.tool_results == ["created"]


async def test_a_chat_may_refer_to_all_its_tasks(agents: Service) -> None:
    """BeeAI's chats do; the model gets each answer once."""
    agents.script([Reply([f"Answer {number}."]) for number in range(12)])
    context, tasks = "", list[Task]()
    async with connected(agents.at("lead"), streaming=False) as client:
        for number in range(12):
            message = request(f"Question {number}?", context_id=context)
            message.message.reference_task_ids.extend(task.id for task in tasks)
            tasks.append(await send(client, message))
            context = tasks[0].context_id

    prompt = json.dumps(agents.model.requests[-1].conversation)
    assert response_of(tasks[-1]) == "Answer 11."
    assert [prompt.count(f"Answer {number}.") for number in range(1, 11)] == [1] * 10


@pytest.mark.slow
async def test_a_conversation_is_summed_up_in_spite_of_a_kill(agents: Service, tmp_path: Path) -> None:
    """The interrupted summary is requested again. All is summed up once, and recalled once.

    A block of four messages would end between a call and its result: the block leaves both out.
    """
    summaries = [Reply(["Half of", asyncio.Event()]), Reply(["All of it."]), Reply(["More."])]
    arguments = json.dumps({"folder": str(tmp_path), "gate": ""})
    answers = [Reply([said]) for said in ("a1", tool_call("write_once", arguments), "a2", "a3", "a4")]
    agents.script(lambda received: (summaries if _notes(received) else answers).pop(0))
    temporal = await Client.connect(agents.everloop.temporal_address)

    async with connected(agents.at("summary"), streaming=False) as client:
        context = (await send(client, request("q1"))).context_id
        second = await send(client, request("q2", context_id=context))
        await agents.model.request(4)
        await agents.replace_worker()
        await temporal.get_workflow_handle(second.id).result()
        third = await send(client, request("q3", context_id=context))
        await temporal.get_workflow_handle(third.id).result()
        fourth = await send(client, request("q4", context_id=context))
        await temporal.get_workflow_handle(fourth.id).result()  # it sums up no other test's messages

    first, again, *_ = [notes for received in agents.model.requests if (notes := _notes(received))]
    assert first == again
    assert again[:3] == ["[user]\nq1", "[assistant]\na1", "[user]\nq2"]
    called, result, answer = again[3:]
    assert called.startswith("[assistant]\n(calls write_once")
    assert result.startswith("[result of write_once")
    assert answer == "[assistant]\na2"
    *_, of_third, of_fourth = [received for received in agents.model.requests if not _notes(received)]
    summary = "[Summary of earlier conversation]\nAll of it."
    assert _recalled(of_third) == [summary, "q2", None, "created", "a2", "q3"]
    assert _recalled(of_fourth) == [summary, "q3", "a3", "q4"]


def _notes(received: ReceivedRequest) -> list[str]:
    """Return the messages that the model is to sum up; empty if the request is another one."""
    text = str(received.conversation[-1]["content"])
    inner = text.removeprefix("<conversation>\n").removesuffix("\n</conversation>")
    return inner.split("\n\n") if inner != text else []


def _recalled(received: ReceivedRequest) -> list[JsonValue]:
    return [message["content"] for message in received.conversation]


async def test_what_is_cached_is_what_the_history_holds(agents: Service, tmp_path: Path) -> None:
    """From each source: models, tools that work or are refused, sub-agents, handoffs, memory."""
    writes = json.dumps({"folder": str(tmp_path), "gate": ""})
    calls = [
        tool_call("write_once", writes),
        tool_call("repeat", '{"text": "no", "times": 2}', index=1),
        tool_call("writer", '{"request": "Write."}', index=2),
        tool_call("invented", "{}", index=3),
        tool_call("write_once", '{"folder": 1.5}', index=4),
    ]
    agents.script(
        by_model(
            lead=[
                Reply(["I will do all of it. ", *calls]),
                Reply([tool_call("hand_over_to_closer", '{"reason": "enough"}')]),
                Reply(["As I said: é, 漢, 🎈."]),
            ],
            writer=[Reply(["A poem."])],
            closer=[Reply([tool_call("write_once", writes)]), Reply(["Closed."])],
        )
    )

    async with connected(agents.at("lead"), streaming=False) as client:
        tasks: list[Task] = [await send(client, request("Do it."))]
        tasks.append(await send(client, request("And?", context_id=tasks[0].context_id)))
    called = [await _activities(agents, task.id) for task in tasks]

    assert [response_of(task) for task in tasks] == ["Closed.", "As I said: é, 漢, 🎈."]
    assert (called[0]["call_model"], called[0]["load_agent"]) == (5, 2)
    assert called[0]["store_transcript"] == called[1]["store_transcript"] == 0


async def _activities(agents: Service, task_id: str) -> Counter[str]:
    """Return the number of calls of each activity by the task and its sub-agents."""
    temporal, counts = await Client.connect(agents.everloop.temporal_address), Counter[str]()
    async for found in temporal.list_workflows(f"WorkflowId STARTS_WITH '{task_id}'"):
        handle = temporal.get_workflow_handle(found.id, run_id=found.run_id)
        async for event in handle.fetch_history_events():
            if event.HasField("activity_task_scheduled_event_attributes"):
                counts[event.activity_task_scheduled_event_attributes.activity_type.name] += 1
    return counts


@pytest.mark.slow
async def test_data_that_fits_survives_a_worker(agents: Service) -> None:
    """An invalid answer is corrected once; the client gets one data part, also after a kill."""
    agents.script(
        [Reply(['{"total": -4}']), Reply(['{"tot', asyncio.Event()]), Reply(['{"total": 4, "words": ["a"]}'])]
    )

    async with connected(agents.at("counter")) as client:
        reading = asyncio.create_task(Answer().read(client.send_message(request("Count."))))
        await agents.model.request(2)
        await agents.replace_worker()
        answer = await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert task.status.state == COMPLETED
    (artifact,) = task.artifacts
    (part,) = artifact.parts
    assert MessageToDict(part.data) == {"total": 4.0, "words": ["a"]}
    assert answer.finals == 1
    correction = str(agents.model.requests[1].conversation[-1]["content"])
    assert "total" in correction
    assert "-4" not in correction


@pytest_asyncio.fixture
async def mcp_settings(
    request: pytest.FixtureRequest, agents: Service, tmp_path: Path
) -> AsyncGenerator[dict[str, str]]:
    """Run the MCP server below the worker, or on its own; yield the settings of workers."""
    if request.param == "stdio":
        yield {}
        return
    async with http_server(tmp_path, MCP_SERVER.name) as (_, url):
        agents.worker.stop()
        agents.worker = await agents.everloop.add_worker(**{MCP_URL: url})
        yield {MCP_URL: url}


@pytest.mark.parametrize(
    ("mcp_settings", "ending"),
    [
        ("stdio", ("append", 1, "It may or may not have taken effect")),
        ("http", ("ensure", 2, "mark written")),
    ],
    ids=["unknown", "again"],
    indirect=["mcp_settings"],
)
async def test_a_call_of_an_mcp_server_survives_a_worker(
    agents: Service, mcp_settings: dict[str, str], tmp_path: Path, ending: tuple[str, int, str]
) -> None:
    """Idempotent tools run again; of all others the model reads that they may have run."""
    tool, lines, result = ending
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    arguments = json.dumps({"ledger": str(ledger), "gate": str(gate), "line": "mark"})
    agents.script([Reply([tool_call(tool, arguments)]), Reply(["Done."])])

    async with connected(agents.at("served"), streaming=False) as client:
        sending = asyncio.create_task(send(client, request("Mark.")))
        await until(ledger.exists)
        await agents.replace_worker(**mcp_settings)
        gate.touch()
        task = await sending

    assert response_of(task) == "Done."
    (told,) = agents.model.requests[-1].tool_results
    assert result in told
    assert ledger.read_text("utf-8") == "mark\n" * lines


@pytest.mark.slow
async def test_a_narrator_tells_what_a_task_does(agents: Service, tmp_path: Path) -> None:
    """Subscribers get it as a status, also from the next worker; the task does not store it."""
    gate = tmp_path / "gate"
    arguments = json.dumps({"folder": str(tmp_path), "gate": str(gate)})
    told = iter(["Creating a file", "Still creating it", "Nearly there", *map(str, range(100))])
    asked = iter([Reply([tool_call("write_once", arguments)]), Reply(["Done."])])
    agents.script(
        lambda received: Reply([next(told)]) if received.body["model"] == "narrator" else next(asked)
    )
    narrations: list[str] = []
    answer, second = Answer(), asyncio.Event()

    async def follow() -> None:
        async for response in client.send_message(request("Create.")):
            answer.add(response)
            if response.HasField("status_update") and response.status_update.status.message.parts:
                narrations.append(response.status_update.status.message.parts[0].text)
                second.set()

    async with connected(agents.at("told")) as client:
        following = asyncio.create_task(follow())
        await second.wait()
        await agents.replace_worker()
        gate.touch()
        await following
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert narrations[0] == "Creating a file"
    assert all(len(text) <= 50 for text in narrations)
    assert response_of(task) == "Done."
    assert "Creating" not in str(task)

"""The cached transcript is compared with the history: another one is sent again."""

import asyncio
import json
from collections import Counter
from pathlib import Path

from a2a.types.a2a_pb2 import Task, TaskState
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.stores.keys import transcript_key
from everloop.workflows.contract.messages import ToolMessage
from tests.acceptance.agents.test_memory_and_plugins import in_context
from tests.acceptance.agents.test_sub_agents import AGENTS, by_model
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI, tool_call

COMPLETED = TaskState.TASK_STATE_COMPLETED


async def _activities(everloop: Deployment, task_id: str) -> Counter[str]:
    """Return how often the task and its sub-agents called each activity."""
    temporal, counts = await Client.connect(everloop.temporal_address), Counter[str]()
    async for found in temporal.list_workflows(f"WorkflowId STARTS_WITH '{task_id}'"):
        handle = temporal.get_workflow_handle(found.id, run_id=found.run_id)
        async for event in handle.fetch_history_events():
            if event.HasField("activity_task_scheduled_event_attributes"):
                counts[event.activity_task_scheduled_event_attributes.activity_type.name] += 1
    return counts


async def test_what_is_cached_is_what_the_history_holds(model: ScriptedOpenAI, tmp_path: Path) -> None:
    """Whoever wrote it: models, tools that work or are refused, sub-agents, handoffs, memory."""
    gate = tmp_path / "gate"
    gate.touch()
    writes = json.dumps({"folder": str(tmp_path), "gate": str(gate)})
    tool_call("hand_over_to_closer", '{"reason": "enough"}')
    first = [
        "I will do all of it. ",
        tool_call("write_once", writes),
        tool_call("repeat", '{"text": "no", "times": 2}', index=1),
        tool_call("writer", '{"request": "Write."}', index=2),
        tool_call("invented", "{}", index=3),
        tool_call("write_once", '{"folder": 1.5}', index=4),
    ]
    model.script = by_model(
        lead=[
            Reply(first),
            Reply([tool_call("hand_over_to_closer", '{"reason": "enough"}')]),
            Reply(["As I said: é, 漢, 🎈."]),
        ],
        writer=[Reply(["A poem."])],
        closer=[Reply([tool_call("write_once", writes)]), Reply(["Closed."])],
    )

    async with running_deployment(tmp_path, model.base_url, agents=AGENTS) as everloop:
        await everloop.add_worker()
        gateway = await everloop.add_gateway()
        async with connected(f"{gateway.url}/agents/lead", streaming=False) as client:
            tasks: list[Task] = [await send(client, request("Do it."))]
            tasks.append(await send(client, in_context("And?", tasks[0].context_id)))
        called = [await _activities(everloop, task.id) for task in tasks]

    assert [task.status.state for task in tasks] == [COMPLETED, COMPLETED]
    assert [response_of(task) for task in tasks] == ["Closed.", "As I said: é, 漢, 🎈."]
    assert called[0]["call_model"] == 5
    assert called[0]["load_agent"] == 2
    assert called[0]["store_transcript"] == called[1]["store_transcript"] == 0


async def test_what_was_written_late_is_read_by_no_model(
    model: ScriptedOpenAI, everloop: Deployment, tmp_path: Path
) -> None:
    """As a worker does that was thought dead: its error stands over the good result of the next attempt."""
    folder, ledger, gate = tmp_path / "folder", tmp_path / "ledger", tmp_path / "gate"
    folder.mkdir()
    creates = json.dumps({"folder": str(folder), "gate": str(folder)})
    waits = json.dumps({"ledger": str(ledger), "gate": str(gate)})
    model.script = [
        Reply([tool_call("write_once", creates)]),
        Reply([tool_call("write_line", waits)]),
        Reply(["Done."]),
    ]
    late = ToolMessage(call_id="late", name="write_once", content="overtaken", outcome="error")
    await everloop.add_worker()
    gateway = await everloop.add_gateway()
    temporal = await Client.connect(everloop.temporal_address)

    async with (
        connected(gateway.url) as client,
        Redis.from_url(everloop.redis_url, decode_responses=True) as redis,
    ):
        answer = Answer()
        reading = asyncio.create_task(answer.read(client.send_message(request("Work."))))
        while not ledger.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.02)
        info = await temporal.get_workflow_handle(answer.task_id).describe()
        await redis.hset(transcript_key(answer.task_id, info.run_id), "2", late.model_dump_json())
        gate.touch()
        await reading
        called = await _activities(everloop, answer.task_id)

    assert answer.text == "Done."
    assert model.requests[2].tool_results == ["created", "written"]
    assert called["store_transcript"] == 1

"""Agents that work together, through the death of their worker."""

import asyncio
import json
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import GetTaskRequest, TaskState

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Service
from tests.support.rigs.people import say, shown
from tests.support.servers.scripted_openai import Reply, by_model, tool_call

COMPLETED = TaskState.TASK_STATE_COMPLETED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED


async def test_a_question_of_a_sub_agent_survives_a_worker(agents: Service) -> None:
    """It is asked at the client's task, answered there, and has its effect once."""
    agents.script(
        by_model(
            lead=[Reply([tool_call("writer", '{"request": "Write a poem."}')]), Reply(["It is written."])],
            writer=[Reply([tool_call("ask_title")]), Reply(["A poem."])],
        )
    )

    async with connected(agents.at("lead"), streaming=False) as client:
        parked = await send(client, request("Go."))
        await agents.replace_worker()
        task = await send(client, say(parked.id, "Autumn"))

    assert parked.status.state == INPUT_REQUIRED
    assert "Which title?" in shown(parked)
    assert (task.status.state, response_of(task)) == (COMPLETED, "It is written.")
    assert agents.model.requests_of("lead")[-1].tool_results == ["A poem."]
    assert agents.model.requests_of("writer")[-1].tool_results == ["the title is Autumn"]


async def test_the_guard_of_an_agent_holds_for_its_sub_agent(agents: Service, ledger: Path) -> None:
    """A denied call does not run; an approved one runs once, though the worker that asked died."""
    arguments = json.dumps({"ledger": str(ledger), "gate": ""})
    calls = [tool_call("repeat", '{"text": "x", "times": 3}'), tool_call("write_line", arguments, index=1)]
    agents.script(
        by_model(
            lead=[Reply([tool_call("writer", '{"request": "Write."}')]), Reply(["Done."])],
            writer=[Reply(calls), Reply(["Written."])],
        )
    )

    async with connected(agents.at("lead"), streaming=False) as client:
        parked = await send(client, request("Go."))
        before = ledger.exists()
        await agents.replace_worker()
        task = await send(client, say(parked.id, "yes"))

    assert (parked.status.state, before) == (INPUT_REQUIRED, False)
    assert "write_line" in shown(parked)
    assert (task.status.state, response_of(task)) == (COMPLETED, "Done.")
    refused, written = agents.model.requests_of("writer")[-1].tool_results
    assert refused.startswith("the tool 'repeat' is not allowed here (allowed: all others;")
    assert written == "written"
    assert len(ledger.read_text("utf-8").splitlines()) == 1


@pytest.mark.slow
async def test_a_handed_over_task_survives_a_worker(agents: Service) -> None:
    """The other agent goes on with the whole conversation, under the same task, and answers once."""
    agents.script(
        by_model(
            lead=[Reply(["Over to you.", tool_call("hand_over_to_closer", '{"reason": "it is late"}')])],
            closer=[Reply(["Half an ans", asyncio.Event()]), Reply(["Closed."])],
        )
    )

    async with connected(agents.at("lead")) as client:
        reading = asyncio.create_task(Answer().read(client.send_message(request("Go."))))
        await agents.model.request(2)
        await agents.replace_worker()
        answer = await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "Closed."
    assert answer.finals == 1
    asked = agents.model.requests_of("closer")[-1]
    assert [message["role"] for message in asked.conversation] == ["system", "user", "assistant", "tool"]
    assert asked.conversation[0]["content"] == "You close."
    offered = json.dumps(asked.body["tools"])
    assert "write_once" in offered
    assert "writer" not in offered

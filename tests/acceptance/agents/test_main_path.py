"""The main job on real servers: messages in, answers out, through separate processes."""

import re
import sys

import pytest
from a2a.types.a2a_pb2 import GetTaskRequest, TaskState
from temporalio.client import Client

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Service
from tests.support.servers.processes import ROOT
from tests.support.servers.scripted_openai import Reply, tool_call


@pytest.mark.parametrize(
    ("tool", "times"),
    [("repeat", 2), ("repeat_quickly", 2), ("repeat_quickly", 200_000)],
    ids=["activity", "quick tool", "more than a quick tool may say"],
)
async def test_a_task_with_tools_streams_its_answer(service: Service, tool: str, times: int) -> None:
    """The client gets the task, the agent's narration, the answer in pieces, and the end."""
    service.model.script = [
        Reply(["Let me see.", tool_call(tool, f'{{"text": "ab", "times": {times}}}')]),
        Reply(["The ", "answer ", "is abab."]),
    ]

    async with connected(service.gateway.url) as client:
        answer = await Answer().read(client.send_message(request("Repeat ab.")))
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "The answer is abab."
    assert answer.finals == 1
    assert answer.states[0] in {TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING}
    assert answer.states[-1] == task.status.state == TaskState.TASK_STATE_COMPLETED
    assert [message.parts[0].text for message in task.history] == ["Repeat ab.", "Let me see."]
    assert service.model.requests[1].tool_results == ["ab" * times]


async def test_a_history_names_no_path_of_the_machine(service: Service) -> None:
    """The failed attempt of a tool is recorded with the names of its modules and lines."""
    service.model.script = [Reply([tool_call("stumble", '{"over": "a stone"}')]), Reply(["It hurts."])]

    async with connected(service.gateway.url, streaming=False) as client:
        task = await send(client, request("Walk."))
    temporal = await Client.connect(service.everloop.temporal_address)
    history = (await temporal.get_workflow_handle(task.id).fetch_history()).to_json()

    assert "it stumbled over a stone" in history
    assert re.search(r"everloop/activities/tools/tool_call\.py:\d+ \w+", history)
    assert [path for path in (str(ROOT), sys.prefix, sys.base_prefix) if path in history] == []

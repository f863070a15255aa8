"""The main job on real servers: messages in, answers out, through separate processes."""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest
from a2a.types.a2a_pb2 import GetTaskRequest, TaskState
from temporalio.client import Client

from everloop.runtime.protocol.tasks import EVENTS_EXTENSION
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Service
from tests.support.servers.processes import ROOT
from tests.support.servers.scripted_openai import Reasoning, Refusal, Reply, tool_call
from tests.support.wires.raw_stream import Event, RawStream


@pytest.mark.parametrize(
    ("tool", "times"),
    [("repeat", 2), ("repeat_quickly", 2), ("repeat_quickly", 200_000)],
    ids=["activity", "quick tool", "more than a quick tool may say"],
)
async def test_a_task_with_tools_streams_its_answer(service: Service, tool: str, times: int) -> None:
    """The client sees the task, what the agent says on the way, the answer in pieces, and the end."""
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
    """The failed attempt of a tool that raises is told with its modules and lines, by their names."""
    service.model.script = [Reply([tool_call("stumble", '{"over": "a stone"}')]), Reply(["It hurts."])]

    async with connected(service.gateway.url, streaming=False) as client:
        task = await send(client, request("Walk."))
    temporal = await Client.connect(service.everloop.temporal_address)
    history = (await temporal.get_workflow_handle(task.id).fetch_history()).to_json()

    assert "it stumbled over a stone" in history
    assert re.search(r"everloop/activities/tools/call\.py:\d+ \w+", history)
    assert [path for path in (str(ROOT), sys.prefix, sys.base_prefix) if path in history] == []


async def test_a_client_of_the_extension_sees_what_happens_behind_the_answer(service: Service) -> None:
    """Over server-sent events: retries, thoughts, the progress of tools, and what each model call used."""
    service.model.script = [
        Refusal(503, headers={"retry-after-ms": "20"}),
        Reply([Reasoning("Let me "), Reasoning("think."), tool_call("report", '{"words": "one two"}')]),
        Reply(["Done."], usage=(40, 3)),
    ]

    seen, plain, began = RawStream(), RawStream(), datetime.now(UTC) - timedelta(milliseconds=1)
    async with seen.sent(service.gateway.url, "Report.", **{"A2A-Extensions": EVENTS_EXTENSION}) as events:
        shown = [event async for update in events if (event := _of_extension(update))]
    service.model.script = service.model.script[1:]
    service.model.requests.clear()
    async with plain.sent(service.gateway.url, "Report.") as events:
        hidden = [event async for update in events if (event := _of_extension(update))]

    (retry,) = [event for event in shown if event["kind"] == "retry"]
    thoughts = [event for event in shown if event["kind"] == "thought"]
    usage = [event["usage"] for event in shown if event["kind"] == "usage"]
    progress = [(event["name"], event["message"]) for event in shown if event["kind"] == "tool-progress"]
    assert seen.texts["response"] == plain.texts["response"] == "Done."
    assert (retry["attempt"], retry["reason"]) == (1, "the provider 'openai' failed (503)")
    assert 0.02 <= retry["delay"] < 0.03
    (resumed,) = [event for event in shown if event["kind"] == "resumed"]
    assert (resumed["after"], resumed["attempt"]) == ("attempt", 2)
    assert [e["finish_reason"] for e in shown if e["kind"] == "content-complete"] == ["tool_calls", "stop"]
    times = [datetime.fromisoformat(event["at"]) for event in shown]
    assert times == sorted(times)
    assert began <= times[0] <= times[-1] <= datetime.now(UTC)
    assert "".join(thought["text"] for thought in thoughts) == "Let me think."
    assert [thought.get("last", False) for thought in thoughts][-1]
    assert progress == [("report", "one"), ("report", "two")]
    assert [(each["input_tokens"], each["output_tokens"]) for each in usage] == [(10, 5), (40, 3)]
    assert [kind for kind in _kinds(shown) if kind in {"retry", "thought", "tool-progress", "usage"}] == [
        "retry",
        "thought",
        "usage",
        "tool-progress",
        "usage",
    ]
    assert hidden == []


def _of_extension(update: Event) -> Event | None:
    return update.get("statusUpdate", {}).get("metadata", {}).get(EVENTS_EXTENSION)


def _kinds(events: Sequence[Event]) -> list[str]:
    """Return the kinds in the order in which they came, several of one kind in a row as one."""
    return [kind for kind, _ in groupby(event["kind"] for event in events)]

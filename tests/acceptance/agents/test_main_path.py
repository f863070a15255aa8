"""The main job on real servers: messages in, answers out, through separate processes."""

import asyncio
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest
from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, TaskState
from a2a.utils.errors import InvalidParamsError
from temporalio.client import Client

from everloop.runtime.protocol.tasks import EVENTS_EXTENSION
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Deployment, Service
from tests.support.servers.processes import ROOT
from tests.support.servers.scripted_openai import Raw, Reasoning, Refusal, Reply, ScriptedOpenAI, tool_call
from tests.support.wires.raw_stream import Event, RawStream


@pytest.mark.parametrize(
    ("tool", "times"),
    [("repeat", 2), ("repeat_quickly", 2), ("repeat_quickly", 200_000)],
    ids=["activity", "quick tool", "more than a quick tool may say"],
)
async def test_a_task_with_tools_streams_its_answer(steady: Service, tool: str, times: int) -> None:
    """The client sees the task, what the agent says on the way, the answer in pieces, and the end."""
    steady.model.script = [
        Reply(["Let me see.", tool_call(tool, f'{{"text": "ab", "times": {times}}}')]),
        Reply(["The ", "answer ", "is abab."]),
    ]

    async with connected(steady.gateway.url) as client:
        answer = await Answer().read(client.send_message(request("Repeat ab.")))
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "The answer is abab."
    assert answer.finals == 1
    assert answer.states[0] in {TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING}
    assert answer.states[-1] == task.status.state == TaskState.TASK_STATE_COMPLETED
    assert [message.parts[0].text for message in task.history] == ["Repeat ab.", "Let me see."]
    assert steady.model.requests[1].tool_results == ["ab" * times]


async def test_a_history_names_no_path_of_the_machine(steady: Service) -> None:
    """The failed attempt of a tool that raises is told with its modules and lines, by their names."""
    steady.model.script = [Reply([tool_call("stumble", '{"over": "a stone"}')]), Reply(["It hurts."])]

    async with connected(steady.gateway.url, streaming=False) as client:
        task = await send(client, request("Walk."))
    temporal = await Client.connect(steady.everloop.temporal_address)
    history = (await temporal.get_workflow_handle(task.id).fetch_history()).to_json()

    assert "it stumbled over a stone" in history
    assert re.search(r"everloop/activities/tools/call\.py:\d+ \w+", history)
    assert [path for path in (str(ROOT), sys.prefix, sys.base_prefix) if path in history] == []


async def test_a_client_of_the_extension_sees_what_happens_behind_the_answer(steady: Service) -> None:
    """Over server-sent events: retries, thoughts, the progress of tools, and what each model call used."""
    steady.model.script = [
        Refusal(503, headers={"retry-after-ms": "20"}),
        Reply([Reasoning("Let me "), Reasoning("think."), tool_call("report", '{"words": "one two"}')]),
        Reply(["Done."], usage=(40, 3)),
    ]

    seen, plain, began = RawStream(), RawStream(), datetime.now(UTC) - timedelta(milliseconds=1)
    async with seen.sent(steady.gateway.url, "Report.", **{"A2A-Extensions": EVENTS_EXTENSION}) as events:
        shown = [event async for update in events if (event := _of_extension(update))]
    steady.model.script = steady.model.script[1:]
    steady.model.requests.clear()
    async with plain.sent(steady.gateway.url, "Report.") as events:
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


WANTED_BACK = Raw('{"choices": [{"delta": {"signature": "EjQKMgEMOdbH"}}]}')


async def test_what_a_provider_wants_back_is_seen_by_nobody_else(steady: Service) -> None:
    """It goes back with the reply, as the reasoning does; clients get it neither in a stream nor later."""
    call = tool_call("repeat", '{"text": "ab", "times": 2}')
    steady.model.script = [Reply([Reasoning("I see."), WANTED_BACK, call]), Reply(["Done.", WANTED_BACK])]

    sent = RawStream().sent(steady.gateway.url, "Repeat ab.", **{"A2A-Extensions": EVENTS_EXTENSION})
    async with sent as events:
        seen = [update async for update in events]
    async with connected(steady.gateway.url) as client:
        listed = await client.list_tasks(ListTasksRequest(include_artifacts=True, history_length=100))

    [asked] = [each for each in steady.model.requests[1].conversation if each["role"] == "assistant"]
    assert (asked["signature"], asked["reasoning_content"]) == ("EjQKMgEMOdbH", "I see.")
    assert "I see." in repr(seen)
    assert "EjQKMgEMOdbH" not in repr((seen, listed))


async def test_twenty_equal_messages_are_one_task(steady: Service) -> None:
    """A client that retries, at any of two gateways, finds the task that it has already started."""
    steady.model.script = [Reply(["Once."])]
    message, other = request("Do it."), await steady.everloop.add_gateway()

    async with (
        connected(steady.gateway.url, streaming=False) as one,
        connected(other.url, streaming=False) as two,
    ):
        tasks = await asyncio.gather(*(send((one, two)[n % 2], message) for n in range(20)))
        listed = await one.list_tasks(ListTasksRequest(context_id=tasks[0].context_id))

    assert len({task.id for task in tasks}) == 1
    assert {response_of(task) for task in tasks} == {"Once."}
    assert listed.total_size == 1
    assert len(steady.model.requests) == 1


async def test_a_task_waits_for_a_worker(model: ScriptedOpenAI, everloop: Deployment) -> None:
    """Without workers a task stays submitted, and clients can still look at it."""
    model.script = [Reply(["Late, but done."])]
    gateway = await everloop.add_gateway()

    async with connected(gateway.url, streaming=False) as client:
        submitted = await send(client, request("Do it.", return_immediately=True))
        seen = await client.get_task(GetTaskRequest(id=submitted.id))
        await everloop.add_worker()
        done = await send(client, request("Do it.", message_id=submitted.history[0].message_id))

    assert submitted.status.state == seen.status.state == TaskState.TASK_STATE_SUBMITTED
    assert done.id == submitted.id
    assert response_of(done) == "Late, but done."


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [(Refusal(401, "invalid_api_key"), "OPENAI_API_KEY"), (Refusal(404, "model_not_found"), "scripted")],
    ids=["wrong_key", "unknown_model"],
)
async def test_a_provider_that_refuses_ends_the_task(
    steady: Service, refusal: Refusal, expected: str
) -> None:
    """One attempt, and a status that names the cause and what to check."""
    steady.model.script = [refusal]

    async with connected(steady.gateway.url, streaming=False) as client:
        task = await send(client, request("Go."))

    assert task.status.state == TaskState.TASK_STATE_FAILED
    assert expected in task.status.message.parts[0].text
    assert len(steady.model.requests) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "empty"), ("x" * 11_000_000, "10000000")],
    ids=["empty_message", "eleven_megabytes"],
)
async def test_a_message_that_cannot_be_taken_is_refused(steady: Service, text: str, expected: str) -> None:
    """The error names the limit or what is missing; no task is started."""
    async with connected(steady.gateway.url, streaming=False) as client:
        with pytest.raises(InvalidParamsError) as refused:
            await send(client, request(text))

    assert expected in str(refused.value).replace(",", "")
    assert "Traceback" not in str(refused.value)

"""Calls of the client beside A2A, on a real Everloop."""

from datetime import UTC, datetime, timedelta

import pytest

from everloop.client import (
    Client,
    Done,
    InvalidError,
    NotFoundError,
    Part,
    PastEvent,
    TaskState,
    ToolCallStarted,
)
from tests.support.rigs.deployment import Service
from tests.support.rigs.operator import until
from tests.support.servers.scripted_openai import Reply, by_model, tool_call


async def test_sub_agents_are_told_of_and_what_became_of_all_of_it(service: Service) -> None:
    """Their events name the sub-agent, their questions are the task's; later their tasks can be read."""
    service.script(
        by_model(
            lead=[Reply([tool_call("writer", '{"request": "Write a poem."}')]), Reply(["It is written."])],
            writer=[Reply([tool_call("ask_title")]), Reply(["A poem."])],
        )
    )

    async with Client(service.at("lead")) as client:
        asked = await client.send("Go.")
        result = await client.answer(asked.id, "Autumn")
        # The end is published before the history has it.
        events = await until(
            lambda: _events(client, asked.id), does=lambda past: past[-1].data.get("artifactId") == "response"
        )
        behind = [event async for event in client.events(asked.id, after=events[-3].id)]
        transcript = await client.transcript(asked.id)
        usage = await client.usage(asked.id)
        (child,) = await client.children(asked.id)
        read = await client.task(child.result.id)
        below = [event.type async for event in client.events(child.result.id)]
        with pytest.raises(NotFoundError):
            await client.usage("none")

    (started,) = [event for event in asked.events if isinstance(event, ToolCallStarted) and event.path]
    assert (started.name, [each.name for each in result.tool_calls]) == ("ask_title", ["writer"])
    assert [question.text for question in asked.questions] == ["Which title?"]
    assert result.text == "It is written."
    assert (events[0].type, events[1].type, behind) == ("taskCreated", "message", events[-2:])
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert [message.role for message in transcript] == ["user", "assistant", "tool", "assistant"]
    assert (transcript[2].name, transcript[2].result, transcript[3].text) == (
        "writer",
        "A poem.",
        "It is written.",
    )
    assert (usage.total.input_tokens, {tool.tool for tool in usage.tools}) == (40, {"ask_title", "writer"})
    assert (child.agent_id, child.result.state) == ("writer", TaskState.COMPLETED)
    assert "toolResult" in below
    assert (read.text, [call.result for call in read.tool_calls]) == ("A poem.", ["the title is Autumn"])


async def _events(client: Client, task_id: str) -> list[PastEvent]:
    return [event async for event in client.events(task_id)]


async def test_the_whole_result_of_a_call_can_be_read(service: Service) -> None:
    """Events and tasks have the beginning of a long result, and the address of the rest."""
    service.script([Reply([tool_call("repeat", '{"text": "ab", "times": 40000}')]), Reply(["Done."])])

    async with Client(service.gateway.url) as client:
        (call,) = (await client.send("Repeat.")).tool_calls
        whole = await client.read(Part(url=call.url))

    assert (call.is_cut, len(call.result or ""), len(whole)) == (True, 16_000, 80_000)


async def test_a_fork_goes_on_from_the_past(service: Service) -> None:
    """With another message; the same request again finds it. A refused fork has a clear error."""
    calls = Reply([tool_call("report", '{"words": "one"}')])
    service.script([calls, Reply(["The answer."]), Reply(["Otherwise."])])

    async with Client(service.gateway.url) as client:
        first = await client.send("Report.")
        fork = await client.fork(first.id, "And now?", message_id="f-1")
        again = await client.fork(first.id, "And now?", message_id="f-1")
        end = [event async for event in client.watch(fork.id)][-1]
        with pytest.raises(InvalidError, match="iteration 2 ended with a reply to the user; send a message"):
            await client.fork(first.id)
        with pytest.raises(NotFoundError):
            await client.fork("none", "x")

    assert isinstance(end, Done)
    assert (end.result.text, again.id) == ("Otherwise.", fork.id)
    assert fork.id != first.id
    assert fork.metadata["fork"] == {"taskId": first.id, "iteration": 2}


async def test_schedules_are_made_changed_run_and_removed(service: Service) -> None:
    """The agent of the client gets the message, with its file; a repeat changes nothing."""
    service.script([Reply(["Reported."])])
    notes = Part(raw=b"notes", filename="notes.txt", media_type="text/plain")

    async with Client(service.gateway.url, agent="desk") as client:
        made = await client.create_schedule(
            "Report.", id="daily-1", cron="0 9 29 2 *", time_zone="Europe/Berlin", files=[notes]
        )
        again = await client.create_schedule(
            "Report.", id="daily-1", cron="0 9 29 2 *", time_zone="Europe/Berlin", files=[notes]
        )
        changed = await client.change_schedule(
            "daily-1", every=timedelta(days=100, minutes=90), note="as asked"
        )
        paused = await client.pause_schedule("daily-1")
        resumed = await client.resume_schedule("daily-1")
        task_id = await client.run_schedule("daily-1")
        end = [event async for event in client.watch(task_id)][-1]
        (listed,) = [each async for each in client.schedules()]
        with pytest.raises(InvalidError, match="one of cron, every and at"):
            await client.create_schedule("x", cron="0 9 * * *", every="1h")
        with pytest.raises(InvalidError, match="at is over"):
            await client.create_schedule("x", at=datetime(2020, 1, 1, tzinfo=UTC))
        await client.delete_schedule("daily-1")
        with pytest.raises(NotFoundError, match="no schedule 'daily-1'"):
            await client.schedule("daily-1")

    assert (made.id, made.agent, made.cron, made.time_zone) == (
        "daily-1",
        "desk",
        "0 9 29 2 *",
        "Europe/Berlin",
    )
    assert (made.parts[0].text, made.parts[1].filename) == ("Report.", "notes.txt")
    assert made.created_at == again.created_at
    assert (changed.every, changed.cron, changed.note) == ("100d1h30m", "", "as asked")
    assert (paused.paused, resumed.paused) == (True, False)
    assert isinstance(end, Done)
    assert end.result.text == "Reported."
    assert [(run.task_id, run.state) for run in listed.last_runs] == [(task_id, TaskState.COMPLETED)]
    assert len(resumed.next_runs) > 1

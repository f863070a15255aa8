"""The events of a task from its beginning, as its history has them."""

import asyncio

from everloop.runtime.redis import connect_redis
from everloop.stores.keys import log_key
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.events import Narrated
from everloop.workflows.contract.messages import AssistantMessage
from tests.gateway.past.conftest import PastSite, calling, saying


async def test_events_tell_all_that_happened_in_order(past: PastSite) -> None:
    past.model.say(calling("search", "fetch", text="Looking."), calling("pay"), saying("Done."))
    task = await past.send("Compare them.")
    events = await past.events(task["id"])
    assert [(event["type"], event["iteration"]) for event in events] == [
        ("taskCreated", 0),
        ("message", 0),
        ("status", 1),
        ("modelCall", 1),
        ("modelReply", 1),
        ("status", 1),
        ("toolCall", 1),
        ("toolCall", 1),
        ("toolResult", 1),
        ("toolResult", 1),
        ("modelCall", 2),
        ("modelReply", 2),
        ("toolCall", 2),
        ("toolResult", 2),
        ("modelCall", 3),
        ("modelReply", 3),
        ("status", 3),
        ("artifact", 3),
    ]
    assert len({event["id"] for event in events}) == len(events)
    by_type = {event["type"]: event["data"] for event in events}
    assert by_type["message"]["message"]["parts"] == [{"text": "Compare them."}]
    result = by_type["toolResult"]
    assert (result["name"], result["isError"], result["attempts"]) == ("pay", False, 1)
    assert result["result"].endswith(" done")
    assert by_type["modelReply"]["text"] == "Done."
    assert by_type["status"]["state"] == "completed"
    assert by_type["status"]["usage"]["cost"] == 1.0
    assert all(event["at"].endswith("Z") for event in events)


async def test_pages_of_any_size_tell_the_same(past: PastSite) -> None:
    """Also if one event of the history becomes several; `after` is the id of any event."""
    past.model.say(calling("a", "b", text="One moment."), saying("Done."))
    task = await past.send("Hello")
    whole = await past.events(task["id"])
    assert await past.events(task["id"], page_size=1) == whole
    behind = await past.get(task["id"], "events", after=whole[4]["id"])
    assert behind["events"] == whole[5:]


async def test_events_are_there_when_the_stream_is_not(past: PastSite, redis_url: str) -> None:
    past.model.say(saying("Done."))
    task = await past.send("Hello")
    before = await past.events(task["id"])
    async with connect_redis(redis_url) as redis:
        await redis.delete(log_key(task["id"]))
    assert await past.events(task["id"]) == before


async def test_the_transcript_is_what_the_model_saw_with_times(past: PastSite) -> None:
    past.model.say(calling("search"), saying("Done."))
    task = await past.send("Hello")
    messages = (await past.get(task["id"], "transcript"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    times = [message["at"] for message in messages]
    assert None not in times
    assert times == sorted(times)
    assert messages[2]["result"].endswith(" done")


async def test_usage_is_by_model_and_by_tool(past: PastSite) -> None:
    past.model.say(calling("search", "search"), saying("Done."))
    task = await past.send("Hello")
    usage = await past.get(task["id"], "usage")
    assert usage["total"] == {"inputTokens": 300, "outputTokens": 30, "cost": 0.75}
    assert usage["models"] == [
        {"model": "scripted/one", "calls": 1, "inputTokens": 100, "outputTokens": 10, "cost": 0.25},
        {"model": "scripted/two", "calls": 1, "inputTokens": 200, "outputTokens": 20, "cost": 0.5},
    ]
    ((tool,),) = (usage["tools"],)
    assert (tool["tool"], tool["calls"], tool["failures"], tool["cost"]) == ("search", 2, 0, 0)


async def test_nobody_else_learns_of_a_task(past: PastSite) -> None:
    """Workflows of other kinds are not tasks, nor are ids without a client's task before the slash."""
    for what in ("events", "transcript", "usage", "children"):
        for task_id in ("none", "none%2Fr00001-1", "none%2Fpush%2F1", "%2F", "%2Fr00001-1"):
            answered = await past.gateway.http.get(f"/everloop/v1/tasks/{task_id}/{what}")
            assert answered.status_code == 404, answered.text


async def test_a_place_that_is_none_is_refused(past: PastSite) -> None:
    past.model.say(saying("Done."))
    task = await past.send("Hello")
    for after in ("x", "00000000-1-0-0-0-0", "1-1"):
        answered = await past.gateway.http.get(
            f"/everloop/v1/tasks/{task['id']}/events", params={"after": after}
        )
        assert (answered.status_code, "after" in answered.text) == (400, True)


async def test_narrations_stand_between_what_happened(past: PastSite) -> None:
    """Each once, in pages of any size, for as long as the stream has them."""
    said = asyncio.Event()

    async def narrated(call: CallModelInput) -> AssistantMessage:
        await past.views.publish(call.task.task_id, call.task.run_id, [Narrated(text="Comparing")])
        said.set()
        return saying("Done.")

    past.model.say(calling("search"), narrated)
    task = await past.send("Hello")
    assert said.is_set()
    whole = await past.events(task["id"])
    (at,) = [number for number, event in enumerate(whole) if event["type"] == "narration"]
    assert whole[at]["data"] == {"text": "Comparing"}
    assert [whole[at - 1]["type"], whole[at + 1]["type"]] == ["modelCall", "modelReply"]
    assert await past.events(task["id"], page_size=1) == whole
    behind = await past.get(task["id"], "events", after=whole[at]["id"])
    assert behind["events"] == whole[at + 1 :]

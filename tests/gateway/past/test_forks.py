"""Forks: tasks that continue from the past of another without repeating any of it."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.gateway.past.conftest import PastSite, calling, saying


def message(text: str) -> dict[str, Any]:
    return {"role": "ROLE_USER", "messageId": str(uuid4()), "parts": [{"text": text}]}


async def fork(past: PastSite, task_id: str, **body: object) -> httpx.Response:
    return await past.gateway.http.post(f"/everloop/v1/tasks/{task_id}/fork", json=body)


async def ended(past: PastSite, task_id: str) -> dict[str, Any]:
    await past.client.get_workflow_handle(task_id).result()
    return (await past.gateway.call("GetTask", {"id": task_id})).json()["result"]


async def test_a_fork_runs_no_tool_of_its_past_again(past: PastSite) -> None:
    """Of a task with four calls the fork keeps three, with their results; both can be read afterwards."""
    past.model.say(calling("a", "b"), calling("c"), calling("d"), saying("Done."))
    origin = await past.send("Do all four.")
    before = [run.call.name for run in past.tools.calls]
    assert before[-4:] == ["a", "b", "c", "d"]
    past.model.say(calling("e"), saying("Otherwise."))
    answered = await fork(past, origin["id"], iteration=2, message=message("Leave the last one out."))
    assert answered.status_code == 201
    forked = answered.json()["task"]
    assert forked["metadata"]["fork"] == {"taskId": origin["id"], "iteration": 2}
    assert forked["contextId"] == origin["contextId"]
    done = await ended(past, forked["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert done["metadata"]["fork"] == {"taskId": origin["id"], "iteration": 2}
    assert [run.call.name for run in past.tools.calls] == [*before, "e"]
    theirs = (await past.get(origin["id"], "transcript"))["messages"]
    ours = (await past.get(forked["id"], "transcript"))["messages"]
    assert [shown["result"] for shown in ours[:6] if shown["role"] == "tool"] == [
        shown["result"] for shown in theirs[:6] if shown["role"] == "tool"
    ]
    assert [shown["role"] for shown in ours[6:]] == ["user", "assistant", "tool", "assistant"]
    assert [shown["at"] for shown in ours[:6]] == [None] * 6
    created, *_ = await past.events(forked["id"])
    assert created["data"]["fork"] == {"taskId": origin["id"], "iteration": 2}
    assert (await past.get(forked["id"], "usage"))["total"]["cost"] == 0.75


async def test_the_same_request_finds_its_fork(past: PastSite) -> None:
    """By messageId, or by Idempotency-Key; another message under the same key is refused."""
    past.model.say(saying("One."))
    origin = await past.send("Hello")
    past.model.say(saying("Two."))
    said = message("Go on.")
    first, again = [(await fork(past, origin["id"], message=said)).json()["task"]["id"] for _ in range(2)]
    assert first == again
    past.model.say(saying("Three."))
    address, key = f"/everloop/v1/tasks/{origin['id']}/fork", {"Idempotency-Key": str(uuid4())}
    by_key = [await past.gateway.http.post(address, json={"iteration": 0}, headers=key) for _ in range(2)]
    assert len({answered.json()["task"]["id"] for answered in by_key}) == 1
    other = {"iteration": 0, "message": message("Else.")}
    refused = await past.gateway.http.post(address, json=other, headers=key)
    assert (refused.status_code, "another message" in refused.text) == (409, True)


async def test_a_fork_without_a_message_does_it_again_with_another_model(past: PastSite) -> None:
    past.model.say(saying("One."))
    origin = await past.send("Say a number.")
    past.model.say(saying("Two."))
    forked = (await fork(past, origin["id"], iteration=0, model="scripted/one")).json()["task"]
    done = await ended(past, forked["id"])
    assert done["artifacts"][0]["parts"] == [{"text": "Two."}]
    assert [each["parts"] for each in done["history"]] == [[{"text": "Say a number."}]]
    assert past.model.calls[-1].model == "scripted/one"
    assert done["contextId"] == origin["contextId"]


async def test_a_fork_may_be_forked(past: PastSite) -> None:
    """Its iterations are its own, and its past has that of its origin."""
    past.model.say(calling("a"), saying("One."))
    origin = await past.send("Hello")
    past.model.say(calling("b"), saying("Two."))
    first = (await fork(past, origin["id"], iteration=1, message=message("More."))).json()["task"]
    await ended(past, first["id"])
    past.model.say(saying("Three."))
    second = (await fork(past, first["id"], iteration=1, message=message("Less."))).json()["task"]
    await ended(past, second["id"])
    roles = [shown["role"] for shown in (await past.get(second["id"], "transcript"))["messages"]]
    assert roles == ["user", "assistant", "tool", "user", "assistant", "tool", "user", "assistant"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such iteration": ({"iteration": 9, "message": message("x")}, "iteration 9"),
    "nothing to go on with": ({}, "send a message"),
    "negative": ({"iteration": -1}, "iteration"),
    "unknown field": ({"iterations": 1}, "iterations"),
    "unknown agent": ({"agent": "nobody", "iteration": 0}, "nobody"),
    "model of nobody": ({"model": "else/where", "iteration": 0}, "EVERLOOP_FORK_MODELS"),
    "task of its own": ({"message": {**message("x"), "taskId": "t"}}, "taskId"),
    "another context": ({"message": {**message("x"), "contextId": "c"}}, "contextId"),
    "no message at all": ({"message": {}}, "message.parts"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_cannot_be_forked_is_said_in_words(past: PastSite, case: str) -> None:
    past.model.say(saying("Done."))
    origin = await past.send("Hello")
    body, told = WRONG[case]
    answered = await fork(past, origin["id"], **body)
    assert (answered.status_code, told in answered.text) == (400, True), answered.text
    assert (await fork(past, "none")).status_code == 404

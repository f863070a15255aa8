"""Streams on every binding over HTTP: ids, going on behind one, errors, a server that stops."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from a2a.types.a2a_pb2 import Task
from temporalio.client import Client

from everloop.gateway.tasks.fanout import EventFanout, OnIdle, Subscription
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.bindings.raw_calls import RAW_BINDINGS, Call, RawBinding, changed
from tests.gateway.harness import PromptModel, RunningGateway, StoodIn, running_gateway, unique

every_binding = pytest.mark.parametrize("binding", RAW_BINDINGS, ids=str)


@dataclass(frozen=True)
class Sent:
    """One block of a stream, by its fields; comments have the name ""."""

    fields: dict[str, str]

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.fields["data"])


async def blocks(response: httpx.Response) -> AsyncGenerator[Sent]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(":")
        if line:
            fields[name] = value.strip()
        elif fields:
            yield Sent(fields)
            fields = {}


@asynccontextmanager
async def stream(url: str, call: Call, last_id: str = "") -> AsyncGenerator[AsyncIterator[Sent]]:
    headers = {**call["headers"], **({"Last-Event-ID": last_id} if last_id else {})}
    async with (
        httpx.AsyncClient(base_url=url, timeout=60) as http,
        http.stream(**changed(call, headers=headers)) as response,
    ):
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield blocks(response)


async def all_of(url: str, call: Call, last_id: str = "") -> list[Sent]:
    async with stream(url, call, last_id) as sent:
        return [each async for each in sent]


def text_of(binding: RawBinding, sent: list[Sent]) -> str:
    """Return what the artifact updates add up to."""
    texts: list[str] = []
    for each in sent:
        result = binding.result(each.data)
        artifact = result.get("artifactUpdate", result).get("artifact", {})
        texts += [part.get("text", "") for part in artifact.get("parts", [])]
    return "".join(texts)


@every_binding
async def test_a_client_goes_on_behind_any_event(
    gateway: RunningGateway, model: PromptModel, binding: RawBinding
) -> None:
    """Every event has an id, and behind each follows exactly the rest, however it is asked for."""
    prompt = unique("ids")
    model.scripts[prompt] = ["one ", "two ", "three"]
    call = binding.send(prompt, unique("m"), stream=True)

    sent = await all_of(gateway.url, call)

    assert text_of(binding, sent) == "one two three"
    ids = [each.fields["id"] for each in sent]
    assert len(set(ids)) == len(ids)
    first = binding.result(sent[0].data)
    subscribe = binding.subscribe(first.get("task", first)["id"])
    for again in (call, subscribe):
        rest = await all_of(gateway.url, again, ids[1])
        assert [each.fields["id"] for each in rest] == ids[2:]
        results = [binding.result(each.data) for each in rest]
        assert results == [binding.result(each.data) for each in sent[2:]]


@every_binding
async def test_a_stream_that_cannot_begin_is_a_plain_error(
    gateway: RunningGateway, binding: RawBinding
) -> None:
    """With the status and the media type of one; over JSON-RPC 0.3 it is the only event of a stream."""
    async with httpx.AsyncClient(base_url=gateway.url) as http:
        response = await http.request(**binding.subscribe("nobody"))

    if binding.name == "JSON-RPC 0.3":
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert '"code":-32001' in response.text.replace(" ", "")
        return
    is_own = binding.name == "REST 1.0"
    assert response.headers["Content-Type"] == f"application/{'a2a+' if is_own else ''}json"
    assert response.status_code == (404 if binding.is_rest else 200)
    assert binding.error(response)["reason"] == "TASK_NOT_FOUND"


class BrokenFanout(EventFanout):
    """Fails when somebody wants to hear what follows the snapshot."""

    @asynccontextmanager
    async def subscribe(
        self, task_id: str, position: str, on_idle: OnIdle | None = None
    ) -> AsyncGenerator[Subscription]:
        raise RuntimeError("secret")
        yield  # pragma: no cover -- it makes a generator of the function


@every_binding
async def test_a_stream_that_fails_ends_with_an_error(
    client: Client, views: TaskViews, queue: str, model: PromptModel, binding: RawBinding
) -> None:
    """Its last event is the error, without an id, and shows nothing of our insides."""
    prompt, gate = unique("fails"), asyncio.Event()
    model.scripts[prompt] = [gate]
    async with running_gateway(client, views, queue=queue, fanout=BrokenFanout(views)) as gateway:
        task, last = await all_of(gateway.url, binding.send(prompt, unique("m"), stream=True))
    gate.set()

    assert "id" in task.fields
    assert "id" not in last.fields
    assert ("event" in last.fields) is (binding.name != "JSON-RPC 0.3")
    error = last.data["error"]
    assert error["code"] == (500 if binding.is_rest else -32603)
    assert error["message"].startswith("internal error, reference ")
    assert "secret" not in last.fields["data"]


@every_binding
async def test_a_server_that_stops_asks_its_clients_to_come_back(
    client: Client, views: TaskViews, queue: str, model: PromptModel, binding: RawBinding
) -> None:
    """Streams end with a comment and a time to wait; elsewhere the client misses nothing."""
    prompt, gate = unique("stops"), asyncio.Event()
    model.scripts[prompt] = ["half ", gate, "whole"]
    heard: list[Sent] = []
    async with running_gateway(client, views, queue=queue) as gateway:
        call = binding.send(prompt, unique("m"), stream=True)
        async with stream(gateway.url, call) as sent:
            async for each in sent:
                heard.append(each)
                if "half" in each.fields["data"]:
                    break
            gateway.server.stop()
            farewell = [each async for each in sent][-1]
    assert farewell.fields["retry"] == "1000"
    assert "connect again" in farewell.fields[""]
    async with running_gateway(client, views, queue=queue) as other:
        gate.set()
        rest = await all_of(other.url, call, heard[-1].fields["id"])

    assert text_of(binding, [*heard, *rest]) == "half whole"
    assert all("retry" not in each.fields for each in rest)


@pytest.mark.parametrize("binding", RAW_BINDINGS[2:], ids=str)
async def test_the_question_that_ends_a_stream_is_final_in_the_old_version(
    stand_in: RunningGateway, client: Client, views: TaskViews, binding: RawBinding
) -> None:
    """Clients of 0.3 look for that mark, and it is on the last status only."""
    async with stream(stand_in.url, binding.send(unique("asks"), unique("m"), stream=True)) as sent:
        first = binding.result((await anext(sent)).data)
        task = StoodIn(client, views, Task(id=first.get("task", first)["id"]))
        await task.publish(TaskState.WORKING)
        await task.publish(TaskState.INPUT_REQUIRED)
        rest = [binding.result(each.data) async for each in sent]
    await task.end()

    assert [bool(each.get("statusUpdate", each).get("final")) for each in rest] == [False, True]

"""Artifacts: they stream while they are written, and survive the death of any process."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, TaskState
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue

from tests.support.a2a_client import connected, request, send
from tests.support.agents.artifacts import ARTIFACT_AGENT, big_content, line
from tests.support.rigs.deployment import Service, running_deployment, running_service
from tests.support.servers.processes import ServerProcess
from tests.support.servers.scripted_openai import CallFragment, Reply, ScriptedOpenAI, tool_call
from tests.support.wires.raw_stream import Event, RawStream

MEGABYTES = 200
LINES = 400

FLAT = 64 * 1024 * 1024
"""Bytes that a process may grow over its idle size, whatever the size of an artifact."""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


async def _download(url: str, stream: RawStream, artifact_id: str) -> bytes:
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.get(f"{url}/artifacts/{stream.context_id}/{artifact_id}/parts/0")
    assert answer.is_success, answer.text
    return answer.content


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    """A deployment shared by the tests that kill workers and gateways."""
    async with running_service(tmp_path_factory.mktemp("artifacts"), ARTIFACT_AGENT) as running:
        yield running


async def test_what_the_model_writes_streams_before_the_call_runs(service: Service) -> None:
    """Subscribers read an artifact while its call is written; it is stored once, and repeated at its end."""
    more, seen = asyncio.Event(), RawStream()
    head = json.dumps({"append": False, "last_chunk": True, "artifact": {"artifact_id": "poem", "parts": []}})
    begin = CallFragment(0, "c1", "artifact_update", head.removesuffix("]}}") + '{"text": "Half a ')
    end = CallFragment(0, None, None, 'poem."}]}}')
    service.script([Reply([begin, more, end]), Reply(["I wrote it."])])
    async with seen.sent(service.gateway.url, "Write.") as events:
        while not seen.texts.get("poem"):
            await anext(events)
        assert "Half a ".startswith(seen.texts["poem"])
        more.set()
        async for _ in events:
            pass
    async with connected(service.gateway.url) as client:
        task = await client.get_task(GetTaskRequest(id=seen.task_id))
        listed = await client.list_tasks(ListTasksRequest(include_artifacts=True, context_id=seen.context_id))
    content = await _download(service.gateway.url, seen, "poem")

    assert seen.texts == {"poem": "Half a poem.", "response": "I wrote it."}
    assert seen.complete == {"poem", "response"}
    assert "".join(_poem_chunks(seen)[:-1]) == _poem_chunks(seen)[-1] == "Half a poem."
    assert {a.artifact_id: a.parts[0].text for a in task.artifacts} == seen.texts
    assert {a.artifact_id for a in listed.tasks[0].artifacts} == {"poem", "response"}
    assert content == b"Half a poem."


async def test_the_last_update_of_every_artifact_is_all_of_it(service: Service, gate: Path) -> None:
    """In every way of writing: google-adk and the 0.3 client for JavaScript read only that update."""
    gate.touch()
    picture: JsonValue = {"raw": "iVBORw0KGgo=", "media_type": "image/png", "filename": "dot.png"}
    calls = [
        _update("in one call", {"text": "All of it."}),
        _update("of many parts", {"text": "Look:"}, {"data": {"rows": 3}}, picture),
        _update("in two calls", {"text": "Half a "}, last_chunk=False),
        _update("in two calls", {"text": "text."}, append=True),
        _update("left open", {"text": "Unfinished"}, last_chunk=False),
        tool_call("write_lines", json.dumps({"artifact_id": "lines", "count": 50, "gate": str(gate)})),
        tool_call("write_table", json.dumps({"artifact_id": "rows", "rows": 3})),
    ]
    service.script([*(Reply([call]) for call in calls), Reply(["I wrote ", "them."])])
    seen = RawStream()
    async with seen.sent(service.gateway.url, "Write.") as events:
        async for _ in events:
            pass
    async with connected(service.gateway.url) as client:
        task = await client.get_task(GetTaskRequest(id=seen.task_id))

    updates = [event["artifactUpdate"] for event in seen.events if "artifactUpdate" in event]
    last = {update["artifact"]["artifactId"]: update for update in updates}
    content = {id_: update["artifact"]["parts"] for id_, update in last.items()}
    stored = {each.artifact_id: MessageToDict(each)["parts"] for each in task.artifacts}
    closings = {id_: (update.get("append", False), update.get("lastChunk")) for id_, update in last.items()}
    assert closings == dict.fromkeys(stored, (False, True))
    assert content.pop("rows") == [{"data": [{"number": number} for number in range(3)]}]
    assert sum(len(part["data"]) for part in stored.pop("rows")) == 3
    assert content == stored
    assert len(content["of many parts"]) == len(content["in one call"] + content["in two calls"]) + 1
    assert content.keys() >= {"left open", "lines", "response"}


def _update(
    artifact_id: str, *parts: JsonValue, append: bool = False, last_chunk: bool = True
) -> CallFragment:
    artifact: JsonValue = {"artifact_id": artifact_id, "parts": list(parts)}
    return tool_call(
        "artifact_update", json.dumps({"append": append, "last_chunk": last_chunk, "artifact": artifact})
    )


def _poem_chunks(seen: RawStream) -> list[str]:
    updates = [event["artifactUpdate"]["artifact"] for event in seen.events if "artifactUpdate" in event]
    return [part.get("text", "") for a in updates if a["artifactId"] == "poem" for part in a["parts"]]


async def test_200_megabytes_in_flat_memory(model: ScriptedOpenAI, tmp_path: Path) -> None:
    """Neither the worker that writes a file nor the gateway that sends it grows with its size."""
    arguments = json.dumps({"artifact_id": "big", "megabytes": MEGABYTES, "gate": ""})
    model.script = [Reply([tool_call("write_big", arguments)]), Reply(["Done."])]
    async with running_deployment(tmp_path, model.base_url, agents=ARTIFACT_AGENT) as everloop:
        worker, gateway = await everloop.add_worker(), await everloop.add_gateway()
        async with connected(gateway.url, streaming=False) as client, _peak(worker) as working:
            task = await send(client, request("Write."))
        (big,) = [artifact for artifact in task.artifacts if artifact.artifact_id == "big"]
        async with httpx.AsyncClient(timeout=60) as http, _peak(gateway.process) as serving:
            digest, size = hashlib.sha256(), 0
            async with http.stream("GET", big.parts[0].url) as answer:
                async for chunk in answer.aiter_bytes():
                    digest.update(chunk)
                    size += len(chunk)
            middle = await http.get(big.parts[0].url, headers={"Range": f"bytes={size // 2}-{size // 2 + 9}"})

    expected = hashlib.sha256()
    for piece in big_content(MEGABYTES):
        expected.update(piece)
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert (digest.hexdigest(), size) == (expected.hexdigest(), MEGABYTES * 1024 * 1024)
    assert middle.status_code == httpx.codes.PARTIAL_CONTENT
    assert len(middle.content) == 10
    assert max(working) < FLAT
    assert max(serving) < FLAT


@asynccontextmanager
async def _peak(process: ServerProcess) -> AsyncGenerator[list[int]]:
    """Yield the growth of a process in bytes, measured every 20 ms."""
    watched = psutil.Process(process.pid)
    idle = watched.memory_info().rss
    growth: list[int] = [0]

    async def watch() -> None:
        while True:
            growth.append(watched.memory_info().rss - idle)
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    try:
        yield growth
    finally:
        watching.cancel()


async def _read_part_of(seen: RawStream, events: AsyncIterator[Event], length: int) -> None:
    while len(seen.texts.get("lines", "")) < length:
        await anext(events)


@pytest.mark.parametrize("killed", ["worker", "gateway"])
async def test_a_kill_while_an_artifact_streams(service: Service, gate: Path, killed: str) -> None:
    """A subscriber that reconnects after its last event has every byte once, and so does the store."""
    arguments = json.dumps({"artifact_id": "lines", "count": LINES, "gate": str(gate)})
    service.script([Reply([tool_call("write_lines", arguments)]), Reply(["Done."])])
    content, seen = "".join(map(line, range(LINES))), RawStream()
    dying = await service.everloop.add_gateway()
    async with seen.sent(dying.url, "Write.") as events:
        await _read_part_of(seen, events, len(content) // 4)
    if killed == "worker":
        await service.replace_worker()
    else:
        dying.process.kill()
    gate.touch()
    async with seen.resumed(service.gateway.url) as events:
        assert "task" not in await anext(events)
        async for _ in events:
            pass
    stored = await _download(service.gateway.url, seen, "lines")

    assert seen.state == "TASK_STATE_COMPLETED"
    assert seen.texts["lines"] == content
    assert stored.decode() == content
    assert seen.complete == {"lines", "response"}

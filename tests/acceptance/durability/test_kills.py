"""A task survives the death of any process: nothing lost, nothing twice."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from a2a.client import A2AClientError, Client
from a2a.types.a2a_pb2 import GetTaskRequest, SendMessageRequest, SubscribeToTaskRequest, TaskState

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import ACCEPTANCE_AGENT, Deployment, Service, running_service
from tests.support.servers.processes import temporal_answers, until, wait_until_answers
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, ScriptedOpenAI, tool_call

OUTAGE = 5.0
"""Seconds of an outage of Temporal or Redis."""


async def _read_until(
    answer: Answer, text: str, client: Client, message: SendMessageRequest
) -> asyncio.Task[Answer]:
    """Stream in the background; return when the answer contains the text."""
    reached = asyncio.Event()

    async def read() -> Answer:
        async for response in client.send_message(message):
            answer.add(response)
            if text in answer.text:
                reached.set()
        return answer

    reading = asyncio.create_task(read())
    waiting = asyncio.create_task(reached.wait())
    await asyncio.wait((reading, waiting), return_when=asyncio.FIRST_COMPLETED)
    assert reached.is_set(), f"the stream ended early: {answer.responses}"
    return reading


async def _until_happens(effects: Path) -> None:
    """Wait for a tool's first line in a file, or for all files of its first attempt in a folder."""
    await until(lambda: any(effects.glob("*.attempt-1")) or (effects.is_file() and effects.stat().st_size))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    """A deployment shared by the tests that kill workers and gateways."""
    async with running_service(tmp_path_factory.mktemp("kills"), ACCEPTANCE_AGENT) as running:
        yield running


async def test_a_worker_killed_while_the_model_writes(service: Service) -> None:
    """Another worker asks again, once; the client's draft is replaced and it gets one whole answer."""
    service.script([Reply(["Half an ans", asyncio.Event()]), Reply(["A whole ", "answer."])])

    async with connected(service.gateway.url) as client:
        answer = Answer()
        reading = await _read_until(answer, "Half an ans", client, request("Answer me."))
        await service.replace_worker()
        await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "A whole answer."
    assert answer.finals == 1
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert len(service.model.requests) == 2


@pytest.mark.parametrize("tool", ["write_line", "write_once", "write_quickly"])
async def test_a_worker_killed_while_a_tool_runs(service: Service, tmp_path: Path, tool: str) -> None:
    """An idempotent tool runs again with the same key; another does not, and the model reads so.

    The client that streams gets one answer.
    """
    effects, gate = tmp_path / "effects", tmp_path / "gate"
    target = "ledger" if tool == "write_line" else "folder"
    if target == "folder":
        effects.mkdir()
    arguments = json.dumps({target: str(effects), "gate": str(gate)})
    service.script([Reply([tool_call(tool, arguments)]), Reply(["Done."])])

    async with connected(service.gateway.url) as client:
        reading = asyncio.create_task(Answer().read(client.send_message(request("Write."))))
        await _until_happens(effects)
        await service.replace_worker()
        gate.touch()
        answer = await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "Done."
    assert answer.finals == 1
    assert answer.states[-1] == task.status.state == TaskState.TASK_STATE_COMPLETED
    (result,) = service.model.requests[1].tool_results
    if tool == "write_line":
        (line,) = effects.read_text().splitlines()
        assert line.startswith(f"{task.id}/r00001c01")
        assert "may or may not have taken effect" in result
    else:
        key, *attempts = sorted(path.name for path in effects.iterdir())
        assert key.startswith(f"{task.id}_r00001c01")
        assert attempts == [f"{key}.attempt-1", f"{key}.attempt-2"]
        assert result == "created"


async def test_a_killed_gateway_loses_no_event(service: Service) -> None:
    """A client that subscribes or sends again at another gateway gets the text so far, then the rest."""
    more = asyncio.Event()
    message = request("Answer me.")
    service.script([Reply(["First half, ", more, "second half."])])
    dying = await service.everloop.add_gateway()

    async with connected(dying.url) as client:
        answer = Answer()
        reading = await _read_until(answer, "First half, ", client, message)
        dying.process.kill()
        with pytest.raises(A2AClientError):
            await reading
    async with connected(service.gateway.url) as client:
        subscription = client.subscribe(SubscribeToTaskRequest(id=answer.task_id))
        rest, again = Answer(), Answer()
        rest.add(await anext(subscription))
        assert rest.text == "First half, "
        reading = await _read_until(again, "First half, ", client, message)
        more.set()
        await rest.read(subscription)
        await reading
        later = await Answer().read(client.send_message(message))

    for seen in (rest, again, later):
        assert seen.task_id == answer.task_id
        assert seen.text == "First half, second half."
        assert seen.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert len(service.model.requests) == 1


async def test_an_emptied_redis(service: Service, tmp_path: Path) -> None:
    """The task completes, the model reads the whole transcript, and the view comes back."""
    effects, gate = tmp_path / "effects", tmp_path / "gate"
    arguments = json.dumps({"ledger": str(effects), "gate": str(gate)})
    service.script(
        [
            Reply(["I will write.", tool_call("write_line", arguments)]),
            Reply([tool_call("repeat", '{"text": "x", "times": 3}')]),
            Reply(["All done."]),
        ]
    )

    async with connected(service.gateway.url, streaming=False) as client:
        sending = asyncio.create_task(send(client, request("Write.")))
        await _until_happens(effects)
        async with connect_redis(service.everloop.redis_url, NO_CIPHER) as redis:
            await redis.flushall()
        gate.touch()
        done = await sending
        task = await client.get_task(GetTaskRequest(id=done.id))

    assert task.status.state == done.status.state == TaskState.TASK_STATE_COMPLETED
    assert response_of(task) == "All done."
    assert [message.parts[0].text for message in task.history] == ["Write.", "I will write."]
    roles = [message["role"] for message in service.model.requests[2].conversation]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    (line,) = effects.read_text().splitlines()
    assert line.startswith(f"{task.id}/r00001c01")


async def test_redis_away_for_a_while(model: ScriptedOpenAI, everloop: Deployment, tmp_path: Path) -> None:
    """The running call ends and is not repeated; its tool waits for Redis, and the client gets the rest."""
    more, effects, gate = asyncio.Event(), tmp_path / "effects", tmp_path / "gate"
    gate.touch()
    arguments = json.dumps({"ledger": str(effects), "gate": str(gate)})
    model.script = [Reply(["I will ", more, "write.", tool_call("write_line", arguments)]), Reply(["Done."])]
    await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(gateway.url) as client:
        answer = Answer()
        reading = await _read_until(answer, "I will ", client, request("Write."))
        everloop.valkey.kill()
        more.set()
        await asyncio.sleep(OUTAGE)
        everloop.valkey.start()
        await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "Done."
    assert answer.finals == 1
    assert [message.parts[0].text for message in task.history] == ["Write.", "I will write."]
    (line,) = effects.read_text().splitlines()
    assert line.startswith(f"{task.id}/r00001c01")
    assert len(model.requests) == 2


async def test_temporal_away_for_a_while(model: ScriptedOpenAI, everloop: Deployment) -> None:
    """The gateway answers with a retry time; the running call's reply is not lost."""
    more = asyncio.Event()
    model.script = [Reply(["Before, ", more, "after."]), Reply(["New."])]
    await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(gateway.url) as client, httpx.AsyncClient(timeout=30) as http:
        answer = Answer()
        reading = await _read_until(answer, "Before, ", client, request("Answer me."))
        everloop.temporal.kill()
        refused = await http.post(gateway.url, json=_send_message("Now?"), headers={"A2A-Version": "1.0"})
        more.set()
        await asyncio.sleep(OUTAGE)
        everloop.temporal.start()
        address = everloop.temporal_address
        await wait_until_answers(everloop.temporal, lambda: temporal_answers(address), "temporal")
        await reading
        new = await Answer().read(client.send_message(request("And now?")))

    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    assert "Temporal" in refused.json()["error"]["message"]
    assert "Traceback" not in refused.text
    assert answer.text == "Before, after."
    assert answer.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert new.text == "New."


def _send_message(text: str) -> dict[str, object]:
    message = {"messageId": "raw", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}


async def test_a_worker_killed_in_a_fork_repeats_nothing_of_its_past(service: Service, ledger: Path) -> None:
    """Of four calls with effects none is repeated: neither by the fork, nor by its next worker.

    The fork's own call has a claim and a key of its own; a long result of the past can still be read on.
    """
    gate = ledger.with_name("gate")
    write = json.dumps({"ledger": str(ledger), "gate": ""})
    lines = [Reply([tool_call("write_line", write), tool_call("repeat_at_length", LONG_RESULT, index=1)])]
    lines += [Reply([tool_call("write_line", write)]), Reply([tool_call("write_line", write)])]
    service.script([*lines, Reply([tool_call("write_line", write)]), Reply(["Done."])])
    async with connected(service.gateway.url, streaming=False) as client:
        origin = await send(client, request("Write four lines."))
    before = ledger.read_text().splitlines()
    own = json.dumps({"ledger": str(ledger), "gate": str(gate)})

    def read_on(received: ReceivedRequest) -> Reply:
        return [
            Reply([tool_call("write_line", own), tool_call("read_result", _named(received), index=1)]),
            Reply(["Otherwise."]),
        ][len(service.model.requests) - 1]

    service.script(read_on)
    said = {"role": "ROLE_USER", "messageId": "go-on", "parts": [{"text": "Go on otherwise."}]}
    address = f"{service.gateway.url}/everloop/v1/tasks/{origin.id}/fork"
    async with httpx.AsyncClient(timeout=30) as http, connected(service.gateway.url) as client:
        asked = await http.post(address, json={"iteration": 3, "message": said})
        fork_id = asked.json()["task"]["id"]
        await until(lambda: len(ledger.read_text().splitlines()) > len(before))
        await service.replace_worker()
        repeated = await http.post(address, json={"iteration": 3, "message": said})
        gate.touch()
        await Answer().read(client.subscribe(SubscribeToTaskRequest(id=fork_id)))
        fork = await client.get_task(GetTaskRequest(id=fork_id))
        events = (await http.get(f"{address.replace(origin.id, fork_id).removesuffix('fork')}events")).json()

    assert len(before) == 4
    assert repeated.json()["task"]["id"] == fork_id
    assert response_of(fork) == "Otherwise."
    past, (line,) = ledger.read_text().splitlines()[:4], ledger.read_text().splitlines()[4:]
    assert past == before
    assert line.startswith(f"{fork_id}/")
    *_, lost, rest = service.model.requests[-1].tool_results
    assert "may or may not have taken effect" in lost
    assert rest.startswith("xxx")
    made = (event["data"] for event in events["events"] if event["type"] == "toolResult")
    assert [call["attempts"] for call in made if call["name"] == "write_line"] == [2]


LONG_RESULT = json.dumps({"text": "x", "times": 200_000})


def _named(received: ReceivedRequest) -> str:
    """Return the arguments for the next part of the past's long result."""
    found = re.search(r'read_result\("([^"]+)"', received.tool_results[1])
    assert found
    return json.dumps({"result": found[1], "start": 100_000})

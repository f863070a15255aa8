"""The Temporal UI and its command line as the operator's harness: every command as in its page."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, SubscribeToTaskRequest, TaskState

from tests.support.a2a_client import Answer as Seen
from tests.support.a2a_client import connected, response_of
from tests.support.agents.operator import PEER_URL
from tests.support.rigs.deployment import running_deployment
from tests.support.rigs.operator import Harness, in_state, said, until
from tests.support.servers.processes import until as until_so
from tests.support.servers.scripted_openai import Refusal, Reply, ScriptedOpenAI, tool_call

MODULE = "tests.support.agents.operator"
WORKING, COMPLETED = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED
INPUT_REQUIRED, FAILED = TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_FAILED


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Harness]:
    """One worker and one gateway; tests are separate by task."""
    directory = tmp_path_factory.mktemp("operator")
    agents = f"{MODULE}:agent,{MODULE}:lead"
    async with (
        ScriptedOpenAI() as model,
        running_deployment(directory, model.base_url, agents=agents) as everloop,
    ):
        gateway = await everloop.add_gateway()
        everloop.environment[PEER_URL] = gateway.url
        await everloop.add_worker()
        harness = Harness(everloop, gateway)
        model.script = harness.answer
        yield harness


def _call(tool: str, ledger: Path, gate: Path | None = None) -> Reply:
    """Return a reply with a call that writes to the ledger, then waits for the gate file."""
    return Reply([tool_call(tool, json.dumps({"ledger": str(ledger), "gate": str(gate or "")}))])


async def test_the_details_show_what_answers_a_question(harness: Harness) -> None:
    """Phase, iteration, tokens, and a signal to paste; the list finds each state."""
    async with connected(harness.gateway.url) as client:
        reply = Reply([tool_call("transfer", '{"amount": 7}')])
        task_id, requests = await harness.start(client, reply, Reply(["Done."]))
        task = await in_state(client, task_id, INPUT_REQUIRED)
        its_own = f"AgentId = 'clerk' AND Owner = 'anonymous' AND ContextId = '{task.context_id}'"
        parked = await until(lambda: harness.found(f"{its_own} AND TaskState = 'input-required'"))
        details = await harness.details(task_id)
        signal = re.findall(r"```json\n(.*)\n```", details)[0]
        await harness.temporal(
            "workflow", "signal", "--workflow-id", task_id, "--name", "approve", "--input", signal
        )
        task = await in_state(client, task_id, COMPLETED)
        ended = await until(lambda: harness.found(f"{its_own} AND TaskState = 'completed'"))

    wanted = ("input-required", "waiting", "iteration 1", "tokens: 10 in, 5 out", "transfer", '"amount": 7')
    assert [part for part in wanted if part not in details] == []
    assert response_of(task) == "Done."
    assert requests[-1].tool_results == ["sent 7"]
    assert parked == ended == {task_id}
    assert await harness.found(f"{its_own} AND TaskState = 'input-required'") == set()


async def test_a_completed_task_goes_on_after_a_reset(harness: Harness, tmp_path: Path) -> None:
    """Repeated steps do not repeat the tool's effect; views and subscribers follow the newer run."""
    ledger, more = tmp_path / "ledger", asyncio.Event()
    pays = _call("pay", ledger)
    script = [pays, Reply(["Done."]), pays, Reply(["Better ", more, "now."])]
    async with connected(harness.gateway.url) as client:
        task_id, requests = await harness.start(client, *script)
        await in_state(client, task_id, COMPLETED)
        await harness.temporal(*_RESET, "FirstWorkflowTask", "--workflow-id", task_id)
        await in_state(client, task_id, WORKING)
        subscription = client.subscribe(SubscribeToTaskRequest(id=task_id))
        seen = Seen()
        seen.add(await anext(subscription))
        more.set()
        await seen.read(subscription)
        task = await in_state(client, task_id, COMPLETED)

    assert len(ledger.read_text().splitlines()) == 1
    assert len(requests) == 4
    assert requests[-1].tool_results == ["paid"]
    assert [artifact.artifact_id for artifact in task.artifacts] == ["response"]
    assert response_of(task) == "Better now."
    assert (seen.text, seen.states[-1], seen.finals) == ("Better now.", COMPLETED, 1)


_RESET = ("workflow", "reset", "--reason", "once more", "--type")


async def test_what_another_agent_did_is_not_done_again_after_a_reset(
    harness: Harness, tmp_path: Path
) -> None:
    """The model is called again, with other ids; the peer has paid already."""
    ledger, prompt = tmp_path / "ledger", "pay elsewhere"
    asks = Reply([tool_call("clerk_elsewhere", json.dumps({"request": prompt}))])
    harness.scripts[prompt] = [_call("pay", ledger), Reply(["It is paid."])] * 2
    async with connected(f"{harness.gateway.url}/agents/lead") as client:
        task_id, requests = await harness.start(client, asks, Reply(["Done."]), asks, Reply(["Done again."]))
        await in_state(client, task_id, COMPLETED)
        await harness.temporal(*_RESET, "FirstWorkflowTask", "--workflow-id", task_id)
        await until(lambda: harness.ask("workflow", "result", "--workflow-id", task_id))
        task = await until(
            lambda: client.get_task(GetTaskRequest(id=task_id)),
            does=lambda task: response_of(task) == "Done again.",
        )

    assert task.status.state == COMPLETED
    assert len(requests) == 4
    assert "It is paid." in requests[-1].tool_results[0]
    assert len(ledger.read_text().splitlines()) == 1


async def test_a_paused_model_call_is_made_again(harness: Harness) -> None:
    """The provider is hung up on; the draft stays until the next attempt replaces it."""
    async with connected(harness.gateway.url) as client:
        script = [Reply(["Half an ans", asyncio.Event()]), Reply(["A whole ", "answer."])]
        task_id, requests = await harness.start(client, *script)
        await until(
            lambda: client.get_task(GetTaskRequest(id=task_id)),
            does=lambda task: response_of(task) == "Half an ans",
        )
        seen = Seen()
        subscription = client.subscribe(SubscribeToTaskRequest(id=task_id))
        seen.add(await anext(subscription))
        of_it = ("--workflow-id", task_id, "--activity-id", "1")
        await harness.temporal("activity", "pause", *of_it, "--reason", "the provider is being repaired")
        await until(lambda: harness.activity(task_id), does=lambda activity: activity == ("1", "PAUSED"))
        await asyncio.wait_for(requests[0].disconnected.wait(), 10)
        paused = await client.get_task(GetTaskRequest(id=task_id))
        await harness.temporal("activity", "unpause", *of_it)
        await seen.read(subscription)
        task = await client.get_task(GetTaskRequest(id=task_id))

    assert (paused.status.state, response_of(paused)) == (WORKING, "Half an ans")
    assert seen.text == response_of(task) == "A whole answer."
    assert (seen.finals, seen.states[-1], len(requests)) == (1, COMPLETED, 2)


async def test_a_reset_activity_is_retried_at_once(harness: Harness) -> None:
    """A call that waits for its next attempt runs at once, and its note is removed."""
    async with connected(harness.gateway.url) as client:
        busy = Refusal(503, "busy", headers={"retry-after": "300"})
        more = asyncio.Event()
        task_id, _ = await harness.start(client, busy, Reply(["At ", more, "last."]))
        waiting = await until(
            lambda: client.get_task(GetTaskRequest(id=task_id)), does=lambda task: bool(said(task))
        )
        await until(lambda: harness.activity(task_id), does=lambda activity: activity == ("1", "SCHEDULED"))
        await harness.temporal("activity", "reset", "--workflow-id", task_id, "--activity-id", "1")
        writing = await until(
            lambda: client.get_task(GetTaskRequest(id=task_id)), does=lambda task: bool(task.artifacts)
        )
        more.set()
        task = await in_state(client, task_id, COMPLETED)

    assert "503" in said(waiting)
    assert said(writing) == ""
    assert response_of(task) == "At last."


@pytest.mark.parametrize("tool", ["pay", "look_up"])
async def test_a_paused_tool_has_its_effect_once(harness: Harness, tmp_path: Path, tool: str) -> None:
    """An idempotent one stops and runs again with its key; another one completes. Neither is an error."""
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with connected(harness.gateway.url) as client:
        task_id, requests = await harness.start(client, _call(tool, ledger, gate), Reply(["Done."]))
        await until_so(ledger.is_file)
        activity, _ = await harness.activity(task_id)
        of_it = ("--workflow-id", task_id, "--activity-id", activity)
        await harness.temporal("activity", "pause", *of_it)
        held = "PAUSED" if tool == "look_up" else "PAUSE_REQUESTED"
        await harness.until_heard(task_id)
        await until(lambda: harness.activity(task_id), does=lambda pending: pending == (activity, held))
        gate.touch()
        if tool == "look_up":
            await harness.temporal("activity", "unpause", *of_it)
        task = await in_state(client, task_id, COMPLETED)

    assert response_of(task) == "Done."
    assert len(set(ledger.read_text().splitlines())) == 1
    assert len(ledger.read_text().splitlines()) == (2 if tool == "look_up" else 1)
    assert requests[1].tool_results == ["found" if tool == "look_up" else "paid"]


@pytest.mark.parametrize("touch", [("reset",), ("pause", "unpause")], ids="-".join)
async def test_a_task_is_cancelled_whatever_was_done_to_its_activity(
    harness: Harness, tmp_path: Path, touch: tuple[str, ...]
) -> None:
    """It hangs, for hours.

    Temporal sends its attempt nothing more, and the cancellation does not wait for it.
    """
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with connected(harness.gateway.url) as client:
        task_id, _ = await harness.start(client, _call("hang", ledger, gate))
        await until_so(ledger.is_file)
        await _touch(harness, task_id, *touch)
        await harness.temporal("workflow", "cancel", "--workflow-id", task_id)
        canceled = await in_state(client, task_id, TaskState.TASK_STATE_CANCELED)
        gate.touch()

    assert said(canceled) == "canceled on request"
    assert len(ledger.read_text().splitlines()) == 1


async def _touch(harness: Harness, task_id: str, *commands: str) -> None:
    """Change the running activity, and wait until its attempt has got the change."""
    activity, _ = await harness.activity(task_id)
    for command in commands:
        await harness.temporal("activity", command, "--workflow-id", task_id, "--activity-id", activity)
        await harness.until_heard(task_id)


async def test_a_paused_workflow_goes_on_where_it_was(harness: Harness) -> None:
    """Running calls end, nothing new begins; messages are refused for now, with the reason."""
    async with connected(harness.gateway.url) as client, httpx.AsyncClient() as http:
        more = asyncio.Event()
        script = [Reply([tool_call("transfer", '{"amount": 1}'), more]), Reply(["Done."])]
        task_id, requests = await harness.start(client, *script)
        await until(lambda: harness.activity(task_id), does=lambda activity: activity == ("1", "STARTED"))
        await harness.temporal("workflow", "pause", "--workflow-id", task_id, "--reason", "a closer look")
        more.set()
        found = await until(
            lambda: harness.found("ExecutionStatus = 'Paused'"), does=lambda ids: task_id in ids
        )
        refused = await http.post(
            harness.gateway.url, json=_follow_up(task_id), headers={"A2A-Version": "1.0"}
        )
        task = await client.get_task(GetTaskRequest(id=task_id))
        await harness.temporal("workflow", "unpause", "--workflow-id", task_id, "--reason", "seen")
        await in_state(client, task_id, INPUT_REQUIRED)
        rejection = '{"call_id": "r00001c01", "approved": false, "note": "not today"}'
        await harness.temporal(
            "workflow", "signal", "--workflow-id", task_id, "--name", "approve", "--input", rejection
        )
        done = await in_state(client, task_id, COMPLETED)

    assert found == {task_id}
    assert refused.status_code == 503
    assert "paused" in refused.json()["error"]["message"]
    assert task.status.state == WORKING
    assert response_of(done) == "Done."
    assert "not today" in requests[-1].tool_results[0]


def _follow_up(task_id: str) -> dict[str, object]:
    message = {"messageId": "raw", "taskId": task_id, "role": "ROLE_USER", "parts": [{"text": "Well?"}]}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}


@asynccontextmanager
async def _new_harness(directory: Path) -> AsyncGenerator[Harness]:
    """A harness of its own, without workers."""
    async with (
        ScriptedOpenAI() as model,
        running_deployment(directory, model.base_url, agents=f"{MODULE}:agent") as everloop,
    ):
        gateway = await everloop.add_gateway()
        harness = Harness(everloop, gateway)
        model.script = harness.answer
        yield harness


async def test_old_tasks_end_on_old_code(tmp_path: Path) -> None:
    """A new build takes new tasks at an operator's command; the old one may end after its tasks."""
    async with _new_harness(tmp_path) as harness, connected(harness.gateway.url) as client:
        everloop = harness.everloop
        everloop.environment["EVERLOOP_BUILD_ID"] = "1"
        await everloop.add_worker()
        await _make_current(harness, "1")
        ask = Reply([tool_call("transfer", '{"amount": 1}')])
        old, _ = await harness.start(client, ask, Reply(["Old."]))
        await in_state(client, old, INPUT_REQUIRED)
        everloop.environment["EVERLOOP_BUILD_ID"] = "2"
        await everloop.add_worker()
        await _make_current(harness, "2")
        new, _ = await harness.start(client, Reply(["New."]))
        await in_state(client, new, COMPLETED)
        on_old = await harness.found(_RUNS_ON.format(build="1"))
        approval = '{"call_id": "r00001c01", "approved": true}'
        await harness.temporal(
            "workflow", "signal", "--workflow-id", old, "--name", "approve", "--input", approval
        )
        await in_state(client, old, COMPLETED)
        builds = [await _build(harness, task) for task in (old, new)]
        await until(lambda: harness.found(_RUNS_ON.format(build="1")), does=lambda ids: not ids)

    assert builds == ["1", "2"]
    assert on_old == {old}


_RUNS_ON = "TemporalWorkerDeploymentVersion = 'everloop:{build}' AND ExecutionStatus = 'Running'"


async def _make_current(harness: Harness, build: str) -> None:
    """Make a build current for new tasks; Temporal registers a worker a moment after its start."""
    named = ("--deployment-name", "everloop", "--build-id", build)
    await until(lambda: harness.tries("worker", "deployment", "describe-version", *named))
    await until(lambda: harness.tries("worker", "deployment", "set-current-version", *named, "--yes"))


async def _build(harness: Harness, task_id: str) -> str:
    described = await harness.ask("workflow", "describe", "--workflow-id", task_id)
    return str(described["workflowExecutionInfo"]["versioningInfo"]["deploymentVersion"]["buildId"])


async def test_a_worker_ends_although_a_paused_tool_goes_on(harness: Harness, tmp_path: Path) -> None:
    """The tool has had its only cancellation; the next worker reports an unknown outcome."""
    ledger, calls = tmp_path / "ledger", _call("hang", tmp_path / "ledger", tmp_path / "gate")
    working = [each for each in harness.everloop.started if each.is_running()]
    (worker,) = (each for each in working if each is not harness.gateway.process)
    async with connected(harness.gateway.url) as client:
        task_id, requests = await harness.start(client, calls, Reply(["Done."]))
        await until_so(ledger.is_file)
        activity, _ = await harness.activity(task_id)
        of_it = ("--workflow-id", task_id, "--activity-id", activity)
        await harness.temporal("activity", "pause", *of_it)
        await harness.until_heard(task_id)
        code = await asyncio.to_thread(worker.stop)
        await harness.everloop.add_worker()
        await harness.temporal("activity", "unpause", *of_it)
        task = await in_state(client, task_id, COMPLETED)

    assert code == 0
    assert response_of(task) == "Done."
    assert "may or may not have taken effect" in requests[1].tool_results[0]
    assert len(ledger.read_text().splitlines()) == 1

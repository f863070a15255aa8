"""Operators over HTTP: the reason why a task is stuck, the remedy, and a record of the action."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import TaskState

from everloop import client as clients
from everloop.client import InvalidError, NotFoundError, SyncClient
from tests.support.a2a_client import response_of
from tests.support.rigs.deployment import Deployment
from tests.support.rigs.operator import in_state, said, until
from tests.support.rigs.operator_room import Room, running_room
from tests.support.servers.processes import until as until_so
from tests.support.servers.scripted_openai import Refusal, Reply, tool_call

COMPLETED, FAILED = TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED
CANCELED, INPUT_REQUIRED = TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_INPUT_REQUIRED


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Room]:
    async with running_room(tmp_path_factory.mktemp("operators")) as room:
        await room.harness.everloop.add_worker()
        yield room


def _call(tool: str, ledger: Path, gate: Path | None = None) -> Reply:
    return Reply([tool_call(tool, json.dumps({"ledger": str(ledger), "gate": str(gate or "")}))])


def _name(by: object) -> str:
    """Return the owner in `owner (id of the key)`."""
    owner, _, key = str(by).partition(" (")
    assert key.endswith(")")
    return owner


async def _listed(root: clients.Client, task_id: str) -> list[clients.OpenQuestion]:
    """Return the questions of a task of Alice's that are listed."""
    return [question async for question in root.questions(owner="alice") if question.task_id == task_id]


async def test_a_task_that_waits_for_an_operator_is_resumed(room: Room) -> None:
    """The list has the failure; its events and the log name the operator."""
    async with room.client("patient") as client, room.of("root") as root:
        task_id, _ = await room.harness.start(client, Refusal(401, "wrong_key"), Reply(["It works."]))
        stuck = await room.stuck(task_id)
        done = await root.operator_resume(task_id)
        task = await in_state(client, task_id, COMPLETED)
        await room.harness.temporal("workflow", "result", "--workflow-id", task_id)  # it ends after its view
        with pytest.raises(InvalidError, match="has ended: it is completed"):
            await root.operator_resume(task_id)
        (event,) = await room.done_by_operators(task_id)

    assert "OPENAI_API_KEY" in stuck.why
    assert stuck.actions == ["resume", "cancel"]
    assert done.done == "`resume` let the task go on"
    assert response_of(task) == "It works."
    assert (event["role"], event["signal"], _name(event["by"])) == ("operator", "resume", "root")
    assert room.logged(task_id) == [("resume", event["by"])]


async def test_a_call_that_waits_for_its_next_attempt_is_made_at_once(room: Room) -> None:
    """The provider set a retry time of minutes; history has no event for that, so a note is recorded."""
    async with room.client("clerk") as client, room.of("root") as root:
        busy = Refusal(503, "busy", headers={"retry-after": "300"})
        task_id, _ = await room.harness.start(client, busy, Reply(["At last."]))
        stuck = await room.stuck(task_id)
        done = await root.operator_resume(task_id)
        await in_state(client, task_id, COMPLETED)
        (event,) = await room.done_by_operators(task_id)

    assert "the model cannot answer: " in stuck.why
    assert "attempt 2, the next at " in stuck.why
    assert stuck.actions == ["resume", "cancel"]
    assert done.done == "what had failed is tried again now: call_model"
    assert (event["signal"], event["note"]) == ("note", "made a call again at once that had failed")


@pytest.mark.parametrize("what", ["activity", "workflow"])
async def test_what_somebody_paused_goes_on(room: Room, what: str) -> None:
    """The list has the operator and the reason."""
    more = asyncio.Event()
    async with room.client("clerk") as client, room.of("root") as root:
        task_id, _ = await room.harness.start(client, Reply(["Half", more]), Reply(["Whole."]))
        await until(
            lambda: room.harness.activity(task_id), does=lambda activity: activity == ("1", "STARTED")
        )
        which = ("--activity-id", "1") if what == "activity" else ()
        await room.harness.temporal(what, "pause", "--workflow-id", task_id, *which, "--reason", "a look")
        stuck = await room.stuck(task_id)
        done = await root.operator_resume(task_id)
        more.set()
        await in_state(client, task_id, COMPLETED)
        events = await room.done_by_operators(task_id)
        async with room.of("alice") as alice:
            paused = [event.data async for event in alice.events(task_id) if event.data.get("isPaused")]

    assert paused == ([{"isPaused": True, "reason": "a look"}] if what == "workflow" else [])
    assert "paused by temporal-cli:" in stuck.why
    assert "(a look)" in stuck.why
    assert stuck.actions == ["resume", "cancel"]
    assert "goes on" in done.done
    assert [_name(event["by"]) for event in events] == ["root"]
    assert events[0].get("isPaused") is (None if what == "activity" else False)


async def test_a_call_that_hangs_is_skipped(room: Room, tmp_path: Path) -> None:
    """The model reads the note, and the tool that ran is not run again."""
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with room.client("clerk") as client, room.of("root") as root:
        script = (_call("hang", ledger, gate), Reply(["Without it."]))
        task_id, requests = await room.harness.start(client, *script)
        await until_so(ledger.is_file)
        shown = await root.operator_task(task_id)
        slow = await room.seen_later(task_id)
        with pytest.raises(InvalidError, match=r"no call 'r1' is pending.*Pending: r00001c01 \(hang\)"):
            await root.operator_skip(task_id, "r1")
        done = await root.operator_skip(task_id, note="the bank is closed")
        task = await in_state(client, task_id, COMPLETED)
        gate.touch()
        *_, event = await room.done_by_operators(task_id)

    assert (shown.waits_for, shown.iteration, shown.owner) == ("hang", 1, "alice")
    assert shown.stuck is None
    assert slow
    assert slow.why.startswith("a tool (hang) has run for ")
    assert slow.actions == ("skip", "cancel")
    assert done.done == "`skip_call` ends `r00001c01`, a call of `hang`"
    assert response_of(task) == "Without it."
    assert requests[1].tool_results[0].startswith("an operator skipped this call: the bank is closed.")
    assert (event["signal"], event["callId"], event["note"]) == (
        "skip_call",
        "r00001c01",
        "the bank is closed",
    )
    assert len(ledger.read_text().splitlines()) == 1


async def test_a_task_that_failed_goes_back_to_before_the_failure(room: Room, tmp_path: Path) -> None:
    """The failed call is made again, the tool before it is not; a second reset is refused."""
    ledger = tmp_path / "ledger"
    script = [_call("pay", ledger), Refusal(401, "wrong_key"), Reply(["Done ", "after all."])]
    async with room.client("clerk") as client, room.of("root") as root:
        task_id, requests = await room.harness.start(client, *script)
        await in_state(client, task_id, FAILED)
        stuck = await room.stuck(task_id)
        await root.operator_reset(task_id)
        with pytest.raises(InvalidError, match=r"has not ended|would not help"):
            await root.operator_reset(task_id)
        task = await in_state(client, task_id, COMPLETED)
        (event,) = await room.done_by_operators(task_id)
        listed = [each.id async for each in root.operator_tasks(owner="alice", agent="clerk")]

    assert "OPENAI_API_KEY" in stuck.why
    assert stuck.actions == ["reset"]
    assert response_of(task) == "Done after all."
    assert len(requests) == 3
    assert len(ledger.read_text().splitlines()) == 1
    assert (event["isReset"], _name(event["by"])) == (True, "root")
    assert listed.count(task_id) == 1  # the failed run is in Temporal's list, too


async def test_a_task_that_was_terminated_goes_on(room: Room, tmp_path: Path) -> None:
    """It has the operator and the reason; completed steps stay."""
    ledger = tmp_path / "ledger"
    script = [_call("pay", ledger), Reply(["Half an", asyncio.Event()]), Reply(["Done."])]
    async with room.client("clerk") as client, room.of("root") as root:
        task_id, requests = await room.harness.start(client, *script)
        await until_so(lambda: len(requests) == 2)
        await room.harness.temporal("workflow", "terminate", "--workflow-id", task_id, "--reason", "a slip")
        stuck = await room.stuck(task_id)
        await root.operator_reset(task_id)
        task = await in_state(client, task_id, COMPLETED)

    assert stuck.why == "the task was terminated: a slip"
    assert stuck.actions == ["reset"]
    assert response_of(task) == "Done."
    assert len(ledger.read_text().splitlines()) == 1


async def test_an_operator_answers_and_cancels(room: Room) -> None:
    """A question is answered in place of the addressee; one that is not open is unknown."""
    async with room.client("clerk") as client, room.of("root") as root:
        ask = Reply([tool_call("transfer", '{"amount": 7}')])
        task_id, requests = await room.harness.start(client, ask, ask, Reply(["Done."]))
        await in_state(client, task_id, INPUT_REQUIRED)
        (question,) = await until(lambda: _listed(root, task_id))  # the list follows the task
        with pytest.raises(NotFoundError, match="no question 'other'"):
            await root.operator_approve(task_id, "other")
        with pytest.raises(InvalidError, match="nothing holds this task up"):
            await root.operator_resume(task_id)
        done = await root.operator_approve(task_id, question.question_id, approved=True)
        await until_so(lambda: len(requests) == 2)
        await in_state(client, task_id, INPUT_REQUIRED)
        waiting = await root.operator_task(task_id)
        await root.operator_cancel(task_id)
        canceled = await in_state(client, task_id, CANCELED)
        events = await room.done_by_operators(task_id)

    assert done.done == f"`approve` answered `{question.question_id}`"
    assert requests[1].tool_results == ["sent 7"]
    assert (waiting.waits_for, waiting.stuck) == ("people", None)
    assert said(canceled) == "canceled on request"
    assert [event["approved"] for event in events if event.get("signal") == "approve"] == [True]
    assert events[-1]["isCancelRequested"] is True
    assert {_name(event["by"]) for event in events} == {"root"}


async def test_an_owners_operators_cannot_stand_in_for_others(room: Room) -> None:
    """A question to others than the owner is answered by an operator of another owner."""
    async with room.client("clerk") as client, room.of("boss") as boss, room.of("root") as root:
        ask = Reply([tool_call("refund", '{"amount": 7}')])
        task_id, requests = await room.harness.start(client, ask, Reply(["Done."]))
        await in_state(client, task_id, INPUT_REQUIRED)
        (asked,) = (await root.operator_task(task_id)).questions
        question = asked.question_id
        with pytest.raises(InvalidError, match="asks others than the owner"):
            await boss.operator_approve(task_id, question)
        await root.operator_approve(task_id, question, note="seen the receipt")
        await in_state(client, task_id, COMPLETED)

    assert (asked.tool, asked.kind, asked.scope) == ("refund", "confirmation", "tasks:approve")
    assert requests[-1].tool_results == ["refunded 7"]


async def test_only_operators_get_there(room: Room) -> None:
    """The scope must be named, agents in scopes bound it, and Alice's own admin is one as well."""
    base = f"{room.gateway.url}/everloop/v1/operator"
    async with room.client("clerk") as client, httpx.AsyncClient(base_url=base) as http:
        task_id, _ = await room.harness.start(client, Reply(["Hi."]))
        await in_state(client, task_id, COMPLETED)
        async with room.client("patient") as patient:
            await room.harness.start(patient, Reply(["Hi."]))
        reading = ("/tasks", "/system", f"/tasks/{task_id}")
        acting = ("resume", "skip", "reset", "cancel", "approve")
        refused = [await http.get(path, headers=room.keys["alice"]) for path in reading]
        refused += [
            await http.post(f"/tasks/{task_id}/{name}", json={}, headers=room.keys["alice"])
            for name in acting
        ]
        unknown = await http.get("/tasks")
        bound = await http.get(f"/tasks/{task_id}", headers=room.keys["bound"])
        hidden = await until(lambda: _tasks(http, room.keys["bound"]))
        boss = await http.get(f"/tasks/{task_id}", headers=room.keys["boss"])
        nobodys = (await http.get("/tasks", params={"owner": "bob"}, headers=room.keys["root"])).json()
        wrong = await http.get("/tasks", params={"state": "busy"}, headers=room.keys["root"])

    assert {answer.status_code for answer in refused} == {403}
    assert "this takes the scope admin" in refused[0].json()["error"]["message"]
    assert unknown.status_code == 401
    assert bound.status_code == 404
    assert {task["agent"] for task in hidden} == {"patient"}
    assert boss.json()["task"]["owner"] == "alice"
    assert nobodys == {"tasks": [], "nextPageToken": ""}
    assert wrong.status_code == 400
    assert "submitted, working, input-required" in wrong.json()["error"]["message"]


async def _tasks(http: httpx.AsyncClient, headers: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Return the tasks in an operator's list; Temporal lists them some time after they began."""
    return (await http.get("/tasks", headers=headers)).json()["tasks"]


async def test_the_system_says_how_it_fares(room: Room) -> None:
    """Versions, each queue with its workers, health, and tasks by state; without asyncio, too."""
    key = room.keys["root"]["X-API-Key"]
    async with room.client("clerk") as client:
        await room.harness.start(client, Reply(["Hi."]))

    def show() -> clients.OperatorSystem:
        with SyncClient(room.gateway.url, api_key=key) as client:
            return client.operator_system()

    system = await until(lambda: asyncio.to_thread(show), does=lambda system: bool(system.tasks["completed"]))
    base = room.harness.everloop.environment["EVERLOOP_TASK_QUEUE"]

    assert set(system.versions) == {"everloop", "temporalServer", "redis"}
    assert all(system.versions.values())
    assert [(queue.name, queue.kind, queue.workers) for queue in system.queues] == [
        (base, "workflows", 1),
        *((f"{base}-{kind}", kind, 1) for kind in ("model", "tools", "push", "narrator")),
    ]
    (worker,) = system.workers
    assert worker.identity.endswith(f"@{os.uname().nodename}")
    assert len(worker.queues) == len(system.queues)
    assert [(check.name, check.ok) for check in system.health] == [
        ("temporal", True),
        ("redis", True),
        ("blobs", True),
        ("workers", True),
    ]
    assert (system.temporal_ui, system.namespace) == (None, "default")


async def test_an_action_whose_gateway_dies_is_done_once(room: Room, tmp_path: Path) -> None:
    """It is sent again with its key: the next call, which hangs as well, is not skipped instead."""
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    everloop: Deployment = room.harness.everloop
    async with room.client("clerk") as client:
        hanging = _call("hang", ledger, gate)
        task_id, requests = await room.harness.start(client, hanging, hanging, Reply(["Done."]))
        await until_so(ledger.is_file)
        path = f"/everloop/v1/operator/tasks/{task_id}/skip"
        headers = {**room.keys["root"], "Idempotency-Key": "skip-1"}
        mortal = await everloop.add_gateway()

        async def ask(url: str) -> httpx.Response:
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
                return await http.post(path, json={})

        asking = asyncio.create_task(ask(mortal.url))
        await until_so(lambda: len(requests) == 2 or asking.done())
        mortal.process.kill()
        await asyncio.wait({asking})
        await until_so(lambda: len(ledger.read_text().splitlines()) == 2)
        again = await ask(room.gateway.url)
        async with room.of("root") as root:
            pending = await root.operator_task(task_id)
        gate.touch()
        await in_state(client, task_id, COMPLETED)
        events = await room.done_by_operators(task_id)

    assert again.status_code == 200, again.text
    assert pending.waits_for == "hang"
    assert [event["callId"] for event in events] == ["r00001c01"]
    assert requests[-1].tool_results[-1] == "paid"

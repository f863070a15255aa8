"""Pages and actions of callers with the scope of approvers, and of no others."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from pydantic import JsonValue
from structlog.testing import capture_logs
from temporalio.client import Client

from everloop import client as clients
from everloop.gateway.auth.access import AccessControl
from everloop.runtime.protocol.a2a_tasks import timestamp
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.calls import CallModelInput, RunToolInput, ToolReply
from everloop.workflows.contract.http_extension import HTTP_BASE
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.questions import Question, QuestionKind
from tests.gateway.harness import (
    PublishingTools,
    RunningGateway,
    key_scheme,
    running_gateway,
    unique,
    working,
)
from tests.support.fakes.ports import CountingTools, ScriptedModel, answer, asks
from tests.support.rigs.operator import until

KEYS = {
    "owner": ("alice", ["tasks:read", "tasks:write"]),
    "self": ("alice", ["tasks:read", "tasks:write", "tasks:approve"]),
    "boss": ("berta", ["tasks:approve"]),
    "refunds": ("dora", ["refunds:approve"]),
    "bound": ("emma", ["tasks:approve", "agents:other"]),
    "reader": ("mallory", ["tasks:read", "tasks:write"]),
    "root": ("root", ["admin", "operator"]),
}

Json = dict[str, JsonValue]


@dataclass(frozen=True)
class Office:
    """A gateway of an agent whose calls others than the owner approve."""

    gateway: RunningGateway
    keys: Mapping[str, Mapping[str, str]]
    tools: CountingTools
    client: Client

    @property
    def http(self) -> httpx.AsyncClient:
        return self.gateway.http

    async def ask(self, caller: str = "owner") -> str:
        """Start a task whose call waits for the scope tasks:approve; return its id once it is listed.

        The list follows the view in the sender's answer a moment later.
        """
        task = await self.send(caller, "Refund it.")
        assert cast("Json", task["status"])["state"] == "TASK_STATE_INPUT_REQUIRED", task
        task_id = str(task["id"])
        await until(lambda: self.listed("boss", task_id))
        return task_id

    async def send(self, caller: str, text: str, task_id: str = "") -> Json:
        """Send a message; return the task, or the error."""
        message: Json = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        if task_id:
            message["taskId"] = task_id
        sent = await self.gateway.call("SendMessage", {"message": message}, **self.keys[caller])
        answered = sent.json()
        return cast("Json", answered["error"] if "error" in answered else answered["result"]["task"])

    async def listed(self, caller: str, task_id: str) -> list[Json]:
        """Return a caller's entry for a task, on any page of the list."""
        found, token = list[Json](), ""
        while True:
            query = {"pageSize": "5", "pageToken": token}
            got = await self.http.get(HTTP_BASE + "/approvals", params=query, headers=self.keys[caller])
            assert got.status_code == 200, got.text
            found += [each for each in got.json()["approvals"] if each["taskId"] == task_id]
            token = got.json()["nextPageToken"]
            if not token:
                return found

    async def decide(
        self, caller: str, task_id: str, body: JsonValue, question: str = "c/1"
    ) -> httpx.Response:
        path = f"{HTTP_BASE}/approvals/{task_id}/{quote(question, safe='')}"
        return await self.http.post(path, json=body, headers=self.keys.get(caller, {}))

    async def result(self, task_id: str) -> None:
        await self.client.get_workflow_handle_for(AgentTask.run, task_id).result()

    def given(self, task_id: str) -> list[tuple[bool, str, str]]:
        """Return the answers with which the calls of a task ran."""
        calls = [call for call in self.tools.calls if call.task.task_id == task_id]
        return [(given.approved, given.by, given.approver) for call in calls for given in call.answers]


def error_of(answered: httpx.Response) -> tuple[int, str]:
    assert answered.headers["Cache-Control"] == "no-store"
    return answered.status_code, answered.json()["error"]["message"]


def refunds(call: RunToolInput) -> ToolReply | None:
    """Make each call of the tool wait for an approval."""
    if call.answers:
        return None
    return Question(
        id=f"{call.call.id}/1",
        kind=QuestionKind.CONFIRMATION,
        purpose="approval",
        text="Approve the call refund?",
        call=call.call,
        approvers="tasks:approve",
    )


async def replies(call: CallModelInput) -> AssistantMessage:
    return asks(("c", "refund")) if call.length == 1 else answer("done")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def office(
    client: Client, views: TaskViews, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Office]:
    queue = unique("office")
    scheme, keys = key_scheme(tmp_path_factory.mktemp("keys") / "keys", KEYS)
    tools = PublishingTools(views, refunds)
    async with (
        working(client, views, queue, ScriptedModel(*[replies] * 200), tools),
        running_gateway(client, views, queue=queue, access=AccessControl(scheme)) as gateway,
    ):
        yield Office(gateway, keys, tools, client)


async def test_somebody_else_approves(office: Office) -> None:
    """Approvers see the question and nothing else; the history of the task, and the log, name the decider."""
    task_id = await office.ask()
    (shown,) = await office.listed("boss", task_id)
    with capture_logs() as logs:
        answered = await office.decide("boss", task_id, {"approved": True, "note": "fine"})
    again = await office.decide("boss", task_id, {"approved": True, "note": "fine"})
    await office.result(task_id)
    read = await office.gateway.call("GetTask", {"id": task_id}, **office.keys["owner"])
    task = read.json()["result"]
    late = await office.decide("boss", task_id, {"approved": True, "note": "fine"})
    at = shown.pop("askedAt")
    assert isinstance(at, str)
    assert isinstance(shown.pop("ageSeconds"), int)
    assert shown == {
        "taskId": task_id,
        "questionId": "c/1",
        "agent": "staged",
        "tool": "refund",
        "arguments": "{}",
        "text": "Approve the call refund?",
        "scope": "tasks:approve",
    }
    assert [each.status_code for each in (answered, again, late)] == [200] * 3
    assert answered.json() == again.json() == late.json()
    assert answered.json().items() >= {"taskId": task_id, "approved": True}.items()
    (given,) = office.given(task_id)
    assert given[:2] == (True, "approver")
    assert given[2].startswith("berta")
    (told,) = [message for message in task["history"] if "approval" in message.get("metadata", {})]
    assert told["role"] == "ROLE_AGENT"
    assert told["parts"][0]["text"] == f"approved by {given[2]} (tasks:approve): fine"
    approved_at = datetime.fromisoformat(told["metadata"]["approval"]["at"])
    assert answered.json()["at"] == timestamp(approved_at)
    (line,) = [each for each in logs if each["event"] == "question answered in its owner's place"]
    assert line["approver"] == given[2]
    assert (line["task_id"], line["tool"], line["approved"]) == (task_id, "refund", True)
    assert not {"note", "arguments", "text"} & line.keys()
    assert await office.listed("boss", task_id) == []


async def test_approvers_have_a_client(office: Office) -> None:
    """With an approver's key the client lists and decides; with another one it reports the missing scope."""
    url = str(office.http.base_url)
    asked = await office.ask()
    async with clients.Client(url, api_key=office.keys["self"]["X-API-Key"]) as reader:
        (waiting,) = [each async for each in reader.questions() if each.task_id == asked]
    async with clients.Client(url, api_key=office.keys["boss"]["X-API-Key"]) as boss:
        (shown,) = [each async for each in boss.approvals() if each.task_id == asked]
        decision = await boss.decide(asked, shown.question_id, note="fine")
        with pytest.raises(clients.NotFoundError, match="no question 'none' of a task"):
            await boss.decide(asked, "none")
    async with clients.Client(url, api_key=office.keys["owner"]["X-API-Key"]) as owner:
        end = [event async for event in owner.watch(asked)][-1]
        other = await owner.send("Refund it.")
        with pytest.raises(
            clients.InvalidError, match="this waits for somebody with the scope tasks:approve"
        ):
            await owner.approve(other.id)
        with pytest.raises(clients.ForbiddenError):
            _ = [each async for each in owner.approvals()]
    async with clients.Client(url) as nobody:
        with pytest.raises(clients.UnauthenticatedError, match="give api_key="):
            await nobody.task(asked)

    assert (shown.tool, shown.arguments, shown.question_id) == ("refund", {}, "c/1")
    assert shown.asked_at
    assert (waiting.answer_by, waiting.kind, waiting.question_id) == ("approval", "confirmation", "c/1")
    assert (decision.approved, decision.task_id, decision.question) == (True, asked, "c/1")
    assert isinstance(end, clients.Done)
    assert [question.approvers for question in other.questions] == ["tasks:approve"]


async def test_the_owner_cannot_approve(office: Office) -> None:
    """Neither in a message nor as an approver, and not with the credentials that began the task."""
    task_id, own = await office.ask(), await office.ask("self")
    for text in ("yes", "Please do it."):
        refused = await office.send("owner", text, task_id)
        assert "this waits for somebody with the scope tasks:approve" in str(refused["message"])
    assert error_of(await office.decide("owner", task_id, {"approved": True}))[0] == 403
    status, text = error_of(await office.decide("self", own, {"approved": True}))
    assert (status, text) == (409, "these credentials began the task; somebody else has to answer")
    assert office.given(task_id) == office.given(own) == []
    assert (await office.decide("boss", own, {"approved": False})).status_code == 200
    assert (await office.decide("self", task_id, {"approved": False})).status_code == 200
    await office.result(own)
    assert [given[:2] for given in office.given(own)] == [(False, "approver")]


@pytest.mark.parametrize("caller", ["refunds", "bound"])
async def test_an_approver_of_something_else_finds_nothing(office: Office, caller: str) -> None:
    """Approvers of another scope or agent get the answer for a task that does not exist."""
    task_id, nobodys = await office.ask(), str(uuid4())
    theirs = await office.decide(caller, task_id, {"approved": True})
    missing = await office.decide(caller, nobodys, {"approved": True})
    assert await office.listed(caller, task_id) == []
    assert theirs.status_code == 404
    assert theirs.text.replace(task_id, "") == missing.text.replace(nobodys, "")
    assert error_of(await office.decide("boss", task_id, {"approved": True}, "z"))[0] == 404
    assert error_of(await office.decide("boss", f"{task_id}%2Fx", {"approved": True}))[0] == 404
    assert office.given(task_id) == []


async def test_approvals_take_a_scope_that_is_named(office: Office) -> None:
    """Without credentials 401, without such a scope 403; neither reads the task."""
    task_id = await office.ask()
    for method, path in (
        ("GET", HTTP_BASE + "/approvals"),
        ("POST", f"{HTTP_BASE}/approvals/{task_id}/c%2F1"),
    ):
        nobody = await office.http.request(method, path)
        reader = await office.http.request(method, path, headers=office.keys["reader"])
        assert error_of(nobody)[0] == 401
        assert nobody.headers["WWW-Authenticate"].startswith("ApiKey")
        root = await office.http.request(method, path, headers=office.keys["root"])
        for refused in (reader, root):
            assert error_of(refused)[0] == 403
            assert "tasks:approve" in error_of(refused)[1]


@pytest.mark.parametrize(
    "body", [[], {}, {"approved": "yes"}, {"approved": True, "extra": 1}, {"approved": 1}, "yes"]
)
async def test_what_is_no_answer_is_refused(office: Office, body: JsonValue) -> None:
    """The error names the expected form of the JSON body."""
    status, text = error_of(await office.decide("boss", "t", body))
    assert (status, '{"approved": true, "note": "…"}' in text) == (400, True)


async def test_one_answer_counts(office: Office) -> None:
    """A second, different answer gets an error that the question is already answered."""
    task_id = await office.ask()
    assert (await office.decide("boss", task_id, {"approved": False})).status_code == 200
    await office.result(task_id)
    status, text = error_of(await office.decide("self", task_id, {"approved": True}))
    assert (status, text) == (409, "question 'c/1' has been answered already")
    assert [given[:2] for given in office.given(task_id)] == [(False, "approver")]

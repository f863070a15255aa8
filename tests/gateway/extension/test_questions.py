"""GET /questions: all open questions, over agents and tasks, each with its expected answer."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator
from pydantic import JsonValue
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.gateway.auth.access import AccessControl
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.calls import CallModelInput, RunToolInput, ToolReply
from everloop.workflows.contract.http_extension import HTTP_BASE
from everloop.workflows.contract.messages import AssistantMessage, text_of
from everloop.workflows.contract.questions import Question, QuestionKind
from tests.gateway.harness import AGENT, PublishingTools, key_scheme, running_gateway, unique, working
from tests.support.fakes.ports import ScriptedModel, answer, asks
from tests.support.rigs.operator import until

OTHER = Agent(id="other", name="Other", description="Asks, too.", model="scripted")

KEYS = {
    "ann": (f"ann-{uuid4()}", ["tasks:read", "tasks:write"]),
    "bob": (f"bob-{uuid4()}", ["tasks:read", "tasks:write"]),
    "boss": (f"boss-{uuid4()}", ["tasks:read", f"s{uuid4().hex}:approve"]),
    "root": ("root", ["admin"]),
}
BOUND = (KEYS["ann"][0], ["tasks:read", "agents:other"])

SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"age": {"type": "integer"}},
    "required": ["age"],
}

ASKED: dict[str, dict[str, object]] = {
    "confirm": {"kind": QuestionKind.CONFIRMATION, "purpose": "approval"},
    "clarify": {"kind": QuestionKind.CLARIFICATION, "timeout": 600.0},
    "select": {"kind": QuestionKind.SELECTION, "options": ("Kiel", "Ulm")},
    "data": {"kind": QuestionKind.DATA, "json_schema": SCHEMA},
    "refund": {"kind": QuestionKind.CONFIRMATION, "purpose": "approval", "approvers": KEYS["boss"][1][1]},
}

ANSWERS: dict[str, JsonValue] = {
    "confirm": {"approved": False, "note": "no"},
    "clarify": "as you like",
    "select": "Ulm",
    "data": {"age": 7},
}

Json = dict[str, JsonValue]


def reply(call: RunToolInput) -> ToolReply | None:
    """Ask what the name of the tool says."""
    if call.answers:
        return None
    fields = {"id": f"{call.call.id}/1", "text": "What?", "call": call.call, **ASKED[call.call.name]}
    return Question.model_validate(fields)


async def replies(call: CallModelInput) -> AssistantMessage:
    """Call the tool that the message names."""
    if call.length > 1:
        return answer("done")
    (message,) = call.new
    return asks(("c", text_of(message.parts)))


@dataclass(frozen=True)
class Inbox:
    """A gateway of two agents that ask."""

    http: httpx.AsyncClient
    keys: Mapping[str, Mapping[str, str]]

    async def send(self, caller: str, message: Json, agent: str = "staged") -> Json:
        """Send a message, and wait until its task asks, or ends."""
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", **message}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        answered = await self.http.post(f"/agents/{agent}", json=body, headers=self.keys[caller])
        return cast("Json", answered.json()["result"]["task"])

    async def asked(self, caller: str, tool: str, agent: str = "staged") -> str:
        """Start a task that asks; return its id once it is listed, which may take a moment."""
        task = await self.send(caller, {"parts": [{"text": tool}]}, agent)
        assert cast("Json", task["status"])["state"] == "TASK_STATE_INPUT_REQUIRED", task
        reader = "boss" if "approvers" in ASKED[tool] else caller
        await until(
            lambda: self.listed(reader), does=lambda seen: task["id"] in [each["taskId"] for each in seen]
        )
        return str(task["id"])

    async def listed(self, caller: str, query: str = "", size: int = 100) -> list[Json]:
        """Return the open questions of a caller, on all pages."""
        found, token = list[Json](), ""
        while True:
            url = f"{HTTP_BASE}/questions?pageSize={size}&pageToken={token}{query}"
            got = await self.http.get(url, headers=self.keys[caller])
            assert got.status_code == 200, got.text
            found += got.json()["questions"]
            if not (token := got.json()["nextPageToken"]):
                return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def inbox(
    client: Client, views: TaskViews, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Inbox]:
    queue = unique("inbox")
    scheme, keys = key_scheme(tmp_path_factory.mktemp("keys") / "keys", {**KEYS, "bound": BOUND})
    async with (
        working(client, views, queue, ScriptedModel(*[replies] * 100), PublishingTools(views, reply)),
        running_gateway(
            client, views, queue=queue, agents=[AGENT, OTHER], access=AccessControl(scheme)
        ) as gateway,
    ):
        yield Inbox(gateway.http, keys)


async def test_an_owner_sees_what_waits_and_answers_it(inbox: Inbox) -> None:
    """Over agents and pages; an answer that fits the schema closes the question."""
    started = {
        tool: await inbox.asked("ann", tool, agent)
        for tool, agent in zip(ANSWERS, ("staged", "other", "other", "staged"), strict=True)
    }
    await inbox.asked("ann", "refund")  # waits for others
    listed = await inbox.listed("ann", size=1)
    assert {each["taskId"]: each["tool"] for each in listed} == {each: tool for tool, each in started.items()}
    assert len(listed) == len(started)
    assert {str(each["tool"]) for each in await inbox.listed("bound")} == {"clarify", "select"}
    assert len(await inbox.listed("root", f"&owner={KEYS['ann'][0]}")) == len(listed)
    assert await inbox.listed("bob") == []
    for each in listed:
        tool = str(each["tool"])
        asked = ASKED[tool]
        assert (each["kind"], each["answerBy"], each["scope"]) == (asked["kind"], "message", "owner")
        options = cast("tuple[str, ...]", asked.get("options", ()))
        assert (each["timeout"], each["options"]) == (asked.get("timeout"), [*options])
        assert each["expected"]
        Draft202012Validator(cast("Json", each["answerSchema"])).validate(ANSWERS[tool])
        metadata: Json = {"question": each["questionId"]}
        said: Json = {"taskId": each["taskId"], "metadata": metadata, "parts": [{"data": ANSWERS[tool]}]}
        task = await inbox.send("ann", said, str(each["agent"]))
        assert cast("Json", task["status"])["state"] == "TASK_STATE_COMPLETED", (tool, task)
    await until(lambda: inbox.listed("ann"), does=lambda seen: not seen)  # it follows the tasks


async def test_approvers_see_what_others_wait_for(inbox: Inbox) -> None:
    """Approvals are listed beside own questions, without the context of their owners."""
    task_id = await inbox.asked("bob", "refund")
    listed = {each["taskId"]: each for each in await inbox.listed("boss")}
    each = listed[task_id]
    assert (each["answerBy"], each["contextId"], each["scope"]) == ("approval", "", KEYS["boss"][1][1])
    assert await inbox.listed("bob") == []
    path = f"{HTTP_BASE}/approvals/{task_id}/c%2F1"
    given = await inbox.http.post(path, json={"approved": True}, headers=inbox.keys["boss"])
    assert given.status_code == 200
    await until(
        lambda: inbox.listed("boss"), does=lambda seen: task_id not in [each["taskId"] for each in seen]
    )


@pytest.mark.parametrize("token", ["x", "WyJ4Il0=", "WyJub2JvZHkiLCAieCIsICIiXQ=="])
async def test_a_token_that_is_none_is_refused(inbox: Inbox, token: str) -> None:
    """A token of another list or a made-up one."""
    got = await inbox.http.get(f"{HTTP_BASE}/questions?pageToken={token}", headers=inbox.keys["ann"])
    assert (got.status_code, "pageToken is not one" in got.text) == (400, True)

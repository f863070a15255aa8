"""What waits for the caller: open questions of the owner's tasks, and approvals that others' tasks wait for.

    GET /questions

A question of an own task is answered by a message to that task, as A2A has it; an approval at its address.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from pydantic import JsonValue
from starlette.responses import Response
from starlette.routing import Route

from everloop.agents.registry import AgentRegistry
from everloop.gateway.auth.scopes import may_use, named_approver_scopes
from everloop.gateway.extension.approvals import asked_in, question_json
from everloop.gateway.extension.shell import Call, Extension, answer, page_token
from everloop.stores.views.interface import TaskQuery, WaitingQuery
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.questions import Question, QuestionKind, expected
from everloop.workflows.contract.tasks import TaskState, TaskView

_WAITING = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)

_APPROVALS = ""
"""Stands among the ids of agents for the approvals, which are not of one."""

_CONFIRMATION: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "note": {"type": "string"}},
    "required": ["approved"],
    "additionalProperties": False,
}

_List = tuple[str, str]
"""An agent and a state, whose tasks are a list in Redis."""


class Questions:
    """Serves all that waits for somebody."""

    def __init__(self, extension: Extension, agents: AgentRegistry, views: TaskViews) -> None:
        self._extension = extension
        self._agents = agents
        self._views = views

    @property
    def routes(self) -> list[Route]:
        """The address."""
        return [self._extension.route("/questions", GET=self._list)]

    async def _list(self, call: Call) -> Response:
        page = call.page
        lists = list(self._lists_of(call))
        first, token = page.read_token(lambda token: _read_place(token, lists), (0, ""))
        found = list[JsonValue]()
        for number, each in enumerate(lists[first:], first):
            more, token = await self._read(call, each, page.size - len(found), token)
            found += more
            if token or len(found) >= page.size:
                following = (number, token) if token else (number + 1, "")
                is_last = following[0] == len(lists)
                return answer(
                    {"questions": found, "nextPageToken": "" if is_last else _token(lists, *following)}
                )
        return answer({"questions": found, "nextPageToken": ""})

    def _lists_of(self, call: Call) -> Iterable[_List]:
        """Return in which lists there may be something: approvals are nobody's but the caller's own."""
        if call.owner == call.caller.owner and named_approver_scopes(call.caller):
            yield (_APPROVALS, "")
        for agent in self._agents:
            if may_use(call.caller, agent.id):
                yield from ((agent.id, state.value) for state in _WAITING)

    async def _read(self, call: Call, each: _List, size: int, token: str) -> tuple[list[JsonValue], str]:
        """Return what is on the next page of a list, and where it goes on."""
        now, (agent_id, state) = datetime.now(UTC), each
        if agent_id == _APPROVALS:
            waiting = await self._views.list_waiting(
                WaitingQuery(named_approver_scopes(call.caller), size, token)
            )
            approvals = [_json(*each, now) for each in asked_in(waiting, call.caller)]
            return approvals, waiting.next_page_token
        query = TaskQuery(
            owner=call.owner,
            agent_id=agent_id,
            state=TaskState(state),
            page_size=size,
            page_token=token,
            with_history=0,
            with_artifacts=False,
        )
        tasks = await self._views.list_tasks(query)
        asked = [
            _json(view, question, now)
            for view in tasks.views
            for question in view.status.questions
            if question.is_for_owner
        ]
        return asked, tasks.next_page_token


def answer_schema(question: Question) -> dict[str, JsonValue]:
    """Return the JSON schema of what a data part that answers a question may hold."""
    match question.kind:
        case QuestionKind.CONFIRMATION:
            return _CONFIRMATION
        case QuestionKind.SELECTION:
            return {"enum": list(question.options)}
        case QuestionKind.DATA:
            return question.json_schema
        case QuestionKind.AUTH:
            return {"type": "string", "minLength": 1, "writeOnly": True}
        case QuestionKind.CLARIFICATION:
            return {"type": "string", "minLength": 1}


def _json(view: TaskView, question: Question, now: datetime) -> JsonValue:
    is_mine = question.is_for_owner
    return {
        **question_json(view, question, now),
        "contextId": view.context_id if is_mine else "",
        "kind": question.kind.value,
        "purpose": question.purpose,
        "options": list(question.options),
        "timeout": question.timeout,
        "answerBy": "message" if is_mine else "approval",
        "answerSchema": answer_schema(question),
        "expected": expected(question) if is_mine else "",
    }


def _token(lists: list[_List], number: int, token: str) -> str:
    if number == len(lists):
        return ""
    return page_token(json.dumps([*lists[number], token]).encode())


def _read_place(token: bytes, lists: list[_List]) -> tuple[int, str]:
    """Return with which list a page begins, and where in it."""
    agent_id, state, inner = json.loads(token)
    return lists.index((agent_id, state)), str(inner)
